"""Floods of faults: verify describes the first few of each kind and counts the rest, for people and as JSON."""

from collections import Counter

import ledgers
import pytest
from commandline import Place
from ledgers import Book
from test_verify import SCHEMAS, honest_1_0, line_1_0, verify

from deedbook.format.terminal import MOST_OF_A_KIND
from deedbook_audit.report import MOST_LISTED

MANY = 2_000


def opened() -> tuple[Book, str]:
    """Return a ledger that has begun, and its root."""
    book = Book()
    return book, ledgers.start(book)


def newlines() -> bytes:
    return opened()[0].bytes() + b"\n" * MANY


def broken_lines() -> bytes:
    return opened()[0].bytes() + b'{"no":"header"}\n' * MANY


def changed_payloads() -> bytes:
    book = ledgers.call()
    return book.bytes() + book.lines[1].replace(b'"hi"', b'"ho"') * MANY


def unknown_spans() -> bytes:
    book, _ = opened()
    for number in range(MANY):
        book.add("user.message", {"text": "x"}, parent=f"{0xABC0000 + number:016x}")
    return book.bytes()


def unclosed_calls() -> bytes:
    book, root = opened()
    for _ in range(MANY):
        book.add("tool.call", {"args": {}, "tool_name": "x"}, parent=root)
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    return book.bytes()


def broken_sealed_values() -> bytes:
    book, root = opened()
    for _ in range(MANY):
        book.add("user.message", {"text": {"$sealed": "../x", "size": 1}}, parent=root)
    return book.bytes()


def unfit_payloads() -> bytes:
    book, root = opened()
    for _ in range(MANY):
        book.add("user.message", {"txt": 1, "more": 2}, parent=root)
    return book.bytes()


def unknown_types() -> bytes:
    book, root = opened()
    for _ in range(MANY):
        book.add("nobody.knows", {}, parent=root)
    return book.bytes()


def second_roots() -> bytes:
    book, _ = opened()
    for _ in range(MANY):
        book.add("session.start", {}, parent=None)
    return book.bytes()


def broken_1_0() -> bytes:
    return honest_1_0()[0] + b"{}\n" * MANY


def sessions_1_0() -> bytes:
    return b"".join(line_1_0("session.start", {"_span_id": "a"}, f"s{number}") for number in range(MANY))


