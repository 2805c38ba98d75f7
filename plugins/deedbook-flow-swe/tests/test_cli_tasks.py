"""`deedbook swe add|run|status|resume`, as a person calls them, with answers that are played and real decisions."""

import json
import os
import signal
import subprocess
from threading import Timer

import pytest
from commandline import Place
from pipelines import replace_text
from shop import ABILITIES, FIRST, SECOND, USED, build, check, outline

from deedbook.approvals.keys import KeyRing

NOTE = "Name the old limit in the note."
POLICY = """\
schema_version: v1
id: human-review
kind: review-gating
rules:
  - {match: {phase: check}, then: deny, reason: a person has to look}
default: allow
"""


def played(role, answer, *when):
    """Return a file of answers."""
    return json.dumps({"made_by": "hand", "role": role, "when": [*when], "answer": json.loads(answer)})


@pytest.fixture
def shop(small):
    """Return the example with agents that answer, a review by a person after its last phase, and an approver."""
    place, swe = Place(small), small / ".system/swe"
    [key] = [KeyRing.of(os.environ).create("ada", force=True)]
    place.write(".system/ada.pub", f"{key.public}\n")
    used = {use: name for use, name in USED.items() if use != "git"}
    settings = {
        "schema_version": "v1",
        "profile": "local",
        "profiles": {
            "local": {"models": {"mid": {"provider": "swe-answers", "model": "m", "with": {"folder": "answers"}}}}
        },
        "files": {"roots": ["."]},
        "default": {"write": "allow"},
        "principals": {"ada": {"key": "ada.pub", "roles": ["approver"]}},
        "abilities": {**ABILITIES, "swe/tests": {"summary": "Run tests.", "handler": {"tool": "echo"}}},
    }
    place.write(".system/deedbook.yaml", json.dumps(settings))
    place.write(".system/policies/human-review.yaml", POLICY)
    replace_text(swe, "pipeline.yaml", "{read: swe/read, write: swe/write}", json.dumps(used))
    replace_text(swe, "pipeline.yaml", "escalate_after: 3", "escalate_after: 3\nhuman_triggers: human-review")
    replace_text(swe, "contracts/check.yaml", "passed: PASSED.md", "passed: CLEARED.md")
    text = (swe / "contracts/check.yaml").read_text()
    begin, end = text.index("  - id: unit-tests"), text.index("  - id: no-blocker")
    (swe / "contracts/check.yaml").write_text(text[:begin] + text[end:])
    again = build(FIRST).replace("Nothing was assumed.", "The old limit was 1.")
    for name, text in {
        "outline": played("outliner", outline()), "check": played("checker", check()),
        "first": played("builder", build(FIRST), FIRST), "second": played("builder", build(SECOND), SECOND),
        "again": played("builder", again, FIRST, NOTE),
    }.items():  # fmt: skip
        place.write(f"answers/{name}.yaml", text)
    return place


def begin(shop):
    """Add the task and run it up to the review."""
    added = shop.here("swe", "add", "Raise the limit", "--id", "task-1", "--project", "shop", "--json", status=0)
    assert added.fits("output_swe_add_v1")["task"] == "task-1"
    [row] = shop.here("swe", "status", "--json", status=0).fits("output_swe_status_v1")["tasks"]
    assert (row["state"], row["session"]) == ("QUEUED", None)
    [ran] = shop.here("swe", "run", "--json", status=3).fits("output_swe_run_v1")["tasks"]
    assert (ran["task"], ran["state"]) == ("task-1", "NEEDS_HUMAN")
    [row] = shop.here("swe", "status", "task-1", "--json", status=0).fits("output_swe_status_v1")["tasks"]
    assert (row["state"], row["phase"], row["session"]) == ("BLOCKED_AWAITING_HUMAN", "check", ran["session"])
    assert row["approval"] == shop.request()


def test_rework_with_a_note_reaches_the_phase_and_an_approval_ends_the_task(shop):
    begin(shop)
    ran = shop.here("swe", "resume", "task-1", "--decision", "rework", "--note", NOTE, "--as", "ada", status=3)
    assert "rolled back check build" in ran.err
    note = (shop.path / f"tasks/task-1/build/units/{FIRST}/note.md").read_text()
    assert "The old limit was 1." in note
    status = shop.here("swe", "status", "task-1", status=0).out
    assert f"check: a person says rework: {NOTE}" in status
    assert "waits for an answer: deedbook approvals show" in status
    shop.here("approvals", "approve", shop.request(), "--as", "ada", status=0)
    [ran] = shop.here("swe", "resume", "task-1", "--json", status=0).fits("output_swe_run_v1")["tasks"]
    assert ran["state"] == "COMPLETED"
    assert (shop.path / "tasks/task-1/check/CLEARED.md").exists()
    assert "no task of the queue waits" in shop.here("swe", "run", status=0).out


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_page_of_tasks_that_wait_says_that_one_is_answered_until_it_goes_on(shop, answer):
    begin(shop)
    page = shop.path / "shared/human-review-queue.md"
    before = page.read_text()
    assert "## task-1\n\n- check: " in before
    shop.here("approvals", answer, shop.request(), "--as", "ada", status=0)
    assert page.read_text() == before + "- A person has answered; `deedbook swe run` goes on with the task.\n"
    [ran] = shop.here("swe", "run", "--json").fits("output_swe_run_v1")["tasks"]
    assert "task-1" not in page.read_text()
    assert "rendering_edited" not in (shop.path / f".deedbook/sessions/{ran['session']}/.events.jsonl").read_text()


