"""export workspace --as seed-002: what seed 002's programs find in it, by readers written from its protocols alone."""

import json
import re
from collections import Counter
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import ledgers
import pytest
from commandline import SCHEMAS, Place, starter
from ledgers import Book

from deedbook import open_kernel
from deedbook_audit.upcasting.reader import read
from deedbook_audit.verify import verify_file
from deedbook_inspect.system_export import export_runs

A, B, C, D = (letter * 32 for letter in "abcd")
CLOSED = "closed"


def workspace(*steps):
    """Return a workspace ledger: each step is a process that boots, or one that shuts down with a reason."""
    book = Book(ledgers.OWN, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    boots = {}
    for step in steps:
        if isinstance(step, str):
            told = {"process_id": step, "kind": "cold", "pid": 1, "kernel": "0.1.0", "charter": ledgers.HASH}
            boots[step] = book.add("system.boot", told, parent=root)
        else:
            process, reason = step
            book.add("system.shutdown", {"process_id": process, "reason": reason}, parent=boots[process])
    return book


def exported(tmp_path, *steps, alive=()):
    place = workspace(*steps).write(tmp_path)
    return [json.loads(line) for line in export_runs(read(place), system=ledgers.OWN, alive=alive)]


# --- readers of that form ---------------------------------------------------------------------------------------------


def runs_found(rows):
    """Find runs as the seed's observability does: a run starts with a boot and finishes with a shutdown."""
    names = {"system.boot": "run_started", "system.shutdown": "run_finished"}
    return [
        {"event_type": names[row["event_type"]], "run_id": row["payload"]["run_id"], "timestamp": row["ts"]}
        for row in rows
        if row["event_type"] in names
    ]


def daily(found, day):
    """Summarise runs as the seed's daily aggregation does, which reads a file once from its beginning."""
    started, took, statuses = {}, [], Counter()
    for event in found:
        at = datetime.fromisoformat(event["timestamp"])
        if at.date().isoformat() != day:
            continue
        assert re.fullmatch("run_[0-9a-f]{32}", event["run_id"])
        if event["event_type"] == "run_started":
            started[event["run_id"]] = at
        else:
            statuses["success"] += 1
            took.append((at - started[event["run_id"]]).total_seconds() * 1000)
    return {"runs_total": len(started), "runs_by_status": dict(statuses), "run_total_ms": took}


def last_run(rows):
    """Say how the last run ended, as the next boot of the seed's system asks."""
    boots = [row["payload"]["run_id"] for row in rows if row["event_type"] == "system.boot"]
    ended = {row["payload"]["run_id"] for row in rows if row["event_type"] == "system.shutdown"}
    return "no_boot_found" if not boots else "complete" if boots[-1] in ended else "incomplete"


def breaches(rows):
    """Return which laws of the seed's system process are broken: of ids, of pairs, of recovery, of the envelope."""
    faults, booted, ended, before = [], set(), set(), None
    for row in rows:
        payload = row["payload"]
        spelled = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        faults += [] if sha256(spelled.encode()).hexdigest() == row["payload_hash"] else ["hash"]
        faults += [] if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["ts"]) else ["ts"]
        for name, prefix in (("system_id", "sys_"), ("process_id", "proc_"), ("run_id", "run_")):
            faults += [] if re.fullmatch(f"{prefix}[0-9a-f]{{32}}", payload.get(name, "")) else [name]
        faults += [] if row["trace_id"] == payload["run_id"] else ["trace"]
        faults += ["session"] if row["session_id"] in ("", "unknown") else []
        faults += [] if payload.get("_actor") == "runtime" else ["actor"]
        faults += ["meta"] if {"trace_id", "span_id", "parent_span_id"} & payload.keys() else []
        run = payload["run_id"]
        if row["event_type"] == "system.boot":
            faults += ["two boots"] if run in booted else []
            booted.add(run)
            faults += [] if re.fullmatch("cold|warm|recover", payload["boot_mode"]) else ["mode"]
            faults += [] if payload["started_at"] == row["ts"] else ["started"]
            lost = before is not None and before not in ended
            faults += [] if (payload["boot_mode"] == "recover") is lost else ["recover"]
            faults += [] if payload.get("recovered_from_run_id") == (before if lost else None) else ["recovered"]
            before = run
        else:
            faults += ["two shutdowns"] if run in ended or run not in booted else []
            faults += [] if payload["exit_reason"] else ["reason"]
            ended.add(run)
    return faults


