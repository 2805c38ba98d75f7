"""``deedbook tasks``: what people and scripts do with tasks, and what they are told."""

import json
import re

import pytest
from commandline import starter

from deedbook.format.files import Folder


@pytest.fixture
def place(tmp_path):
    return starter(tmp_path / "w")


def made(place, *more):
    ran = place.here("tasks", "create", "echo", "--args", '{"text": "hi"}', *more, status=0)
    return ran.out.strip()


def test_task_is_made_listed_shown_run_and_deleted(place):
    assert place.here("tasks", status=0).out == "no tasks\n"
    assert place.here("tasks", "list", "--json", status=0).fits("output_tasks_v1")["tasks"] == []
    task = made(place)
    assert re.fullmatch(r"t-[0-9a-f]{32}", task)
    assert task in place.here("tasks", status=0).out
    assert json.loads(place.here("tasks", "run", task[:8], status=0).out) == {"text": "hi"}
    again = place.here("tasks", "run", "last", status=0)
    assert (json.loads(again.out), "it ran before" in again.err) == ({"text": "hi"}, True)
    shown = place.here("tasks", "show", "last", "--json", status=0).fits("output_task_v1")["task"]
    assert (shown["state"], shown["result"], shown["runs"]) == ("succeeded", {"text": "hi"}, 1)
    assert place.here("tasks", "show", "last", status=0).out.startswith(f'---\ntask: "{task}"\n')
    assert place.here("tasks", "delete", task, status=0).out == f"{task} deleted\n"
    assert place.here("tasks", "--json", status=0).fits("output_tasks_v1")["tasks"] == []
    assert [row["state"] for row in place.here("tasks", "list", "--all", "--json").json["tasks"]] == ["deleted"]


def test_answers_in_json_fit_their_schemas(place):
    told = place.here("tasks", "create", "echo", "--args", '{"text": "hi"}', "--json", status=0).fits("output_task_v1")
    task = told["task"]["id"]
    told = place.here("tasks", "update", task, "--args", '{"text": "ho"}', "--json", status=0).fits("output_task_v1")
    assert told["task"]["args"] == {"text": "ho"}
    told = place.here("tasks", "run", task, "--json", status=0).fits("output_task_v1")
    assert (told["result"], told["task"]["state"]) == ({"text": "ho"}, "succeeded")
    refused = place.here("tasks", "update", task, "--json", status=1).fits("output_task_v1")
    assert refused["error"]["code"] == "TASK_ENDED"
    place.here("tasks", "show", "nothing", "--json", status=2).fits("output_error_v1")
    place.here("tasks", "delete", task, "--json", status=0).fits("output_task_v1")


def test_task_runs_under_the_profile_that_it_was_made_with(place):
    place.configure("profiles:\n", "profiles:\n  other: {durability: os}\n")
    task = made(place, "--profile", "other")
    assert json.loads(place.here("tasks", "run", task, status=0).out) == {"text": "hi"}
    task = made(place)
    assert "TASK_CHARTER_CHANGED" in place.here("tasks", "run", task, "--profile", "other", status=1).err


def test_arguments_that_do_not_fit_are_said_with_the_ability_that_they_are_for(place):
    said = place.here("tasks", "create", "echo", "--args", '{"txt": "hi"}', status=1).err
    assert "error: the arguments of echo: $" in said
    assert "SCHEMA_VIOLATION" in said


def test_key_brings_the_same_task_back(place):
    task = made(place, "--key", "k1")
    again = place.here("tasks", "create", "echo", "--args", '{"text": "hi"}', "--key", "k1", status=0)
    assert (again.out.strip(), "made before" in again.err) == (task, True)
    other = place.here("tasks", "create", "echo", "--args", '{"text": "ho"}', "--key", "k1", status=1)
    assert "TASK_KEY_REUSED" in other.err


def test_refused_task_says_why_and_is_none(place):
    place.system(
        "hooks/no.yaml",
        "schema_version: v1\nid: no\nevent_type: PreAbilityCreate\nhandler: {script: [sh, no.sh]}\nmatch: {}\n",
    )
    place.write(
        "no.sh", """echo '{"decision": "deny", "reason": "not on Sundays", "signals": {"ability_preflight": 7}}'\n"""
    )
    refused = place.run("tasks", "create", "echo", "--args", '{"text": "hi"}', "--json", status=3).fits(
        "output_task_v1"
    )
    assert refused["error"] == {"code": "TASK_UNAVAILABLE", "message": "not on Sundays"}
    assert refused["signals"] == {"ability_preflight": [{"hook": "no", "value": 7}]}
    assert not (place.path / ".deedbook/implement").exists()
    assert place.here("tasks", status=0).out == "no tasks\n"


def test_pages_are_written_anew_byte_for_byte_whatever_became_of_them(place):
    task = made(place)
    place.here("tasks", "run", task, status=0)
    page = place.path / ".deedbook/implement" / task / "tool_call.md"
    before = page.read_bytes()
    page.write_text("gone")
    assert place.here("tasks", "render", status=0).out == f"{page}\n"
    assert page.read_bytes() == before
    page.unlink()
    (told,) = place.here("tasks", "render", task, "--json", status=0).fits("output_pages_v1")["pages"]
    assert (told, page.read_bytes()) == (str(page), before)


def test_page_is_never_written_through_a_link(place, tmp_path):
    task = made(place)
    page = place.path / ".deedbook/implement" / task / "tool_call.md"
    outside = tmp_path / "outside"
    outside.write_text("mine")
    page.unlink()
    page.symlink_to(outside)
    place.here("tasks", "run", task, status=0)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("name", ["../../etc", "t-../..", "t-" + "0" * 32, "\N{DEVANAGARI DIGIT ONE}"])
def test_name_that_is_no_task_is_said_so(place, name):
    made(place)
    for command in ("show", "run", "delete", "update"):
        assert "TASK_NOT_FOUND" in place.here("tasks", command, name, status=2).err
    with Folder.at(place.path / ".deedbook/implement") as folder:
        assert len(folder.scan()) == 1


def test_decision_says_which(place):
    made(place)
    assert "--happened or --did-not" in place.here("tasks", "decide", "last", status=2).err
    assert "TASK_DECIDED" in place.here("tasks", "decide", "last", "--did-not", status=1).err


def test_task_of_somebody_else_is_refused(place):
    place.configure("schema_version: v1\n", "schema_version: v1\nprincipals: {ada: {}}\n")
    task = made(place, "--as", "ada")
    assert "TASK_NOT_YOURS" in place.here("tasks", "run", task, status=3).err
    assert place.here("tasks", "run", task, "--as", "ada", status=0).out


def test_nothing_is_shown_where_nothing_was_recorded(place):
    assert place.here("tasks", "render", status=0).out == ""
    assert "no task was ever made" in place.here("tasks", "show", "last", status=2).err
