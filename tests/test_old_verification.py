"""Verification of seed 000's events by the rules of their time."""

import json

import pytest
from test_upcasting import event_000, run_000
from test_verify import checks, verify_lines

from deedbook_audit.report import UNHASHED
from deedbook_audit.verification.verdict import conclude


def complete():
    """Return a run in which an audit of seed 000 misses nothing."""
    more = [("hook.fired", {"hook": "Stop"}), ("skill.invoke", {"name": "greet"}), ("llm.request", {}),
            ("skill.complete", {"name": "greet", "ok": True})]  # fmt: skip
    *lines, end = run_000()
    return [*lines, *(event_000(kind, said, f"more-{kind}") for kind, said in more), end]


def test_complete_run_has_no_faults_and_is_not_called_sound_since_nothing_is_hashed(tmp_path):
    report = verify_lines(tmp_path, complete())
    assert checks(report) == []
    assert (report.format, report.session_id, report.state, report.events) == ("seed-000", "sess_01", "ended", 11)
    assert (report.faultless, report.sound, report.notes[0]) == (True, False, UNHASHED)
    assert [*report.lines()][-1] == "nothing to verify"
    assert conclude([report]).kind == "unhashed"
    assert not any("audit" in note for note in report.notes)


def test_what_an_audit_would_miss_is_remarked(tmp_path):
    report = verify_lines(tmp_path, run_000())
    assert report.faultless
    assert [note for note in report.notes if "audit" in note] == [
        "audit incomplete: 1 more llm.response than llm.request",
        "audit incomplete: a successful run without hook.fired, skill.invoke, llm.request, skill.complete",
    ]


def test_call_without_a_result_and_a_missing_close_are_remarked(tmp_path):
    notes = verify_lines(tmp_path, run_000()[:3]).notes
    assert {"no session.close", "audit incomplete: 1 tool.invoke without tool.result"} <= set(notes)


def test_time_that_goes_back_is_remarked_and_no_failure(tmp_path):
    lines = [event_000("session.start", {}, "1"), event_000("x.y", {}, "2", ts=5)]
    report = verify_lines(tmp_path, lines)
    assert report.faultless
    assert "ts goes back 1 times; the order is that of the lines" in report.notes


BREAKS = {
    "an id twice": (event_000("x.y", {}, "1"), "id"),
    "a parent later": (event_000("x.y", {}, "9", parent_id="10"), "parent"),
    "a parent of its own": (event_000("x.y", {}, "9", parent_id="9"), "parent"),
    "a result off its call": (event_000("tool.result", {}, "9", parent_id="1"), "outcome"),
    "another session": (event_000("x.y", {}, "9", session_id="other"), "session_id"),
    "another version": (event_000("x.y", {}, "9", schema_version="v2"), "header"),
    "a key more": (event_000("x.y", {}, "9", more=1), "header"),
    "no id": (event_000("x.y", {}, ""), "header"),
    "a number as id": (event_000("x.y", {}, 9), "header"),
    "a number as parent": (event_000("x.y", {}, "9", parent_id=1), "header"),
    "no such time": (event_000("x.y", {}, "9", ts="noon"), "ts"),
    "no number": (event_000("x.y", {}, "9", ts=float("nan")), "json"),
    "no JSON": (b"{\n", "json"),
    "a list": (b"[]\n", "json"),
    "another form": (json.dumps({"event_type": "x", "payload": {}}).encode() + b"\n", "header"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_rule_of_the_time_is_named(tmp_path, name):
    line, check = BREAKS[name]
    report = verify_lines(tmp_path, [*complete(), line])
    assert (12, check) in checks(report)
    assert not report.faultless


def test_torn_tail_is_told(tmp_path):
    report = verify_lines(tmp_path, [*complete(), b'{"id": "12"'])
    assert (report.torn.size, report.faultless) == (11, False)
