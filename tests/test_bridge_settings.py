"""An agent's settings file with the bridge in it: shown first, written whole, what others put there stays."""

import json
import os
import shlex
import subprocess

import pytest
import serving
from commandline import Place
from hypothesis import given
from hypothesis import strategies as st

from deedbook.bridging import agents, client
from deedbook.bridging.settings import Setting, difference, events, installed, is_bare, outdated, removed
from deedbook.errors import DeedbookError

OURS = Setting(
    name="claude-code", python="/usr/bin/python3", client="/lib/deedbook/bridging/client.py", state="/s p", limit=10
)
CLAUDE = agents.known("claude-code")
OTHERS = {
    "permissions": {"deny": ["Read(./.env)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}],
        "PostToolUse": [{"hooks": []}],
    },
}


def put(text):
    return installed(CLAUDE, text, OURS, place="settings.json")


def test_every_event_of_the_agent_asks_here():
    made = json.loads(put(""))
    assert set(made["hooks"]) == set(CLAUDE.events)
    (group,) = made["hooks"]["PreToolUse"]
    assert group["matcher"] == "*"
    assert shlex.split(group["hooks"][0]["command"]) == OURS.words("PreToolUse")
    assert events(put(""), place="x").keys() == CLAUDE.events.keys()


def test_a_hook_that_fails_blocks_where_the_agent_knows_how_and_never_at_its_stop():
    made = json.loads(put(""))["hooks"]
    blocking = {event for event, groups in made.items() if groups[0]["hooks"][0].get("onFailure") == "block"}
    assert blocking == {"PreToolUse", "UserPromptSubmit", "PreCompact"}
    assert all(groups[0]["hooks"][0]["timeout"] > OURS.limit for groups in made.values())


def test_milliseconds_are_what_gemini_counts():
    made = json.loads(installed(agents.known("gemini-cli"), "", OURS, place="x"))
    assert made["hooks"]["BeforeTool"][0]["hooks"][0]["timeout"] == 15_000


def test_copilot_has_its_entries_without_groups():
    copilot = agents.known("copilot-cli")
    text = installed(copilot, "", OURS, place="x")
    made = json.loads(text)
    assert (made["version"], made["hooks"]["PreToolUse"][0]["timeoutSec"]) == (1, 15)
    assert events(text, place="x").keys() == copilot.events.keys()
    assert installed(copilot, text, OURS, place="x") == text
    left = removed(text, place="x")
    assert json.loads(left) == {"version": 1}
    assert is_bare(copilot, left, place="x")
    assert not is_bare(CLAUDE, left, place="x")


def test_what_others_put_there_stays_and_comes_first():
    made = json.loads(put(json.dumps(OTHERS)))
    assert made["permissions"] == OTHERS["permissions"]
    assert made["hooks"]["PreToolUse"][0] == OTHERS["hooks"]["PreToolUse"][0]
    assert len(made["hooks"]["PreToolUse"]) == 2


def test_done_again_it_changes_nothing_and_taken_back_it_is_as_before():
    text = json.dumps(OTHERS, indent=4)
    once = put(text)
    assert put(once) == once
    assert once.startswith('{\n    "permissions"')
    assert json.loads(removed(once, place="x")) == OTHERS


def test_another_place_of_the_client_takes_the_place_of_the_old_one():
    moved = installed(CLAUDE, put(""), Setting(**{**_fields(OURS), "python": "/other/python"}), place="x")
    assert "/usr/bin/python3" not in moved
    assert moved.count("/other/python") == len(CLAUDE.events)


def test_what_would_be_installed_otherwise_is_outdated_and_others_hooks_are_not_looked_at():
    once = put(json.dumps(OTHERS))
    assert outdated(CLAUDE, once, OURS, place="x") == []
    longer = Setting(**{**_fields(OURS), "limit": 310})
    assert set(outdated(CLAUDE, once, longer, place="x")) == set(CLAUDE.events)
    edited = json.loads(once)
    edited["hooks"]["Stop"][0]["hooks"][0]["timeout"] = 1
    assert outdated(CLAUDE, json.dumps(edited), OURS, place="x") == ["Stop"]
    edited["hooks"]["Renamed"] = edited["hooks"].pop("Stop")
    assert outdated(CLAUDE, json.dumps(edited), OURS, place="x") == ["Renamed"]
    assert outdated(CLAUDE, json.dumps(OTHERS), OURS, place="x") == []


def _fields(setting):
    return {name: getattr(setting, name) for name in ("name", "python", "client", "state", "limit")}


@pytest.mark.parametrize(
    "text", ["[]", "// a comment\n{}", '{"a": 1, "a": 2}', '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{", "\0"]
)
def test_a_file_that_cannot_be_changed_safely_is_refused(text):
    for change in (put, lambda text: removed(text, place="settings.json")):
        with pytest.raises(DeedbookError) as caught:
            change(text)
        assert (caught.value.error.code, caught.value.error.place) == ("BRIDGE_SETTINGS", "settings.json")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
GROUPS = st.dictionaries(
    st.sampled_from(["PreToolUse", "Stop", "New"]), st.lists(VALUES, min_size=1, max_size=3), max_size=3
)


@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "hooks"), VALUES, max_size=3), GROUPS)
def test_nothing_of_others_is_ever_lost(said, hooks):
    text = json.dumps({**said, "hooks": hooks})
    assert json.loads(removed(put(text), place="x")) == ({**said, "hooks": hooks} if hooks else said)


