"""What a verifier finds about tasks, whoever wrote the ledger and however well its hashes were made."""

import json

import ledgers
import pytest

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))
OTHER = f"t-{'ee' * 16}"


def findings(book, tmp_path):
    workspace = json.loads(book.lines[0])["event_type"] == "ledger.created"
    path = tmp_path / ".events.jsonl"
    path.write_bytes(b"".join(ledgers.forge(book.lines, genesis="workspace" if workspace else "session")))
    report = verify_file(path, schemas=SCHEMAS)
    return [finding.found for finding in report.structure.failures if finding.check == "task"]


def changed(book, event_type, which=0, **members):
    """Return *book* with other members in one payload."""
    places = [at for at, line in enumerate(book.lines) if json.loads(line)["event_type"] == event_type]
    head, _, payload = book.lines[places[which]].partition(b',"payload":')
    said = {**json.loads(payload[:-2]), **members}
    book.lines[places[which]] = head + b',"payload":' + ledgers.canonical(said) + b"}\n"
    return book


def test_honest_ledgers_have_nothing_wrong(tmp_path):
    assert findings(ledgers.tasked(), tmp_path) == []
    assert findings(ledgers.chores(), tmp_path) == []


@pytest.mark.parametrize(
    ("event_type", "which", "members", "why"),
    [
        ("task.created", 1, {"task": f"t-{'a1' * 16}"}, "made a second time"),
        ("task.started", 0, {"task": OTHER}, "never made"),
        ("task.started", 0, {"run": 7}, "counts run 7; it is run 1"),
        ("task.started", 1, {"run": 1}, "counts run 1; it is run 2"),
        ("task.ended", 0, {"run": 2}, "counts run 2; it is run 1"),
        ("task.ended", 0, {"state": "succeeded"}, "task.updated of a task that is succeeded"),
        ("task.ended", 1, {"state": "unknown"}, "task.deleted of a task that is unknown"),
        ("task.decided", 0, {"task": f"t-{'a1' * 16}"}, "task.decided of a task that is deleted"),
        ("task.deleted", 0, {"task": f"t-{'a2' * 16}"}, "never made"),
    ],
)
def test_life_that_no_task_has_is_found_in_the_workspace_ledger(tmp_path, event_type, which, members, why):
    found = findings(changed(ledgers.chores(), event_type, which, **members), tmp_path)
    assert any(why in each for each in found), found


def test_event_of_a_task_under_another_event_is_found(tmp_path):
    book = ledgers.chores()
    root = f"{1:016x}"
    said = ledgers.task(f"t-{'a2' * 16}", f"{7:016x}", run=2, charter=ledgers.HASH)
    span = book.add("task.started", said, parent=root, **ledgers.USER)
    ended = {**ledgers.came_to("failed", code="NO", message="no"), "run": 2}
    book.add("task.ended", ledgers.task(f"t-{'a2' * 16}", f"{8:016x}", **ended), parent=root, **ledgers.USER)
    found = findings(book, tmp_path)
    assert span
    assert found == [
        "task.started under another event than its making",
        "task.ended under another event than the run that it ends",
    ]


@pytest.mark.parametrize(
    ("event_type", "members", "why"),
    [
        ("task.created", {"span": "0" * 15 + "9"}, "names another event as its own"),
        ("task.ended", {"task": OTHER}, "under no task.started of the same run"),
        ("task.ended", {"run": 2}, "under no task.started of the same run"),
    ],
)
def test_changed_event_of_a_task_is_found_in_a_session(tmp_path, event_type, members, why):
    found = findings(changed(ledgers.tasked(), event_type, **members), tmp_path)
    assert any(why in each for each in found), found


def test_second_call_and_second_end_under_one_run_are_found(tmp_path):
    book = ledgers.tasked()
    end = book.lines.pop()
    run = next(json.loads(line) for line in book.lines if json.loads(line)["event_type"] == "task.started")
    call = {"args": {"text": "again"}, "tool_name": "echo"}
    span = book.add("tool.call", call, parent=run["span_id"], **ledgers.USER)
    book.add("tool.result", {"result": {}, "tool_name": "echo"}, parent=span, **ledgers.TOOL)
    again = ledgers.task(run["payload"]["task"], "", **ledgers.came_to("succeeded"))
    again["span"] = f"{len(book.lines) + 1:016x}"
    book.add("task.ended", again, parent=run["span_id"], principal="local")
    book.lines.append(end)
    assert findings(book, tmp_path) == ["a second call under one run of a task", "a second end of one run"]


def test_what_is_sealed_is_not_compared(tmp_path):
    sealed = {"$sealed": "ab" * 32, "size": 9}
    book = changed(ledgers.chores(), "task.ended", 1, state=sealed, run=sealed)
    assert all("counts run" not in each for each in findings(book, tmp_path))
    assert findings(changed(ledgers.tasked(), "task.created", span=sealed), tmp_path) == []
