"""verify: honest ledgers of every kind are sound, torn and open ones are called so, and a report says what it knows."""

import json
import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import ledgers
import pytest
from ledgers import Book, forge

from deedbook.format.errors import FileRefused
from deedbook.format.lines import Lines
from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.report import UNWITNESSED
from deedbook_audit.verify import MAX_LINE, verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))
VECTORS = Path(os.environ.get("DEEDBOOK_VECTORS", Path(__file__).parents[2] / "shared" / "vectors"))
LEVELS = ("chain", "hashes", "full")


@pytest.fixture
def node():
    return shutil.which("node") or pytest.skip("node is not installed")


def verify(path, **options):
    """Verify a file whose charter, which is at hand, declares no event types."""
    return verify_file(path, schemas=SCHEMAS, **{"declared": lambda _: {}, **options})


def checks(report):
    return [(each.line, each.check) for each in (*report.bytes.failures, *report.structure.failures)]


# --- honest ledgers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [ledgers.run, ledgers.call, ledgers.workspace])
def test_verify_accepts_ledgers_written_from_the_documentation(tmp_path, make, level):
    book = make()
    report = verify(book.write(tmp_path), level=level)
    assert checks(report) == []
    assert report.sound
    assert (report.events, report.head, report.session_id) == (len(book.lines), book.prev, book.session_id)


def test_verify_checks_every_line_in_both_parts(tmp_path):
    book = ledgers.run()
    report = verify(book.write(tmp_path))
    assert report.bytes.checked == report.structure.checked == len(book.lines)


def test_verify_says_whether_a_session_has_ended(tmp_path):
    book = ledgers.call()
    assert verify(book.write(tmp_path)).state == "ended"
    del book.lines[-1]
    report = verify(book.write(tmp_path))
    assert (report.state, report.sound) == ("open", True)
    assert any("no session.end" in note for note in report.notes)


def test_verify_knows_the_workspace_ledger_by_its_id(tmp_path):
    assert verify(ledgers.workspace().write(tmp_path)).state == "workspace"


def test_verify_says_nothing_of_structure_when_only_hashes_are_checked(tmp_path):
    report = verify(ledgers.run().write(tmp_path), level="hashes")
    assert report.state == "unknown"
    assert report.structure.checked == 0
    assert "structure: not checked" in report.lines()


def test_verify_counts_calls_without_outcome_as_a_note(tmp_path):
    book = ledgers.call()
    del book.lines[2:]
    report = verify(book.write(tmp_path))
    assert report.sound
    assert any("calls without an outcome: 1" in note for note in report.notes)


def test_verify_notes_a_clock_that_went_back_and_keeps_the_order_of_seq(tmp_path):
    book = Book()
    root = ledgers.start(book)
    book.add("user.message", {"text": "x"}, parent=root, ts="2020-01-01T00:00:00.000Z")
    report = verify(book.write(tmp_path))
    assert report.sound
    assert any("ts goes back 1 times" in note for note in report.notes)


def test_verify_reads_the_older_names_of_event_types(tmp_path):
    book = Book()
    root = ledgers.start(book)
    asked = book.add("tool.invoke", {"args": {}, "tool_name": "echo"}, parent=root)
    book.add("tool.result", {"result": 1, "tool_name": "echo"}, parent=asked)
    book.add("session.close", {"ok": True, "reason": ""}, parent=root)
    report = verify(book.write(tmp_path))
    assert checks(report) == []
    assert report.state == "ended"


def test_verify_takes_a_type_that_a_charter_declares(tmp_path):
    book = Book()
    book.add("x.shop.sold", {"n": 1}, parent=ledgers.start(book))
    path = book.write(tmp_path)
    assert checks(verify(path)) == [(2, "event_type")]
    declared = {"x.shop.sold": SCHEMAS.validator("event_context_created_v1")}
    assert checks(verify(path, declared=lambda _: declared)) == [(2, "payload")] * 3


def test_verify_says_that_it_does_not_know_the_rules_of_a_plugins_events(tmp_path):
    book = Book()
    book.add("x.shop.sold", {"n": 1}, parent=ledgers.start(book))
    report = verify(book.write(tmp_path), declared=lambda _: None)
    assert checks(report) == []
    assert report.families == ("x.shop",)
    assert any("x.shop were not checked, nor their payloads: the charter" in note for note in report.notes)


# --- the beginning and the end of a file ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_verify_refuses_a_file_without_lines(tmp_path, level):
    path = tmp_path / "x"
    path.write_bytes(b"")
    report = verify(path, level=level)
    assert (report.sound, report.head) == (False, None)
    assert (0, "empty") in checks(report)


