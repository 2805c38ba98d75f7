"""Both ledgers have each step of a task: one that is made up, changed or taken away in one of them shows."""

import json
import shutil

import pytest
from commandline import Place, starter
from ledgers import forge


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Give a workspace with two tasks: one was changed and run, the other is only made."""
    place = starter(tmp_path_factory.mktemp("whole") / "w")
    for line in ("hi", "ho"):
        place.here("tasks", "create", "echo", "--args", json.dumps({"text": line}), status=0)
    place.here("tasks", "update", "last", "--args", '{"text": "ha"}', status=0)
    place.here("tasks", "run", "last", status=0)
    assert place.here("verify", status=0).out.endswith("all 5 sound\n")
    return place


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "copy")
    return Place(tmp_path / "copy")


def told(place, event_type):
    """Return the ledger of the workspace, its lines, and where the last of that type stands in them."""
    file = place.path / ".deedbook/workspace/.events.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    return file, lines, max(n for n, line in enumerate(lines) if b'"%b"' % event_type.encode() in line)


def missing(place):
    """Return what verification misses, where each ledger is sound by itself."""
    found = place.here("verify", "--json", status=4).fits("output_verify_v1")
    assert all(report["sound"] for report in found["reports"])
    return found["missing"]


def rewrite(file, lines):
    file.write_bytes(b"".join(forge(lines, genesis="workspace")))


@pytest.mark.parametrize(
    ("event_type", "old", "new", "what"),
    [
        ("task.updated", b'"text":"ha"', b'"text":"rm"', "other args"),
        ("task.ended", b'"state":"succeeded"', b'"state":"failed"', "other state"),
    ],
)
def test_step_that_was_changed_in_the_workspace_ledger(copy, event_type, old, new, what):
    file, lines, number = told(copy, event_type)
    lines[number] = lines[number].replace(old, new)
    rewrite(file, lines)
    (gap,) = missing(copy)
    assert (gap["check"].split()[0], gap["found"]) == (event_type, what)


@pytest.mark.parametrize("event_type", ["task.created", "task.updated", "task.ended"])
def test_step_that_was_taken_out_of_the_workspace_ledger(copy, event_type):
    file, lines, number = told(copy, event_type)
    del lines[number]
    rewrite(file, lines)
    found = copy.here("verify", "--json", status=4).fits("output_verify_v1")["missing"]
    assert [(gap["check"].split()[0], gap["found"]) for gap in found] == [(event_type, "0 times")]


def test_step_that_no_session_took(copy):
    """Somebody binds the waiting task to other arguments, in words that fit."""
    file, lines, number = told(copy, "task.updated")
    created = next(line for line in lines if b'"task.created"' in line)
    tasks = [json.loads(line)["payload"]["task"].encode() for line in (created, lines[number])]
    spans = [json.loads(line)["payload"]["span"].encode() for line in (created, lines[number])]
    parents = [json.loads(line)["span_id"].encode() for line in lines if b'"task.created"' in line]
    made_up = lines[number].replace(tasks[1], tasks[0]).replace(spans[1], spans[0][::-1])
    made_up = made_up.replace(b'"parent_span_id":"%b"' % parents[1], b'"parent_span_id":"%b"' % parents[0])
    own = json.loads(made_up)
    made_up = made_up.replace(b'"span_id":"%b"' % own["span_id"].encode(), b'"span_id":"%b"' % spans[0])
    made_up = made_up.replace(b'"seq":%d,' % own["seq"], b'"seq":%d,' % len(lines))
    rewrite(file, [*lines, made_up])
    (gap,) = missing(copy)
    assert (gap["check"], gap["found"]) == (f"task.updated {spans[0][::-1].decode()}", "none")
