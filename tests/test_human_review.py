"""The three scenarios by which a person reviews the runtime, end to end: the real process, the example's workspace.

A task is looked at before it is made and before it is run; what ran is logged; prompts get hints, and the end of a
session builds and tests.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import attrs
import pytest
from commandline import ROOT, SCHEMAS

from deedbook.format.errors import DeedbookError
from deedbook.format.reader import read
from deedbook_audit.verify import verify_file
from deedbook_serve.client import Runtime

COMMAND = str(Path(sys.executable).parent / "deedbook")


@attrs.frozen
class Site:
    """A copy of the example, served by a process of its own."""

    path: Path
    env: dict

    def command(self, *args):
        ran = subprocess.run([COMMAND, *args], cwd=self.path, env=self.env, capture_output=True, text=True, check=True)
        return ran.stdout

    def file(self, name):
        place = self.path / name
        return place.read_text(encoding="utf-8") if place.exists() else None

    def events(self, session):
        return list(read(self.path / ".deedbook/sessions" / session))

    def of(self, session, kind, **more):
        found = [event for event in self.events(session) if event.type == kind]
        return [event for event in found if all(event.payload.get(name) == value for name, value in more.items())]

    def tasks(self):
        """Return the folders of tasks."""
        place = self.path / ".deedbook/implement"
        return sorted(each.name for each in place.iterdir()) if place.exists() else []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Serve a copy of the example; then stop it as an operator would, and check every ledger."""
    path = tmp_path_factory.mktemp("review") / "site"
    copytree(ROOT / "examples/human-review", path)
    made = Site(path, {**os.environ, "XDG_CONFIG_HOME": str(path.parent / "config")})
    made.command("keys", "new", "ada", "--out", ".system/ada.pub")
    process = subprocess.Popen([COMMAND, "serve"], cwd=path, env=made.env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr.readline().startswith("serving ")
        yield made
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    ledgers = list(path.glob(".deedbook/*/**/.events.jsonl"))
    assert len(ledgers) > 3
    for place in ledgers:
        report = verify_file(place, schemas=SCHEMAS)
        assert report.sound, "\n".join(report.lines())


@pytest.fixture
def ai(site):
    """Give what an AI has: a connection, and a session of the client `writer`."""
    with Runtime(site.path) as runtime:
        session = runtime.open(client="writer")
        yield runtime, session
        if session in [each["session"] for each in runtime.sessions()]:
            runtime.end(session)


def page(path, text, **more):
    return {"path": path, "text": text, "expected_hash": "", "who": "writer", "why": "asked for", **more}


def create(ai, args, ident="make"):
    runtime, session = ai
    (made,) = runtime.actions(session, [{"id": ident, "action": "CREATE_TASK", "ability": "page", "args": args}])
    return made


def run(ai, task):
    runtime, session = ai
    (ran,) = runtime.actions(session, [{"id": "run", "action": "RUN_TASK", "task": task}])
    return ran


def said(signals):
    """Return what each hook signalled."""
    return {each["hook"]: each["value"] for each in signals}


# --- 1. preflight and guard -------------------------------------------------------------------------------------------


def test_unavailable_task_has_a_reason_and_no_id_no_folder_and_no_call(site, ai):
    before = site.tasks()
    made = create(ai, page("notes/plan.md", "# Plan\n"))
    assert made["status"] == "unavailable"
    assert made["error"] == {"code": "TASK_UNAVAILABLE", "message": "notes/plan.md is no page; pages are site/*.md"}
    assert "task" not in made
    assert site.tasks() == before
    session = ai[1]
    (fired,) = site.of(session, "hook.fired", event="PreAbilityCreate")
    assert fired.payload["decision"] == "deny"
    assert not site.of(session, "tool.call")
    assert not site.of(session, "task.created")


def test_input_that_fits_no_schema_is_refused_before_any_hook_is_asked(site, ai):
    made = create(ai, {"path": "site/a.md"})
    assert (made["status"], made["error"]["code"]) == ("failed", "SCHEMA_VIOLATION")
    assert not site.of(ai[1], "hook.fired", event="PreAbilityCreate")


def test_ability_that_is_not_exposed_makes_no_task(site, ai):
    runtime, session = ai
    (made,) = runtime.actions(
        session, [{"id": "make", "action": "CREATE_TASK", "ability": "file-read", "args": {"path": "site/index.md"}}]
    )
    assert (made["status"], "task" in made) == ("denied", False)


def test_available_task_may_come_with_a_warning_and_nothing_is_written_yet(site, ai):
    runtime, session = ai
    known = runtime.call(session, "page-hash", {"path": "site/index.md"})["hash"]
    made = create(ai, page("site/index.md", "# Again\n", expected_hash=known))
    assert made["status"] == "ok"
    warning = "site/index.md exists and would be replaced"
    assert said(made["preflight"]) == {"page-preflight": {"available": True, "warning": warning}}
    assert made["task"] in site.tasks()
    assert site.file("site/index.md") == "# Welcome\n"
    assert not site.of(session, "tool.call", tool_name="page")


def test_guard_denies_with_its_reason_and_nothing_runs(site, ai):
    made = create(ai, page("site/news.md", "# News TODO\n"))
    ran = run(ai, made["task"])
    assert (ran["status"], ran["error"]["code"]) == ("denied", "GATE_DENIED")
    assert "the text is not finished: it says TODO" in ran["error"]["message"]
    assert said(ran["guard"])["page-guard"]["remedy"] == "finish the text and update the task"
    assert site.file("site/news.md") is None
    (denied,) = site.of(ai[1], "tool.denied")
    assert denied.payload["by"]["hook"] == "page-guard"
    assert not site.of(ai[1], "tool.call", tool_name="page")
    runtime, session = ai
    change = {"id": "change", "action": "UPDATE_TASK", "task": made["task"], "args": page("site/news.md", "# News\n")}
    results = runtime.actions(
        session, [change, {"id": "run", "action": "RUN_TASK", "task": made["task"], "after": ["change"]}]
    )
    assert [each["status"] for each in results] == ["ok", "ok"]
    assert site.file("site/news.md") == "# News\n"


def test_guard_demands_a_person_and_the_task_runs_once_after_she_agreed(site, ai):
    runtime, session = ai
    known = runtime.call(session, "page-hash", {"path": "site/index.md"})["hash"]
    made = create(ai, page("site/index.md", "# Hello\n", expected_hash=known))
    waits = run(ai, made["task"])
    assert (waits["status"], waits["error"]["code"]) == ("needs_human", "NEEDS_HUMAN")
    assert said(waits["guard"])["page-guard"]["remedy"] == "wait for a person"
    assert run(ai, made["task"])["approval"] == waits["approval"]  # asked again, it is the same request
    assert site.file("site/index.md") == "# Welcome\n"
    shown = site.command("approvals", "show", waits["approval"])
    assert "will call    tool page" in shown
    assert "asked by     agent:writer" in shown
    site.command("approvals", "approve", waits["approval"], "--as", "ada")
    ran = run(ai, made["task"])
    assert (ran["status"], ran["result"]["path"]) == ("ok", "site/index.md")
    assert site.file("site/index.md") == "# Hello\n"
    again = run(ai, made["task"])
    assert (again["status"], again["result"]) == ("ok", ran["result"])
    assert len(site.of(session, "tool.call", tool_name="page")) == 1
    assert len(site.of(session, "approval.granted")) == 1


# --- 2. after the call ------------------------------------------------------------------------------------------------


def test_hook_after_the_call_logs_and_says_nothing_to_the_ai(site, ai):
    made = create(ai, page("site/about.md", "# About us\n"))
    ran = run(ai, made["task"])
    assert ran["status"] == "ok"
    assert "PostToolUse" not in str(ran)
    assert set(said(ran["guard"])) == {"page-guard"}
    assert [line.split(" ", 1)[1] for line in site.file("reports/pages.log").splitlines()][
        -1
    ] == "site/about.md 11 bytes"
    session = ai[1]
    (call,) = site.of(session, "tool.call", tool_name="page")
    (after,) = site.of(session, "hook.fired", event="PostToolUse")
    (result,) = [event for event in site.of(session, "tool.result") if event.parent == call.span]
    assert after.parent == call.span
    assert result.seq < after.seq
    assert after.payload["asked"][0]["hook"] == "page-log"
    rendered = site.file(f".deedbook/implement/{made['task']}/tool_call.md")
    assert "succeeded" in rendered
    assert "site/about.md" in rendered


def test_denied_task_is_not_logged(site, ai):
    before = site.file("reports/pages.log")
    made = create(ai, page("site/never.md", "# Never TODO\n"))
    assert run(ai, made["task"])["status"] == "denied"
    assert site.file("reports/pages.log") == before


# --- 3. the session ---------------------------------------------------------------------------------------------------


def test_prompt_gets_hints_and_what_is_done_for_it_hangs_under_it(site, ai):
    runtime, session = ai
    taken = runtime.submit(session, "Please write a page about us")
    assert taken["prompt"] == "Please write a page about us"
    assert said(taken["signals"]["normalized_intent"]) == {"routing": "write a page"}
    hint = said(taken["signals"]["routing_hint"])["routing"]
    assert [each["id"] for each in hint["abilities"]] == ["page", "page-hash"]
    assert hint["abilities"][0]["reason"]
    made = create(ai, page("site/team.md", "# The team\n"))
    (message,) = site.of(session, "user.message")
    (fired,) = site.of(session, "hook.fired", event="UserPromptSubmit")
    assert fired.seq < message.seq
    above = {event.span: event.parent for event in site.events(session)}
    (created,) = site.of(session, "task.created")
    line = [created.span]
    while above[line[-1]]:
        line.append(above[line[-1]])
    assert message.span in line
    assert made["task"] == created.payload["task"]


def test_end_of_a_session_builds_and_tests_and_changes_nothing_of_it(site, ai):
    runtime, session = ai
    made = create(ai, page("site/untitled.md", "no title\n"))
    assert run(ai, made["task"])["status"] == "ok"
    (ended,) = runtime.actions(session, [{"id": "end", "action": "END_SESSION"}])
    assert ended["status"] == "ok"
    assert "untitled.md has no title" in site.file("reports/build.txt")
    *_, stop, end = site.events(session)
    assert (stop.type, stop.payload["event"], end.type) == ("hook.fired", "SessionStop", "session.end")
    assert "untitled.md has no title" in stop.payload["asked"][0]["reason"]
    assert end.payload["ok"] is True
    with pytest.raises(DeedbookError) as caught:
        runtime.call(session, "page-hash", {"path": "site/index.md"})
    assert caught.value.error.code in ("SESSION_NOT_FOUND", "SESSION_ENDED")


def test_story_is_told_afterwards_and_says_whose_it_was(site, ai):
    runtime, session = ai
    runtime.end(session)
    assert "session.end" in site.command("replay", session)
    found = json.loads(site.command("processes", "--json"))
    (process,) = [each for each in found["processes"] if each["state"] == "running"]
    runs = [run["run_id"] for run in process["runs"] for each in run["sessions"] if each["session_id"] == session]
    assert len(runs) == 1