@pytest.mark.parametrize("tail", [b"{", b"\0" * 4096, b"garbage", b'{"schema_version":"1.1"', b"\r"])
def test_verify_calls_bytes_after_the_last_newline_torn_and_checks_the_rest(tmp_path, tail):
    book = ledgers.run()
    path = tmp_path / "x"
    path.write_bytes(book.bytes() + tail)
    report = verify(path)
    assert (report.torn.offset, report.torn.size) == (len(book.bytes()), len(tail))
    assert checks(report) == []
    assert not report.sound
    assert report.events == len(book.lines)


def test_verify_at_every_cut_of_the_last_line_reports_a_torn_tail(tmp_path):
    book = ledgers.call()
    whole, last = book.bytes(), len(book.lines[-1])
    for size in range(1, last):
        path = tmp_path / "x"
        path.write_bytes(whole[:-size])
        report = verify(path)
        assert (report.torn.size, report.sound, checks(report)) == (last - size, False, [])


def test_verify_cannot_see_a_cut_at_the_end_of_a_line_and_says_so(tmp_path):
    book = ledgers.call()
    del book.lines[-2:]
    report = verify(book.write(tmp_path))
    assert report.sound
    assert report.notes[0] == UNWITNESSED
    assert "cut off at the end would not show" in " ".join(report.notes)


def test_verify_does_not_write(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(ledgers.run().bytes() + b"torn")
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.iterdir()))
    verify(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.iterdir())) == before


def test_verify_refuses_links_and_pipes_instead_of_following_or_waiting(tmp_path):
    path = ledgers.call().write(tmp_path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(FileRefused):
            verify(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent")


# --- large files ------------------------------------------------------------------------------------------------------


def test_lines_are_the_same_whatever_blocks_they_are_read_in(tmp_path, monkeypatch):
    raw = b"\n\nab\ncde\r\n\xe2\x80\xa8\n" + b"x" * 50 + b"\ntail"
    path = tmp_path / "x"
    path.write_bytes(raw)
    for block in range(1, 70):
        monkeypatch.setattr("deedbook.format.lines.BLOCK", block)
        with path.open("rb") as file:
            lines = Lines(file, 100)
            assert list(lines) == raw.split(b"\n")[:-1]
            assert (lines.torn.offset, lines.torn.size) == (len(raw) - 4, 4)


def test_lines_cut_what_is_longer_than_any_line_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr("deedbook.format.lines.BLOCK", 8)
    path = tmp_path / "x"
    path.write_bytes(b"a" * 100 + b"\nb\n" + b"c" * 100)
    with path.open("rb") as file:
        lines = Lines(file, 20)
        first, second = lines
        assert (second, lines.torn.offset, lines.torn.size) == (b"b", 103, 100)
        assert 20 < len(first) <= 20 + 8


def test_verify_names_a_line_that_is_too_long(tmp_path):
    book = ledgers.call()
    book.lines.insert(1, b"x" * (MAX_LINE + 5) + b"\n")
    assert (2, "size") in checks(verify(book.write(tmp_path)))


def test_verify_names_a_payload_that_is_too_long(tmp_path):
    book = Book()
    root = ledgers.start(book)
    frame = len(ledgers.canonical({"text": ""}))
    book.add("user.message", {"text": "x" * (1024 * 1024 - frame)}, parent=root)
    assert verify(book.write(tmp_path)).sound
    book.add("user.message", {"text": "x" * (1024 * 1024 - frame + 1)}, parent=root)
    assert checks(verify(book.write(tmp_path))) == [(3, "size")]


# --- sealed values ----------------------------------------------------------------------------------------------------


def sealed_book(value: bytes, salt: bytes = b"s" * 32):
    mark = {"$sealed": sha256(salt + value).hexdigest(), "size": len(value)}
    book = Book()
    book.add("user.message", {"text": mark}, parent=ledgers.start(book))
    return book, mark["$sealed"], salt + value


def test_verify_checks_sealed_values_that_are_there_and_counts_those_that_are_not(tmp_path):
    book, digest, raw = sealed_book(b'"secret"')
    path = book.write(tmp_path)
    assert "sealed values: 0 present, 1 absent (erased, or not copied along)" in verify(path).notes
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / digest).write_bytes(raw)
    report = verify(path)
    assert report.sound
    assert "sealed values: 1 present, 0 absent (erased, or not copied along)" in report.notes


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b" ", lambda raw: b"t" + raw[1:]])
def test_verify_finds_a_sealed_value_that_is_not_what_the_line_commits_to(tmp_path, change):
    book, digest, raw = sealed_book(b'"secret"')
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / digest).write_bytes(change(raw))
    assert checks(verify(book.write(tmp_path))) == [(2, "sealed")]