def test_the_difference_shows_what_is_new():
    shown = difference('{"a": 1}', put('{"a": 1}'), "settings.json")
    assert shown.startswith("--- settings.json\n+++ settings.json\n")
    assert '+    "PreToolUse": [' in shown


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path):
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", "schema_version: v1\nagents: {claude-code: {unknown_tools: ask}, desk: {}}\n")
    return made


def test_install_shows_the_change_and_writes_only_when_told_to(desk):
    place = desk.path / ".claude" / "settings.json"
    shown = desk.run("bridge", "install", status=1)
    assert '+    "PreToolUse": [' in shown.out
    assert "--yes" in shown.err
    assert not place.exists()
    desk.run("bridge", "install", "--yes", status=0)
    written = place.read_text()
    assert str(client.__file__) in written
    again = desk.run("bridge", "install", "--yes", status=0)
    assert (again.out, place.read_text()) == ("", written)
    assert "nothing to change" in again.err
    gone = desk.run("bridge", "install", "--remove", "--yes", status=0).err
    assert "deleted, since nothing else stood in it" in gone
    assert "deedbook serve" not in gone
    assert not place.exists()
    place.write_text('{"model": "x"}')
    desk.run("bridge", "install", "--yes", status=0)
    left = desk.run("bridge", "install", "--remove", "--yes", status=0).err
    assert "written without the hooks of the bridge" in left
    assert json.loads(place.read_text()) == {"model": "x"}


def test_status_says_when_to_install_again(desk):
    desk.run("bridge", "install", "--yes", status=0)
    assert "install again" not in desk.run("bridge", "status", status=0).out
    waits = "schema_version: v1\nagents: {claude-code: {asks: deedbook, wait_s: 300}}\n"
    desk.system("deedbook.yaml", waits)
    told = desk.run("bridge", "status", "--json", status=0).fits("output_bridge_v1")
    assert set(told["agents"][0]["outdated"]) == set(CLAUDE.events)
    assert "install again: deedbook bridge install\n" in desk.run("bridge", "status", status=0).out
    desk.run("bridge", "install", "--yes", status=0)
    assert "install again" not in desk.run("bridge", "status", status=0).out


def test_install_writes_where_it_is_told_to(desk):
    desk.run("bridge", "install", "--yes", "--settings", "mine.json", status=0)
    assert "PreToolUse" in json.loads((desk.path / "mine.json").read_text())["hooks"]
    assert not (desk.path / ".claude").exists()


def test_install_does_not_write_through_a_link(desk):
    (desk.path / ".claude").mkdir()
    (desk.path / "elsewhere.json").write_text("{}")
    (desk.path / ".claude" / "settings.json").symlink_to("../elsewhere.json")
    assert desk.run("bridge", "install", "--yes").status != 0
    assert (desk.path / "elsewhere.json").read_text() == "{}"


def test_install_follows_no_folder_out_of_the_workspace_and_reads_no_pipe(desk, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.path / ".claude").symlink_to(elsewhere)
    assert "out of the workspace" in desk.run("bridge", "install", "--yes", status=1).err
    (desk.path / ".claude").unlink()
    (desk.path / ".claude").mkdir()
    os.mkfifo(desk.path / ".claude" / "settings.json")
    assert "no regular file" in desk.run("bridge", "install", "--yes", status=1).err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["desk", "gemini-cli", "nobody"])
def test_only_declared_coding_agents_are_installed(desk, name):
    assert "BRIDGE_AGENT_UNKNOWN" in desk.run("bridge", "install", name, "--yes", status=2).err


def test_status_and_test_say_what_answers(desk):
    told = desk.run("bridge", "status", "--json", status=0).fits("output_bridge_v1")
    assert (told["runtime"], [row["installed"] for row in told["agents"]]) == (False, [False])
    assert "deedbook serve" in desk.run("bridge", "test", status=3).err
    with serving.served(desk):
        desk.run("bridge", "install", "--yes", status=0)
        told = desk.run("bridge", "status", "--json", status=0).fits("output_bridge_v1")
        assert (told["runtime"], told["agents"][0]["missing"]) == (True, [])
        assert "PreToolUse: status 0" in desk.run("bridge", "test", status=0).out
        heard = desk.run("bridge", "PreToolUse", stdin=b"nonsense", status=2)
        assert "INTAKE_REFUSED" in heard.err
        assert "deny" in heard.out
        # what stands in the settings file is what a shell runs
        command = json.loads((desk.path / ".claude/settings.json").read_text())["hooks"]["Stop"][0]["hooks"][0][
            "command"
        ]
        stop = b'{"session_id": "s", "hook_event_name": "Stop"}'
        assert subprocess.run(["/bin/sh", "-c", command], input=stop, check=False).returncode == 0
    assert "bridge.session" in desk.types(desk.sessions()[0])


def test_without_a_runtime_the_slow_way_denies_as_well(desk):
    heard = desk.run("bridge", "PreToolUse", stdin=b"{}", status=2)
    assert heard.err.startswith("Deedbook: ")
