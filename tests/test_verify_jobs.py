"""verify with several processes says what it says with one; ranges of one ledger are joined at their seams."""

import ledgers
import pytest
from doubling import doubler
from ledgers import Book

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verification import ranges
from deedbook_audit.verification.pool import map_ordered
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(ranges, "STEP", 4096)


def long_book(messages=60):
    book = Book()
    root = ledgers.start(book)
    for number in range(messages):
        asked = book.add("tool.call", {"args": {"n": number}, "tool_name": "echo"}, parent=root, principal="local")
        book.add("tool.result", {"result": {"n": number}, "tool_name": "echo"}, parent=asked, actor="tool")
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    return book


def both(path):
    one, two = (verify_file(path, schemas=SCHEMAS, jobs=jobs).as_json() for jobs in (1, 2))
    assert one == two
    return two


def test_ranges_of_a_sound_ledger_come_to_what_the_whole_does(tmp_path, monkeypatch):
    book = long_book()
    path = book.write(tmp_path)
    path.write_bytes(book.bytes() + b"torn")
    monkeypatch.setattr("deedbook_audit.verify._Run.full", None)  # nothing is read a second time
    report = verify_file(path, schemas=SCHEMAS, jobs=2)
    assert (report.events, report.head, report.state) == (len(book.lines), book.prev, "ended")
    assert (report.torn.offset, report.torn.size) == (len(book.bytes()), 4)
    assert report.structure.failures == report.bytes.failures == ()


def test_failure_in_a_range_and_at_a_seam_is_named_as_by_one_process(tmp_path):
    book = long_book()
    forged = ledgers.forge([*book.lines[:40], *book.lines[42:]])
    path = tmp_path / "x"
    path.write_bytes(b"".join(forged))
    assert both(path)["bytes"]["failures"][0]["check"] == "seq"


def test_fault_of_structure_across_ranges_has_its_line(tmp_path):
    book = long_book()
    del book.lines[100]  # an outcome is gone, and the rest written anew
    lines = [
        line.replace(b'"seq":%d,' % (seq + 1), b'"seq":%d,' % seq) for seq, line in enumerate(book.lines[100:], 100)
    ]
    path = tmp_path / "x"
    path.write_bytes(b"".join(ledgers.forge([*book.lines[:100], *lines])))
    report = verify_file(path, schemas=SCHEMAS, jobs=2)
    assert [(each.line, each.check) for each in report.structure.failures] == [(100, "audit")]


def test_seams_are_checked():
    a = ranges.Range([(1, "k", b"", None, b"", None)], b"p", 0, b"x", b"h", 9, 0, 0, [], None)
    b = ranges.Range([(2, "k", b"", None, b"", None)], b"p", 1, b"h", b"i", 9, 0, 0, [], None)
    assert ranges.is_joined(None, a)
    assert ranges.is_joined(a, b)
    for wrong in ({"prefix": b"q"}, {"first": 2}, {"before": b"z"}):
        assert not ranges.is_joined(a, b._replace(**wrong))
    assert not ranges.is_joined(None, b)


def test_crew_answers_in_order_and_a_death_is_told():
    assert list(map_ordered(range(9), 2, doubler)) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    with pytest.raises(RuntimeError, match="ended before it was done"):
        list(map_ordered([1, 13, 2], 1, doubler))