# --- laws -------------------------------------------------------------------------------------------------------------

LIVES = {
    "none": (),
    "one that closed": (A, (A, CLOSED)),
    "one that died": (A,),
    "one after another": (A, (A, CLOSED), B, (B, "interrupted"), C, (C, CLOSED)),
    "one died between": (A, (A, CLOSED), B, C, (C, CLOSED)),
    "two died": (A, B, C, (C, CLOSED)),
    "beside each other": (A, B, (A, CLOSED), C, (C, CLOSED), (B, CLOSED)),
    "beside one that died": (A, B, C, (A, CLOSED), (C, CLOSED)),
}


@pytest.mark.parametrize("name", LIVES)
def test_runs_keep_the_laws_of_the_seeds_system_process(tmp_path, name):
    rows = exported(tmp_path, *LIVES[name])
    assert breaches(rows) == []
    boots = [step for step in LIVES[name] if isinstance(step, str)]
    assert sorted(row["payload"]["process_id"] for row in rows if row["event_type"] == "system.boot") == [
        f"proc_{process}" for process in boots
    ]
    assert len(rows) == len(LIVES[name])


@pytest.mark.parametrize("name", LIVES)
def test_observability_finds_every_run(tmp_path, name):
    rows = exported(tmp_path, *LIVES[name])
    found = daily(runs_found(rows), rows[0]["ts"][:10] if rows else "2026-01-01")
    boots = sum(isinstance(step, str) for step in LIVES[name])
    ended = len(LIVES[name]) - boots
    assert (found["runs_total"], found["runs_by_status"].get("success", 0)) == (boots, ended)
    assert len(found["run_total_ms"]) == ended
    assert min(found["run_total_ms"], default=0) >= 0


@pytest.mark.parametrize("name", LIVES)
def test_export_of_the_workspace_verifies_as_envelope_1_0(tmp_path, name):
    lines = export_runs(read(workspace(*LIVES[name]).write(tmp_path)), system=ledgers.OWN)
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
    if not LIVES[name]:
        return
    report = verify_file(tmp_path / "events.jsonl", schemas=SCHEMAS)
    assert (report.sound, report.format, report.session_id) == (True, "1.0", "system")
    whole = all((step, CLOSED) in LIVES[name] for step in LIVES[name] if isinstance(step, str))
    if whole:
        assert report.state == "ended"
    assert not any("root" in str(failure) for failure in report.structure.failures)


def test_modes_are_those_of_the_seed(tmp_path):
    rows = exported(tmp_path, A, (A, CLOSED), B, C, (C, CLOSED), D, (D, CLOSED))
    boots = [row["payload"] for row in rows if row["event_type"] == "system.boot"]
    assert [boot["boot_mode"] for boot in boots] == ["cold", "warm", "recover", "warm"]
    assert [boot.get("recovered_from_run_id") for boot in boots] == [None, None, f"run_{B}", None]


def test_process_that_still_runs_comes_last_and_is_not_recovered_from(tmp_path):
    rows = exported(tmp_path, A, B, (B, CLOSED), C, (C, CLOSED), alive={A})
    assert [(row["event_type"], row["payload"]["run_id"]) for row in rows][-1] == ("system.boot", f"run_{A}")
    assert [row["payload"].get("boot_mode") for row in rows if "boot_mode" in row["payload"]] == [
        "cold",
        "warm",
        "warm",
    ]
    assert breaches(rows) == []
    assert last_run(rows) == "incomplete"


def test_shutdown_hangs_under_its_boot_and_says_why(tmp_path):
    boot, shutdown = exported(tmp_path, A, (A, "interrupted"))
    assert shutdown["payload"]["_parent_span_id"] == boot["payload"]["_span_id"]
    assert shutdown["payload"]["exit_reason"] == "interrupted"