def test_verify_finds_a_size_that_is_not_that_of_the_sealed_value(tmp_path):
    book = Book()
    raw = b"s" * 32 + b"1"
    mark = {"$sealed": sha256(raw).hexdigest(), "size": 2}
    book.add("context.created", {"task": [mark], "source": "user"}, parent=ledgers.start(book))
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / mark["$sealed"]).write_bytes(raw)
    assert checks(verify(book.write(tmp_path))) == [(2, "sealed")]


def test_verify_does_not_follow_a_link_in_place_of_a_sealed_value(tmp_path):
    book, digest, raw = sealed_book(b'"secret"')
    (tmp_path / "sealed").mkdir()
    (tmp_path / "elsewhere").write_bytes(raw)
    (tmp_path / "sealed" / digest).symlink_to(tmp_path / "elsewhere")
    assert checks(verify(book.write(tmp_path))) == [(2, "sealed")]


@pytest.mark.parametrize("mark", [
    {"$sealed": "../../etc/passwd", "size": 1},
    {"$sealed": ledgers.HASH},
    {"$sealed": ledgers.HASH, "size": True},
    {"$sealed": ledgers.HASH, "size": 1, "more": 1},
    {"$sealed": 7, "size": 1},
])  # fmt: skip
def test_verify_refuses_what_only_looks_like_a_sealed_value(tmp_path, mark):
    book = Book()
    book.add("tool.call", {"args": {"a": [mark]}, "tool_name": "x"}, parent=ledgers.start(book))
    assert (2, "sealed") in checks(verify(book.write(tmp_path)))


# --- reports ----------------------------------------------------------------------------------------------------------


def test_report_says_unwitnessed_before_anything_else(tmp_path):
    path = ledgers.run().write(tmp_path)
    for level in LEVELS:
        assert next(verify(path, level=level).lines()).startswith("unwitnessed")


def test_report_names_line_check_expected_and_found(tmp_path):
    book = ledgers.call()
    stored = sha256(b'{"args":{"text":"hi"},"tool_name":"echo"}').hexdigest()
    changed = sha256(b'{"args":{"text":"ho"},"tool_name":"echo"}').hexdigest()
    book.lines[1] = book.lines[1].replace(b'"hi"', b'"ho"')
    lines = list(verify(book.write(tmp_path)).lines())
    assert f"  line 2: payload_hash: expected {changed}, found {stored}" in lines
    assert lines[-1] == "NOT SOUND"


def test_report_is_json_with_the_same_verdict(tmp_path):
    book = ledgers.call()
    book.lines[1] = book.lines[1].replace(b'"hi"', b'"ho"')
    said = json.loads(json.dumps(verify(book.write(tmp_path)).as_json()))
    assert said["sound"] is False
    assert (said["bytes"]["failed"], said["structure"]["failed"]) == (1, 0)
    assert said["bytes"]["failures"][0].keys() == {"line", "check", "expected", "found"}
    assert said["notes"][0] == UNWITNESSED


def test_report_prints_nothing_that_a_terminal_would_act_on(tmp_path):
    hostile = "\x1b]52;c;ZXZpbA==\x07\r\n\u202eevil\u2028\x9b31m"
    path = tmp_path / "x"
    path.write_bytes(hostile.encode() + b"\n" + ledgers.call().bytes())
    book = Book()
    book.add("user.message", {"text": 1, hostile: 2}, parent=ledgers.start(book))
    other = book.write(tmp_path)
    for line in (*verify(path).lines(), *verify(other).lines()):
        assert line.isprintable()


# --- format 1.0 -------------------------------------------------------------------------------------------------------


def line_1_0(kind, payload, session="s", **changes):
    dump = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    raw = json.dumps(payload, **dump)
    envelope = {
        "event_type": kind,
        "payload": payload,
        "payload_hash": sha256(raw.encode()).hexdigest(),
        "schema_version": "1.0",
        "session_id": session,
        "trace_id": "t",
        "ts": "2025-12-18T02:28:10.544Z",
    } | changes
    return json.dumps(envelope, **dump).encode() + b"\n"


def honest_1_0():
    return [
        line_1_0("session.start", {"_span_id": "a", "_actor": "runtime"}),
        line_1_0("user.message", {"_span_id": "b", "_parent_span_id": "a", "text": "Grüße", "x": 1.0}),
        line_1_0("tool.call", {"_span_id": "c", "_parent_span_id": "b"}),
        line_1_0("tool.result", {"_span_id": "d", "_parent_span_id": "c"}),
        line_1_0("session.end", {"_span_id": "e", "_parent_span_id": "a"}),
    ]


def verify_lines(tmp_path, lines):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines))
    return verify(path)