def test_run_goes_on_with_a_task_that_a_person_has_answered(shop):
    begin(shop)
    waits = shop.here("swe", "run", "--all", status=0)
    assert "task-1 waits for a person" in waits.err
    shop.here("approvals", "approve", shop.request(), "--as", "ada", status=0)
    [row] = shop.here("swe", "status", "--json", status=0).fits("output_swe_status_v1")["tasks"]
    assert (row["state"], row["approval"]) == ("ANSWERED", None)
    assert "waits for an answer" not in shop.here("swe", "status", "task-1", status=0).out
    ran = shop.here("swe", "run", "--all", status=0)
    assert "task-1  COMPLETED" in ran.out
    assert "waits for a person" not in ran.err
    assert "task-1" not in (shop.path / "shared/human-review-queue.md").read_text()


def wait_for(process, text):
    """Return when the output of *process* has *text*."""
    for line in process.stdout:
        if text in line.decode():
            return
    raise AssertionError(f"the process ended without {text!r}")


def test_service_takes_new_and_answered_tasks_until_it_is_stopped(shop):
    (shop.path / "shared").mkdir()
    (shop.path / "shared/queue.md").write_text("- #nothing\n")
    with shop.start_fork("swe", "run", "--all", "--every", "0.1", stderr=subprocess.STDOUT) as process:
        guard = Timer(60, process.kill)
        guard.start()
        wait_for(process, "looks for tasks every 0.1 s")
        wait_for(process, "shared/queue.md: a task needs a title")
        (shop.path / "shared/queue.md").unlink()
        shop.here("swe", "add", "Raise the limit", "--id", "task-1", "--project", "shop", status=0)
        wait_for(process, "task-1 waits for a person")
        shop.here("approvals", "approve", shop.request(), "--as", "ada", status=0)
        wait_for(process, "task-1  COMPLETED")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "stopped; no task is running")
        guard.cancel()
    assert process.returncode == 0


STOP = ("swe", "resume", "task-1", "--decision", "stop", "--note", "Not now.", "--as", "ada")
DENY = ("approvals", "deny", "--note", "Not now.", "--as", "ada")


@pytest.mark.parametrize("denied", [False, True], ids=["decision stop", "approval denied"])
def test_person_who_stops_the_task_halts_it_and_their_note_is_recorded(shop, denied):
    begin(shop)
    if denied:
        shop.here(*DENY, shop.request(), status=0)
    ran = shop.here(*(STOP if not denied else STOP[:3]), status=1)
    assert "HALTED" in ran.err
    assert "Not now." in shop.here("swe", "status", "task-1", status=0).out
    [row] = shop.here("swe", "status", "task-1", "--json", status=0).fits("output_swe_status_v1")["tasks"]
    assert (row["state"], row["approval"]) == ("HALTED", None)
    assert not (shop.path / "tasks/task-1/check/CLEARED.md").exists()
    refused = shop.here("swe", "resume", "task-1")
    assert refused.status not in (0, 70)
    assert "Traceback" not in refused.err


def test_decision_is_the_answer_to_a_question_and_to_nothing_else(shop):
    """The task waits for an approval of another call: a decision would be signed as the result of that call."""
    settings = json.loads((shop.path / ".system/deedbook.yaml").read_text())
    settings["abilities"]["swe/patch"] = {**settings["abilities"]["swe/patch"], "tags": ["approval-gate"]}
    shop.write(".system/deedbook.yaml", json.dumps(settings))
    shop.here("swe", "add", "Raise the limit", "--id", "task-1", "--project", "shop", status=0)
    shop.here("swe", "run", status=3)
    ran = shop.here("swe", "resume", "task-1", "--decision", "go-on", "--as", "ada")
    assert ran.status not in (0, 70)
    assert "task-1 has asked no person for a decision; it waits for another answer: deedbook approvals show" in ran.err
    assert "(swe/patch)" in ran.err
    sessions = (shop.path / ".deedbook/sessions").glob("*/.events.jsonl")
    assert not any(b"call.settled" in each.read_bytes() for each in sessions)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("resume", "task-1", "--note", "x"), "--note and --as belong to --decision"),
        (("resume", "task-2"), "there is no task 'task-2'"),
        (("run", "task-1", "--all"), "name a task, or use --all"),
        (("run", "--every", "5"), "--every needs --all"),
        (("run", "--all", "--every", "5", "--json"), "leave --json out"),
        (("run", "task-2"), "no task 'task-2' waits to be run"),
        (("add", "x", "--file", "none.txt"), "none.txt cannot be read"),
        (("add", "x", "--tags", "http,A B"), "--tags: 'A B' is not accepted; use at most 64 lower-case letters"),
        (("add", "x", "--id", "../x"), "--id: '../x' is not accepted"),
    ],
)
def test_wrong_arguments_are_one_clear_error(shop, args, why):
    ran = shop.here("swe", *args)
    assert ran.status not in (0, 70)
    assert why in ran.err
    assert "Traceback" not in ran.err
