"""Verification of x.fallback.skipped: a model that was left out stands under the open call of its tier."""

import pytest
from ledgers import Book, start

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.skip_rules import SKIPPED, check_skip
from deedbook_audit.verify import verify_file

TIMES = {"since": "2026-11-21T10:00:00.000Z", "until": "2026-11-21T10:01:00.000Z"}
SKIP = {"model": "model/small", "failures": 5, "code": "PROVIDER_ERROR", **TIMES}


def test_skip_under_an_open_call_of_a_model_breaks_no_rule():
    assert list(check_skip(SKIP, "llm.request")) == []


@pytest.mark.parametrize(
    ("payload", "call", "why"),
    [
        (SKIP, "", "no open call"),
        (SKIP, "tool.call", "under tool.call"),
        ({**SKIP, "until": TIMES["since"]}, "llm.request", "since "),
        ({}, "llm.request", "since None"),
    ],
)
def test_other_skip_breaks_a_rule(payload, call, why):
    [found] = check_skip(payload, call)
    assert why in found


def test_ledger_with_a_skip_outside_of_a_call_is_not_sound(tmp_path):
    book = Book()
    root = start(book, "call")
    book.add(SKIPPED, SKIP, parent=root)
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    report = verify_file(book.write(tmp_path), schemas=Schemas.load(data_folder("schemas")))
    assert [(each.check, each.line) for each in report.structure.failures] == [("audit", 2)]