def test_verify_accepts_the_real_lines_of_envelope_1_0_and_notes_where_the_end_hangs():
    path = VECTORS / "envelope_v1_0.events.jsonl"
    if not path.exists():
        pytest.skip(f"no vectors at {VECTORS}")
    report = verify(path)
    assert (report.format, report.events, report.state, report.sound) == ("1.0", 4, "ended", True)
    assert any("line 4: session.end hangs under the last action" in note for note in report.notes)
    assert report.notes[0] == UNWITNESSED


def test_verify_accepts_honest_lines_of_envelope_1_0_of_several_sessions(tmp_path):
    more = [line_1_0("session.start", {"_span_id": "a"}, session="other"), line_1_0("note", {}, session="other")]
    report = verify_lines(tmp_path, honest_1_0() + more)
    assert checks(report) == []
    assert report.state == "open"
    assert {"other: no session.end", "other: 1 events without causal fields"} <= set(report.notes)


BREAKS_1_0 = {
    "payload changed": (lambda lines: lines[1].replace("Grüße".encode(), b"HACKED"), "payload_hash"),
    "hash changed": (lambda lines: lines[1].replace(b'"payload_hash":"', b'"payload_hash":"0', 1), "payload_hash"),
    "space added": (lambda lines: lines[1].replace(b'"payload":', b'"payload": ', 1), "canonical"),
    "key twice": (
        lambda lines: lines[1].replace(b'{"event_type"', b'{"event_type":"evil","event_type"', 1),
        "json",
    ),
    "key added": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "a"}, more=1), "header"),
    "version": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "a"}, schema_version="9"), "header"),
    "number for a string": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "a"}, ts=1), "header"),
    "not a number": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "a", "n": float("nan")}), "json"),
    "no JSON": (lambda _: b"{\n", "json"),
    "no UTF-8": (lambda lines: lines[1].replace("Grüße".encode(), b"\xff"), "json"),
    "blank line": (lambda _: b"\n", "json"),
    "a list": (lambda _: b"[]\n", "json"),
    "payload no object": (lambda _: line_1_0("note", []), "json"),
    "nested without end": (lambda _: b"[" * 100_000 + b"\n", "json"),
    "lone surrogate": (lambda _: b'{"payload":{"a":"\\ud800"}}\n', "json"),
    "parent unknown": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "?"}), "parent"),
    "second root": (lambda _: line_1_0("session.start", {"_span_id": "x"}), "root"),
    "span twice": (lambda _: line_1_0("note", {"_span_id": "a", "_parent_span_id": "a"}), "span"),
    "result off its call": (lambda _: line_1_0("tool.result", {"_span_id": "x", "_parent_span_id": "a"}), "outcome"),
    "no such time": (lambda _: line_1_0("note", {"_span_id": "x", "_parent_span_id": "a"}, ts="2025-13-01"), "ts"),
}


@pytest.mark.parametrize("name", BREAKS_1_0)
def test_verify_names_what_is_wrong_with_an_envelope_1_0(tmp_path, name):
    change, check = BREAKS_1_0[name]
    lines = honest_1_0()
    lines[1] = change(lines)
    if name.endswith(("unknown", "root", "twice", "call", "time")) and name != "key twice":
        lines = [*honest_1_0(), lines[1]]
    report = verify_lines(tmp_path, lines)
    assert check in [each for _, each in checks(report)]
    assert not report.sound


def test_verify_reads_a_torn_tail_of_envelope_1_0(tmp_path):
    report = verify_lines(tmp_path, [*honest_1_0(), b'{"event_type"'])
    assert (report.torn.size, report.sound) == (13, False)


# --- another implementation -------------------------------------------------------------------------------------------


def test_forge_makes_hashes_right_again(tmp_path):
    book = ledgers.run()
    assert forge(book.lines) == book.lines
    book.lines[1] = book.lines[1].replace(b'"SessionStart"', b'"SessionStop"')
    book.lines = forge(book.lines)
    assert verify(book.write(tmp_path), level="hashes").sound


def test_javascript_verifier_is_short():
    for script in (Path(__file__).parent / "js").glob("*.mjs"):
        assert len(script.read_text().splitlines()) <= 250
        assert max(map(len, script.read_text().splitlines())) <= 120


@pytest.mark.parametrize("make", [ledgers.run, ledgers.call, ledgers.workspace])
def test_javascript_verifier_accepts_honest_ledgers(tmp_path, make, node):
    path = make().write(tmp_path)
    script = Path(__file__).parent / "js" / "verify.mjs"
    said = subprocess.run([node, script, path], capture_output=True, text=True, check=True)
    assert said.stdout == "sound\n"
