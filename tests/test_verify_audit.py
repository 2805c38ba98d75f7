"""The structure part: seed 000's audit completeness, as far as a ledger alone can tell, and failures named in order."""

from itertools import pairwise

import ledgers
import pytest
from ledgers import Book

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verification import spans
from deedbook_audit.verification.verdict import conclude
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))


def verify(book, folder):
    return verify_file(book.write(folder), schemas=SCHEMAS)


def checks(report):
    return [(each.line, each.check) for each in (*report.bytes.failures, *report.structure.failures)]


def ended(*, answers=True, violated=True, moves=(None, "lead", "worker")):
    """Write a session with a flow of two roles, a request to a model, and a refusal for its arguments."""
    book = Book()
    root = ledgers.start(book)
    flow = book.add("flow.call", {"flow": "flow/review", "args": {}}, parent=root, principal="local")
    for before, to in pairwise(moves):
        role = book.add("agent.transition", {"from": before, "to": to}, parent=flow)
    asked = book.add("llm.request", {"ability": "model/x", "request": {}}, parent=role)
    if answers:
        book.add("llm.response", {"ability": "model/x", "response": {}}, parent=asked)
    fault = {"errors": [{"path": "$", "message": "no"}], "name": "rm", "schema": "takes", "subject": "arguments"}
    if violated:
        book.add("schema.violation", fault, parent=root)
    denied = {"kind": "tool", "name": "rm", "code": "SCHEMA_VIOLATION", "reason": "no", "args": {}}
    book.add("tool.denied", denied, parent=root, actor="policy")
    book.add("flow.result", {"flow": "flow/review", "result": {}}, parent=flow)
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    return book


def test_audit_of_a_whole_session_is_complete(tmp_path):
    assert checks(verify(ended(), tmp_path)) == []


@pytest.mark.parametrize(
    ("left_out", "line"),
    [({"answers": False}, 5), ({"violated": False}, 7), ({"moves": (None, "worker", "planner", "worker")}, 0)],
)
def test_audit_names_what_is_left_out(tmp_path, left_out, line):
    book = ended(**left_out)
    if not line:  # the hand-over to the planner vanishes
        book = ended(moves=("planner", "worker"))
        line = 3
    assert checks(verify(book, tmp_path)) == [(line, "audit")]


def test_call_without_outcome_in_a_session_that_goes_on_is_no_fault(tmp_path):
    book = ended(answers=False)
    del book.lines[-1]
    report = verify(book, tmp_path)
    assert report.sound
    assert any("calls without an outcome: 1" in note for note in report.notes)


def test_span_that_is_there_twice_far_apart_is_named_where_it_comes_again(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "RUN", 2)
    book = Book()
    root = ledgers.start(book)
    for _ in range(9):
        book.add("user.message", {"text": "x"}, parent=root)
    book.add("user.message", {"text": "x"}, parent=root, span_id=f"{2:016x}")
    assert checks(verify(book, tmp_path)) == [(11, "span")]


def test_first_failure_is_named_by_its_event_whichever_part_it_is_of(tmp_path):
    book = ledgers.call()
    book.lines[3] = book.lines[3].replace(b'"done"', b'"gone"')
    book.lines[1] = book.lines[1].replace(b'"tool.call"', b'"tool.cell"')
    said = conclude([verify(book, tmp_path)]).summary
    assert said.startswith("BROKEN at event 1: envelope_hash: expected ")


def test_damaged_line_is_named_before_the_earlier_event_that_it_leaves_without_an_outcome(tmp_path):
    book = ended()
    book.lines[5] = b" " * 10 + b"\n"
    report = verify(book, tmp_path)
    assert [each.line for each in report.structure.failures] == [5]
    assert conclude([report]).summary.startswith("BROKEN at event 5: header: expected ")


def test_damaged_line_of_one_ledger_is_named_before_a_broken_rule_of_another(tmp_path):
    (tmp_path / "other").mkdir()
    book = ended()
    book.lines[5] = b"\n"
    reports = [verify(ended(answers=False), tmp_path / "other"), verify(book, tmp_path)]
    assert conclude(reports[:1]).summary.startswith("BROKEN at event 4: audit: ")
    assert conclude(reports).summary.startswith("BROKEN at event 5 of session ")


def test_verdict_of_a_torn_ledger_names_the_last_event_that_stands(tmp_path):
    path = ledgers.call().write(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    verdict = conclude([verify_file(path, schemas=SCHEMAS)])
    assert (verdict.kind, verdict.sound) == ("torn", False)
    assert verdict.summary.startswith("torn after event 2: ")


@pytest.mark.parametrize("size", [1, 20, 100, 700])
@pytest.mark.parametrize("form", ["half", "zeros"])
def test_first_line_that_was_not_written_whole_is_torn_and_nothing_was_recorded(tmp_path, form, size):
    first = ledgers.call().lines[0]
    path = tmp_path / ".events.jsonl"
    path.write_bytes(first[: min(size, len(first) - 1)] if form == "half" else bytes(size))
    report = verify_file(path, schemas=SCHEMAS)
    verdict = conclude([report])
    assert (verdict.kind, report.events, report.bytes.failures) == ("torn", 0, ())
    assert verdict.summary.startswith("torn before the first event: ")


@pytest.mark.parametrize("raw", [b"", b"# a title", b'{"schema_version":"1.2"'])
def test_file_without_a_line_that_no_crash_leaves_of_a_ledger_is_broken(tmp_path, raw):
    path = tmp_path / ".events.jsonl"
    path.write_bytes(raw)
    assert conclude([verify_file(path, schemas=SCHEMAS)]).kind == "broken"


SAID = {
    "sound": "unwitnessed: sound as far as it goes, no checkpoint",
    "torn": "torn after event 3: 1 byte",
    "broken": "BROKEN at event 1: payload_hash: expected ",
}


@pytest.mark.parametrize("kind", SAID)
def test_verdict_is_never_a_bare_word(tmp_path, kind):
    raw = ledgers.call().bytes()
    path = tmp_path / "x"
    path.write_bytes({"sound": raw, "torn": raw + b"x", "broken": raw.replace(b'"hi"', b'"ho"')}[kind])
    assert conclude([verify_file(path, schemas=SCHEMAS)]).summary.startswith(SAID[kind])