def test_second_shutdown_and_one_without_a_boot_are_left_out(tmp_path):
    book = workspace(A, (A, CLOSED), (A, "again"))
    book.add("system.shutdown", {"process_id": B, "reason": "x"}, parent="1" * 16)
    rows = [json.loads(line) for line in export_runs(read(book.write(tmp_path)), system=ledgers.OWN)]
    assert breaches(rows) == []
    assert len(rows) == 2


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace in which two processes called an ability each."""
    made = starter(tmp_path_factory.mktemp("system") / "workspace")
    for text in ("one", "two"):
        made.here("call", "echo", "--args", json.dumps({"text": text}), status=0)
    return made


def rows_of(place: Place, *names: str) -> list[dict]:
    return [
        json.loads(line)
        for name in names
        for line in place.here("export", name, "--as", "seed-002", status=0).out.splitlines()
    ]


def test_export_of_the_workspace_is_its_runs(place):
    rows = rows_of(place, "workspace")
    assert breaches(rows) == []
    assert [row["event_type"] for row in rows] == ["system.boot", "system.shutdown"] * 2
    assert last_run(rows) == "complete"
    own = (place.path / ".deedbook/workspace/.events.jsonl").read_bytes().splitlines()
    (system,) = {row["payload"]["system_id"] for row in rows}
    assert system == f"sys_{json.loads(own[0])['session_id'].removeprefix('ws-')}"
    processes = place.here("processes", "--json", status=0).json["processes"]
    assert [row["payload"]["process_id"] for row in rows[::2]] == [f"proc_{each['process_id']}" for each in processes]


def test_calls_of_a_session_name_the_run_that_they_belong_to(place):
    runs = {row["payload"]["run_id"] for row in rows_of(place, "workspace")}
    named = []
    for name in place.sessions():
        rows = rows_of(place, name)
        (run,) = {row["payload"]["run_id"] for row in rows}
        named.append(run)
        calls = [row for row in rows if row["event_type"] in ("tool.call", "tool.result")]
        assert [row["payload"]["tool_name"] for row in calls] == ["echo", "echo"]
        assert all(row["session_id"] == name for row in calls)
    assert sorted(named) == sorted(runs)


def test_sessions_and_runs_in_one_file_are_still_verified(place, tmp_path):
    lines = [place.here("export", name, "--as", "seed-002").out for name in (*place.sessions(), "workspace")]
    (tmp_path / "all.jsonl").write_text("".join(lines), encoding="utf-8")
    assert place.here("verify", str(tmp_path / "all.jsonl"), status=0).out.endswith("sound\n")
    assert "system.shutdown" in place.here("tree", f"{tmp_path}/all.jsonl#system", status=0).out
    assert "system.boot" in place.here("replay", f"{tmp_path}/all.jsonl#system", status=0).out


def test_process_that_runs_now_is_in_the_export(place):
    with open_kernel(place.path) as kernel, kernel.session():
        rows = rows_of(place, "workspace")
    assert breaches(rows) == []
    assert last_run(rows) == "incomplete"
    assert last_run(rows_of(place, "workspace")) == "complete"


def test_copy_of_a_workspace_ledger_is_exported_by_itself(place, tmp_path):
    (tmp_path / "copy.jsonl").write_bytes((place.path / ".deedbook/workspace/.events.jsonl").read_bytes())
    copied = Place(tmp_path).here("export", str(tmp_path / "copy.jsonl"), "--as", "seed-002", status=0).out
    assert copied == place.here("export", "workspace", "--as", "seed-002").out


def test_session_elsewhere_names_no_run(place, tmp_path):
    name = place.sessions()[0]
    copy = Path(tmp_path / "events.jsonl")
    copy.write_bytes(place.ledger(name).read_bytes())
    rows = [json.loads(line) for line in Place(tmp_path).here("export", str(copy), status=0).out.splitlines()]
    assert not any("run_id" in row["payload"] for row in rows)
