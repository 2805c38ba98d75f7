"""`deedbook context`: a context at a glance, bundles that are saved and checked, and what differs."""

import json
import re

import pytest
from cases import for_each
from commandline import Place

INVENTORY = """\
---
name: inventory
description: Takes the inventory.
allowed-tools: [file-find, file-count]
triggers: [inventory]
metadata:
  deedbook:
    steps:
      - {id: find, description: Find the files, ability: file-find, args: {pattern: "*.txt"}, outputs: [paths]}
      - {id: count, description: Count lines, ability: file-count, inputs: {paths: {step: find, pointer: /paths}}}
      - {id: look, description: Look again, ability: file-find, args: {pattern: "*.md"}, depends_on: [find]}
---
# Inventory
"""
PLANNED = """\
schema_version: v1
id: planned
summary: Plan and run.
handler: {flow: plan-and-run}
"""


@pytest.fixture
def planned(place: Place) -> Place:
    """Give the starter with a flow that plans from skills, and no role that leads."""
    place.system("registry/high-level/planned.yaml", PLANNED)
    place.system("skills/inventory/SKILL.md", INVENTORY)
    settings = place.path / ".system/deedbook.yaml"
    settings.write_text(re.sub(r"flow: review", "flow: planned", settings.read_text()))
    (place.path / ".system/agents/lead.md").unlink()
    return place


def run(place: Place, prompt: str = "take the inventory") -> str:
    return place.here("run", prompt, status=0).session


def rows(out: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in out.splitlines()]


def test_show_has_the_state_the_plan_and_what_happened(planned: Place):
    session = run(planned)
    lines = planned.here("context", "show", session, status=0).out.splitlines()
    assert re.fullmatch(f"session {session}, run [0-9a-f]{{16}}", lines[0])
    shown = [line.split(None, 1) for line in lines[1:]]
    assert ["state", "COMPLETED"] in shown
    assert ["task", "take the inventory"] in shown
    assert ["plan", "3 steps, 2 tools"] in shown
    assert ["policy", "ALLOW"] in shown
    groups = [row for row in rows("\n".join(lines)) if row[0].startswith("group")]
    assert [(row[0], row[1], row[2].split()[0]) for row in groups] == [
        ("group 1", "completed", "inventory/find"), ("group 2", "completed", "inventory/count"),
        ("group 2", "completed", "inventory/look"),
    ]  # fmt: skip


def test_show_as_json_fits_its_schema(planned: Place):
    session = run(planned)
    told = planned.here("context", "show", session, "--json", status=0).fits("output_context_v1")
    assert (told["session"], told["context"]["state"], told["waits_for"]) == (session, "COMPLETED", None)
    assert told["plan_summary"]["parallel_groups"] == [["inventory/find"], ["inventory/count", "inventory/look"]]
    assert told["runs"] == [{"run": told["run"], "parent": None, "state": "COMPLETED"}]


def test_run_that_failed_shows_its_reason_and_its_decisions(planned: Place):
    planned.system(
        "policies/closed.yaml",
        "schema_version: v1\nid: closed\nkind: rules\ndefault: deny\nmatch: {abilities: [file-count]}\nrules: []\n",
    )
    ran = planned.run("run", "take the inventory")
    out = planned.here("context", "show", ran.session, status=0).out
    assert "FAILED" in out
    assert [row[0] for row in rows(out) if row[0] in ("decision", "reason")] == ["decision", "reason"]


def test_run_is_chosen_by_the_beginning_of_its_span(planned: Place):
    session = run(planned)
    span = planned.here("context", "show", session, "--json", status=0).json["run"]
    assert planned.here("context", "show", session, "--run", span[:8], status=0).out
    ran = planned.here("context", "show", session, "--run", "zz", status=2)
    assert "0 runs of session" in ran.err


def test_session_without_a_context_says_so(planned: Place):
    session = planned.run("call", "echo", "--args", '{"text":"hi"}', status=0).session
    ran = planned.here("context", "show", session)
    assert ran.status != 0
    assert "has no run with a context" in ran.err


def test_control_characters_of_a_prompt_are_escaped(planned: Place):
    session = run(planned, "take the inventory \x1b[31mred")
    for option in ([], ["--json"]):
        out = planned.here("context", "show", session, *option, status=0).out
        assert "red" in out
        assert "\x1b" not in out


