"""Seed 002's EventLedger: lines without hashes, which are read like any older form and never called sound."""

import json

import pytest
from commandline import Place, starter
from test_verify import checks, verify

from deedbook.contract import Event
from deedbook_audit.upcasting.reader import read
from deedbook_audit.upcasting.table import UPCASTERS

UNHASHED = "nothing to verify: this form has no hashes, so nothing here shows whether anything was changed"
T0 = 1766000000.25


def unhashed(kind, payload, session=None, ts=T0, **changes):
    """Return a line as that writer spells it: Python's own spelling, the keys in the order of its class."""
    row = {"ts": ts, "event_type": kind, "session_id": session, "payload": payload} | changes
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def boot(run, mode="cold", ts=T0, recovered=None):
    payload = {"system_id": "sys_1", "process_id": f"proc_{run}", "run_id": f"run_{run}", "boot_mode": mode,
               "started_at": "2025-12-17T19:33:20.250000+00:00", "recovered_from_run_id": recovered}  # fmt: skip
    return unhashed("system.boot", payload, ts=ts)


def shutdown(run, ts=T0 + 1):
    payload = {"system_id": "sys_1", "process_id": f"proc_{run}", "run_id": f"run_{run}", "exit_reason": "normal"}
    return unhashed("system.shutdown", payload, ts=ts)


def honest():
    return [
        boot("a"),
        unhashed("memory.version_check", {"ok": True, "supported": 0}, "p00-startup", T0 + 0.5),
        unhashed("memory.legacy_detected", {"reason": "older_schema_version"}, "p00-startup", T0 + 0.6),
        shutdown("a"),
        boot("b", "warm", T0 + 2),
    ]


def test_line_is_read_as_a_present_event():
    session, event = UPCASTERS.event(boot("a"), "seed-002-unhashed", 3, "x:4")
    assert session == "unknown"
    assert event == Event(3, "system.boot", "runtime", None, "line-4", None, "2025-12-17T19:33:20.250Z", {
        "system_id": "sys_1", "process_id": "proc_a", "run_id": "run_a", "kind": "cold",
        "started_at": "2025-12-17T19:33:20.250000+00:00", "recovered_from_run_id": None,
    })  # fmt: skip


@pytest.mark.parametrize("ts", [T0, "2025-12-17T19:33:20.250000Z", "2025-12-17T19:33:20.25+00:00"])
def test_time_is_seconds_or_iso_8601(ts):
    _, event = UPCASTERS.event(unhashed("x.y", {}, ts=ts), "seed-002-unhashed", 0, "x:1")
    assert event.ts == "2025-12-17T19:33:20.250Z"


def test_honest_file_has_nothing_to_verify_and_is_not_called_sound(tmp_path):
    (tmp_path / "x").write_bytes(b"".join(honest()))
    report = verify(tmp_path / "x")
    assert (report.format, report.events, report.state) == ("seed-002-unhashed", 5, "unknown")
    assert (checks(report), report.faultless, report.sound) == ([], True, False)
    assert report.notes[0].startswith(UNHASHED)
    assert report.notes[1:] == ("runs without a system.shutdown: 1",)
    assert not any(line.endswith("sound") for line in report.lines())
    assert report.as_json()["hashed"] is False


BREAKS = {
    "no JSON": (b"{\n", "json"),
    "a key more": (unhashed("x.y", {}, level="info"), "header"),
    "a line of the envelope": (b'{"event_type":"x","payload":{},"payload_hash":""}\n', "header"),
    "no type": (unhashed("", {}), "header"),
    "a number as session": (unhashed("x.y", {}, 7), "header"),
    "a list as payload": (unhashed("x.y", []), "header"),
    "no time": (unhashed("x.y", {}, ts=None), "ts"),
    "a second boot": (boot("b"), "run"),
    "a second shutdown": (shutdown("a"), "run"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_line_that_breaks_a_rule_is_named(tmp_path, name):
    line, check = BREAKS[name]
    (tmp_path / "x").write_bytes(b"".join([*honest(), line]))
    report = verify(tmp_path / "x")
    assert checks(report) == [(6, check)]
    assert list(report.lines())[-1] == "NOT SOUND"


def test_torn_file_is_called_torn(tmp_path):
    (tmp_path / "x").write_bytes(b"".join(honest()) + b'{"ts": 1')
    report = verify(tmp_path / "x")
    assert (report.torn.size, report.faultless) == (8, False)


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = starter(tmp_path_factory.mktemp("unhashed") / "workspace")
    (made.path / "events.jsonl").write_bytes(b"".join(honest()))
    (made.path / "damaged.jsonl").write_bytes(b"".join([*honest(), BREAKS["a second boot"][0]]))
    return made


def test_verify_says_that_there_is_nothing_to_verify(place):
    ran = place.here("verify", "events.jsonl", status=4)
    first, *rest = ran.out.splitlines()
    assert first.startswith(UNHASHED)
    assert rest[-1] == "nothing to verify"
    assert not any(line.endswith(" sound") or line == "sound" for line in rest)
    told = place.here("verify", "events.jsonl", "--json", status=4).fits("output_verify_v1")
    assert (told["sound"], told["verdict"]["kind"], told["reports"][0]["hashed"]) == (False, "unhashed", False)


def test_verify_calls_a_damaged_file_broken(place):
    assert place.here("verify", "damaged.jsonl", status=4).out.startswith("BROKEN at event 5: run: ")


def test_tree_replay_and_stats_read_it(place):
    assert "spans: 2," in place.here("tree", "events.jsonl#p00-startup", status=0).out
    told = place.here("replay", "events.jsonl#unknown", status=0).out
    assert told.startswith(UNHASHED)
    assert "19:33:20.250 system.boot: " in told
    state = place.here("replay", "events.jsonl#unknown", "--json", status=0).fits("output_replay_v1")
    assert state["verified"] is None
    assert "nothing to verify" in place.here("replay", "events.jsonl#unknown", "--html", status=0).out
    counted = place.here("stats", "events.jsonl", "--json", status=0).fits("output_stats_v1")
    assert (counted["ledgers"], counted["events"], counted["damaged"]) == (2, 5, [])


def test_import_records_that_it_has_no_hashes(place):
    ran = place.here("ledger", "import", "events.jsonl", status=0)
    assert "its form has no hashes" in ran.err
    assert ran.out.splitlines() == [
        "unknown  interrupted  3 events  2025-12-17T19:33:20.250Z",
        "p00-startup  interrupted  2 events  2025-12-17T19:33:20.750Z",
    ]
    rows = {row["id"]: row for row in place.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]}
    assert (rows["unknown"]["format"], rows["unknown"]["verdict"]) == ("seed-002-unhashed", "unhashed")
    assert "seed-002-unhashed, without hashes" in place.here("sessions", status=0).out
    assert [event.type for event in read(f"{place.path}/events.jsonl#p00-startup")] == [
        "memory.version_check", "memory.legacy_detected",
    ]  # fmt: skip
    assert place.here("verify", status=0).out.startswith("unwitnessed")
    assert place.here("verify", "p00-startup", status=4).out.startswith(UNHASHED)


def test_import_of_a_damaged_file_wants_a_reason(place):
    assert "[IMPORT_REFUSED]" in place.here("ledger", "import", "damaged.jsonl", status=4).err
    place.here("ledger", "import", "damaged.jsonl", "--as-is", "all there is", status=0)
    assert {"unsound", "unhashed"} <= {row.get("verdict") for row in place.here("sessions", "--json").json["sessions"]}