FLOODS = {
    "newlines": (newlines, {"header"}),
    "broken lines": (broken_lines, {"header"}),
    "changed payloads": (changed_payloads, {"payload_hash", "prev_envelope_hash", "seq"}),
    "unknown spans": (unknown_spans, {"parent"}),
    "unclosed calls": (unclosed_calls, {"audit"}),
    "broken sealed values": (broken_sealed_values, {"sealed", "payload"}),
    "unfit payloads": (unfit_payloads, {"payload"}),
    "unknown types": (unknown_types, {"event_type"}),
    "second roots": (second_roots, {"root", "payload"}),
    "broken lines of 1.0": (broken_1_0, {"json"}),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_is_described_by_its_first_failures_and_counted(tmp_path, name):
    make, wanted = FLOODS[name]
    (tmp_path / "x").write_bytes(make())
    report = verify(tmp_path / "x")
    for part in (report.bytes, report.structure):
        kept = Counter(failure.check for failure in part.failures)
        assert all(kept[check] == MOST_OF_A_KIND for check in part.more)
        assert max(kept.values(), default=0) <= MOST_OF_A_KIND
        assert part.as_json()["failed"] == part.failure_count == len(part.failures) + sum(part.more.values())
    more = {**report.bytes.more, **report.structure.more}
    assert wanted <= more.keys()
    assert all(MANY - MOST_OF_A_KIND - 1 <= more[check] <= 4 * MANY for check in wanted - {"seq"})
    assert len(list(report.lines())) < 6 * MOST_OF_A_KIND
    assert len(str(report.as_json())) < 30_000
    assert (report.sound, report.bytes.checked) == (False, report.events)


def test_flood_of_newlines_is_told_in_a_few_lines(tmp_path):
    (tmp_path / "x").write_bytes(newlines())
    *_, more, structure, last = verify(tmp_path / "x").lines()
    counted = MANY - MOST_OF_A_KIND // 2  # the first lines have two failures each
    assert more == f"  and {counted} more: header {counted}"
    assert (structure, last) == ("structure: 1 line sound", "NOT SOUND")


def test_line_that_is_too_long_is_named_among_any_number_of_others(tmp_path):
    (tmp_path / "x").write_bytes(newlines() + b"x" * (2 << 20) + b"\n")
    report = verify(tmp_path / "x")
    assert (MANY + 2, "size") in [(each.line, each.check) for each in report.bytes.failures]


def test_violations_of_a_flood_are_not_looked_for_once_enough_are_described(tmp_path, monkeypatch):
    looked = []
    kind = type(SCHEMAS.validator("event_user_message_v1"))
    real = kind.violations
    monkeypatch.setattr(kind, "violations", lambda self, value: looked.append(value) or real(self, value))
    (tmp_path / "x").write_bytes(unfit_payloads())
    assert not verify(tmp_path / "x").sound
    assert 1 <= len(looked) <= MOST_OF_A_KIND


def test_fault_of_another_kind_is_named_behind_a_flood(tmp_path):
    book = ledgers.call()
    book.lines.insert(1, b"\n" * MANY)
    book.lines[-1] = book.lines[-1].replace(b'"ok":true', b'"ok":tru!')
    (tmp_path / "x").write_bytes(book.bytes())
    last = MANY + len(book.lines) - 1
    assert (last, "payload_hash") in [(each.line, each.check) for each in verify(tmp_path / "x").bytes.failures]


def test_notes_of_a_flood_of_sessions_are_bounded(tmp_path):
    (tmp_path / "x").write_bytes(sessions_1_0())
    report = verify(tmp_path / "x")
    assert report.sound
    assert len(report.notes) <= MOST_OF_A_KIND + 3
    assert report.notes[-1] == f"and {MANY - MOST_OF_A_KIND} more"


@pytest.fixture(scope="module")
def lost(tmp_path_factory) -> Place:
    """Give a workspace whose ledger tells of many sessions that are not there, and has many that never began."""
    place = Place(tmp_path_factory.mktemp("lost"))
    place.here("init", status=0)
    book = Book(ledgers.OWN, genesis="workspace")
    root = book.add("ledger.created", {"kernel": "0.1.0"}, parent=None)
    for number in range(MOST_LISTED + 50):
        head = {"session_id": f"{number:032x}", "events": 3, "head": ledgers.HASH, "state": "ended"}
        book.add("ledger.session", head, parent=root)
        (place.path / f".deedbook/sessions/{number + 10_000:032x}").mkdir(parents=True)
    (place.path / ".deedbook/workspace").mkdir()
    book.write(place.path / ".deedbook/workspace")
    return place


def test_flood_of_lost_sessions_is_counted(lost):
    ran = lost.here("verify", status=4)
    for word in ("missing  ", "empty  "):
        assert sum(line.startswith(word) for line in ran.out.splitlines()) == MOST_LISTED
    assert ran.out.splitlines().count("and 50 more") == 2
    assert f"{MOST_LISTED + 50} sessions are NOT" in ran.err


def test_flood_of_lost_sessions_is_bounded_in_json(lost):
    told = lost.here("verify", "--json", status=4).fits("output_verify_v1")
    assert (len(told["missing"]), len(told["empty"])) == (MOST_LISTED, MOST_LISTED)
    assert told["more"] == {"missing": 50, "empty": 50}


def test_json_of_a_flood_fits_its_schema(lost, tmp_path):
    (tmp_path / "x").write_bytes(newlines())
    told = lost.here("verify", str(tmp_path / "x"), "--json", status=4).fits("output_verify_v1")
    (report,) = told["reports"]
    assert report["bytes"]["failed"] == len(report["bytes"]["failures"]) + sum(report["bytes"]["more"].values())
    assert report["bytes"]["more"]["header"] > MANY - 2 * MOST_OF_A_KIND


@pytest.mark.parametrize("command", ["tree", "replay", "stats", "export", "explain", "whatif", "doctor"])
def test_flood_is_one_line_to_the_other_readers(lost, tmp_path, command):
    (tmp_path / "x").write_bytes(newlines())
    args = [command] if command == "doctor" else [command, str(tmp_path / "x")]
    ran = lost.here(*args)
    assert ran.status != 0
    assert len((ran.out + ran.err).splitlines()) < 2 * MOST_LISTED