def test_sealed_members_of_a_context_are_shown_as_sealed_and_saved_so(planned: Place):
    session = run(planned, "take the inventory for 4111 1111 1111 1111")
    assert "4111 1111" not in planned.here("context", "show", session, status=0).out
    planned.here("context", "save", session, "run.json", status=0)
    assert "4111 1111" not in (planned.path / "run.json").read_text()
    assert planned.here("context", "load", "run.json", status=0).out


# --- bundles ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(planned: Place) -> tuple[Place, str]:
    """Give a session whose context is saved."""
    session = run(planned)
    planned.here("context", "save", session, "run.json", status=0)
    return planned, session


def test_saved_bundle_is_checked_and_shown(saved: tuple[Place, str]):
    place, session = saved
    out = place.here("context", "load", "run.json", status=0).out
    assert out == place.here("context", "show", session, status=0).out
    told = place.here("context", "load", "run.json", "--json", status=0).fits("output_context_v1")
    assert told["bundle"] == "run.json"


def test_save_does_not_replace_a_file(saved: tuple[Place, str]):
    place, session = saved
    assert "run.json exists" in place.here("context", "save", session, "run.json", status=2).err
    (place.path / "link.json").symlink_to("nowhere.json")
    assert "exists" in place.here("context", "save", session, "link.json", status=2).err


def change(bundle: str, **members: object) -> str:
    made = json.loads(bundle)
    made["context"] |= members
    return json.dumps(made, separators=(",", ":"), sort_keys=True)


HOSTILE = {
    "empty": lambda _: "",
    "cut": lambda text: text[: len(text) // 2],
    "another state": lambda text: change(text, state="FAILED"),
    "another run": lambda text: change(text, run="f" * 16),
    "another head": lambda text: json.dumps({**json.loads(text), "head": "0" * 64}),
    "a list": lambda _: "[]",
    "no context": lambda _: '{"schema_version":"v2","head":"0"}',
    "a context that is none": lambda _: '{"schema_version":"v2","head":"0","context":[]}',
    "a run that is no text": lambda _: '{"schema_version":"v2","head":"0","context":{"run":[]}}',
    "older": lambda text: text.replace('"schema_version":"v2"', '"schema_version":"v1"', 1),
    "deep": lambda _: "[" * 100_000,
    "a number out of range": lambda _: '{"schema_version":"v2","head":1e999,"context":{}}',
    "two members of one name": lambda text: text.replace("{", '{"head":"x",', 1),
    "control characters": lambda text: change(text, state="\x1b[31m"),
}


@for_each("spoil", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bundle_is_one_error_without_a_traceback(saved: tuple[Place, str], spoil):
    place, _ = saved
    (place.path / "spoiled.json").write_text(spoil((place.path / "run.json").read_text()))
    ran = place.here("context", "load", "spoiled.json")
    assert ran.status not in (0, 70)
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err


def test_bundle_that_is_not_utf8_or_no_file_is_refused(saved: tuple[Place, str]):
    place, _ = saved
    (place.path / "run.json").write_bytes(b'{"\xff": 1}')
    assert place.here("context", "load", "run.json").err.startswith("error: ")
    assert "is no file" in place.here("context", "load", "missing.json", status=2).err
    assert "is no file" in place.here("context", "load", ".system", status=2).err


def test_bundle_of_another_session_is_refused(saved: tuple[Place, str]):
    place, session = saved
    other = run(place)
    ran = place.here("context", "load", "run.json", "--session", other, status=2)
    assert f"run.json is of session {session}" in ran.err


def test_ledger_that_was_edited_is_refused(saved: tuple[Place, str]):
    place, session = saved
    ledger = place.path / ".deedbook/sessions" / session / ".events.jsonl"
    ledger.write_text(ledger.read_text().replace("take the inventory", "take the inventorY"))
    for command in (("show", session), ("load", "run.json")):
        ran = place.here("context", *command)
        assert "LEDGER_UNSOUND" in ran.err
        assert ran.out == ""


WRONG = {
    "unknown session": (("show", "nosuch"), 2, "[SESSION_NOT_FOUND]"),
    "no session": (("show",), 2, "Missing argument 'SESSION'"),
    "empty session": (("show", ""), 2, "it is empty"),
    "save of an unknown session": (("save", "nosuch", "new.json"), 2, "[SESSION_NOT_FOUND]"),
    "save into a missing folder": (("save", "last", "nowhere/new.json"), 2, "nowhere is no folder"),
    "save over a folder": (("save", "last", ".system"), 2, ".system exists"),
    "save below a file": (("save", "last", "run.json/new.json"), 2, "run.json is no folder"),
    "save for a person that records nothing": (("save", "last", "new.json", "--as", "x"), 2, "--as belongs to"),
    "save of a run that does not exist": (("save", "last", "new.json", "--run", "zz"), 2, "0 runs of session"),
    "hand-over of a session that ended": (("save", "last", "new.json", "--hand-over"), 1, "is ended"),
    "load of nothing": (("load",), 2, "Missing argument 'BUNDLE'"),
    "load of a missing file": (("load", "missing.json"), 2, "is no file"),
    "load of a folder": (("load", ".system"), 2, "is no file"),
    "load of broken JSON": (("load", "broken.json"), 4, "[BUNDLE_REFUSED]"),
    "load of a huge file": (("load", "huge.json"), 1, "at most 67108864 are read"),
    "load of a link": (("load", "link.json"), 1, "[PATH_REFUSED]"),
    "load of a bundle of another session": (("load", "run.json", "--session", "x"), 2, "is of session"),
    "take-back of a session that stayed": (("load", "run.json", "--take-back"), 4, "[BUNDLE_REFUSED]"),
    "check for a person": (("load", "run.json", "--check", "--as", "x"), 2, "--check records nothing"),
    "load for a person that records nothing": (("load", "run.json", "--as", "x"), 2, "leave out --as"),
    "diff with nothing": (("diff", "last"), 2, "name what to compare with"),
    "diff with an unknown session": (("diff", "last", "nosuch"), 2, "[SESSION_NOT_FOUND]"),
    "diff with two things": (("diff", "last", "last", "--bundle", "run.json"), 2, "name what to compare with"),
    "diff with a missing file": (("diff", "last", "--bundle", "missing.json"), 2, "is no file"),
    "diff with a folder": (("diff", "last", "--bundle", ".system"), 2, "is no file"),
    "diff with broken JSON": (("diff", "last", "--bundle", "broken.json"), 4, "[BUNDLE_REFUSED]"),
    "diff with a huge file": (("diff", "last", "--bundle", "huge.json"), 1, "at most 67108864 are read"),
}


def test_wrong_use_is_one_error_that_says_what_to_do(saved: tuple[Place, str]):
    place, _ = saved
    place.write("broken.json", '{"a":')
    (place.path / "link.json").symlink_to("run.json")
    with (place.path / "huge.json").open("wb") as file:
        file.truncate(10 * 1024**3)
    for name, (args, status, why) in WRONG.items():
        ran = place.here("context", *args)
        assert (ran.status, ran.out) == (status, ""), name
        assert ran.err.startswith("error: "), name
        assert ran.err.count("error: ") == 1, name
        assert why in ran.err, name
    assert not (place.path / "new.json").exists()


def test_run_that_is_not_finished_is_shown_and_saved_as_it_is(planned: Place):
    session = run(planned)
    ledger = planned.path / ".deedbook/sessions" / session / ".events.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    executing = next(at for at, line in enumerate(lines) if b'"context.executing"' in line)
    ledger.write_bytes(b"".join(lines[: executing + 1]))
    assert ["state", "EXECUTING"] in rows(planned.here("context", "show", session, status=0).out)
    planned.here("context", "save", session, "run.json", status=0)
    assert ["state", "EXECUTING"] in rows(planned.here("context", "load", "run.json", status=0).out)
    ran = planned.here("context", "save", session, "more.json", "--hand-over", status=1)
    assert "is interrupted; only a suspended one is handed over" in ran.err


# --- diff -------------------------------------------------------------------------------------------------------------


def test_context_equals_its_own_bundle(saved: tuple[Place, str]):
    place, session = saved
    assert place.here("context", "diff", session, "--bundle", "run.json", status=0).out == ""


def test_diff_names_what_differs(planned: Place):
    one, other = run(planned), run(planned, "take the inventory again")
    ran = planned.here("context", "diff", one, other, status=1)
    assert ["/task/prompt", "take the inventory", "take the inventory again"] in rows(ran.out)
    told = planned.here("context", "diff", one, other, "--json", status=1).fits("output_context_diff_v1")
    assert {"/task/prompt"} <= {each["pointer"] for each in told["differences"]}
    assert planned.here("context", "diff", one, status=2).err
    assert planned.here("context", "diff", one, other, "--bundle", "x", status=2).err
