"""An agent's settings file with the bridge in it: shown first, written whole, what others put there stays."""

import json
import shlex
import subprocess

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import DeedbookError
from deedbook_serve import agents
from deedbook_serve.bridging.settings import (
    HookSettings,
    find_commands,
    find_disabling_settings,
    find_hooks,
    find_outdated,
    format_diff,
    install_hooks,
    is_bare,
    remove_hooks,
)

PROGRAM = ("/usr/bin/python3", "-I", "-S", "/lib/deedbook/serve/bridging/client.py", "--state", "/s p")
OURS = HookSettings(name="claude-code", program=PROGRAM, limit=10)
SHARED = attrs.evolve(OURS, workspace="/home/ada/a project")
CLAUDE, CODEX = agents.find_agent("claude-code"), agents.find_agent("codex")
INSTALLED = {event.name for event in CLAUDE.installed_events}
OTHERS = {
    "permissions": {"deny": ["Read(./.env)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}],
        "PostToolUse": [{"hooks": []}],
    },
}


def put(text):
    return install_hooks(CLAUDE, text, OURS, place="settings.json")


def test_every_event_of_the_agent_asks_here():
    made = json.loads(put(""))
    assert set(made["hooks"]) == INSTALLED
    (group,) = made["hooks"]["PreToolUse"]
    assert group["matcher"] == "*"
    words = OURS.build_command(CLAUDE.events["PreToolUse"])
    assert shlex.split(group["hooks"][0]["command"]) == [*words, "||", "exit", "2"]
    assert find_commands(put(""), place="x").keys() == INSTALLED


def test_a_hook_that_takes_the_place_of_git_or_slows_every_line_down_is_not_installed():
    assert set(CLAUDE.events) - INSTALLED == {"MessageDisplay", "FileChanged", "WorktreeCreate", "WorktreeRemove"}


def test_a_hook_that_fails_blocks_where_something_can_be_refused_and_never_at_an_agents_stop():
    made = json.loads(put(""))["hooks"]
    blocking = {event for event, groups in made.items() if groups[0]["hooks"][0].get("onFailure") == "block"}
    assert blocking == {
        "PreToolUse", "UserPromptSubmit", "UserPromptExpansion", "PermissionRequest", "PreCompact", "ConfigChange",
        "TaskCreated", "PreModelSwitch", "Elicitation", "ElicitationResult",
    }  # fmt: skip
    assert blocking == {event for event, groups in made.items() if "exit 2" in groups[0]["hooks"][0]["command"]}
    assert all(groups[0]["hooks"][0]["timeout"] > OURS.limit for groups in made.values())


@pytest.mark.parametrize(("event", "status"), [("PreToolUse", 2), ("Stop", 127)])
def test_a_client_that_is_gone_refuses_where_something_can_be_refused(event, status):
    command = attrs.evolve(OURS, program=("/gone/deedbook-bridge",)).build_shell_line(CLAUDE.events[event])
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    assert ran.returncode == status
    assert ran.stderr


def test_an_agents_own_limit_is_kept():
    made = json.loads(install_hooks(CODEX, "", OURS, place="x"))["hooks"]
    for event, seconds, limit in (("SessionEnd", 3, "2"), ("PreToolUse", 15, "10")):
        hook = made[event][0]["hooks"][0]
        assert hook["timeout"] == seconds
        assert shlex.split(hook["command"])[7] == limit


def test_milliseconds_are_what_gemini_counts():
    made = json.loads(install_hooks(agents.find_agent("gemini-cli"), "", OURS, place="x"))
    assert made["hooks"]["BeforeTool"][0]["hooks"][0]["timeout"] == 15_000


def test_copilot_has_its_entries_without_groups():
    copilot = agents.find_agent("copilot-cli")
    begins = attrs.evolve(OURS, begin=copilot.project.begin)
    text = install_hooks(copilot, "", begins, place="x")
    made = json.loads(text)
    assert (made["version"], made["hooks"]["PreToolUse"][0]["timeoutSec"]) == (1, 15)
    assert find_commands(text, place="x").keys() == {event.name for event in copilot.installed_events}
    assert install_hooks(copilot, text, begins, place="x") == text
    left = remove_hooks(text, place="x")
    assert json.loads(left) == {"version": 1}
    assert is_bare(left, begins.begin, place="x")
    assert not is_bare(left, {}, place="x")


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
    assert json.loads(remove_hooks(once, place="x")) == OTHERS


def test_another_place_of_the_client_takes_the_place_of_the_old_one():
    moved = install_hooks(CLAUDE, put(""), attrs.evolve(OURS, program=("/other/python", *PROGRAM[1:])), place="x")
    assert "/usr/bin/python3" not in moved
    assert moved.count("/other/python") == len(INSTALLED)


def test_what_is_installed_again_keeps_its_place_among_others():
    """Codex trusts a hook by its place and digest: one that moved would be skipped without a word."""
    said = json.loads(install_hooks(CODEX, "", OURS, place="x"))
    theirs = {"hooks": [{"type": "command", "command": "./theirs.sh"}]}
    said["hooks"]["PreToolUse"].append(theirs)
    said["hooks"]["Stop"].insert(0, theirs)
    text = json.dumps(said, indent=2)
    assert install_hooks(CODEX, text, OURS, place="x") == text
    longer = json.loads(install_hooks(CODEX, text, attrs.evolve(OURS, limit=60), place="x"))["hooks"]
    assert longer["PreToolUse"][1] == theirs
    assert longer["Stop"][0] == theirs


def test_one_of_ours_too_many_goes_and_what_shares_its_group_stays():
    said = json.loads(put(""))
    twice = said["hooks"]["PreToolUse"][0]
    mixed = {"matcher": "Bash", "hooks": [*OTHERS["hooks"]["PreToolUse"][0]["hooks"], *twice["hooks"]]}
    said["hooks"]["PreToolUse"] = [mixed, twice, twice]
    made = json.loads(install_hooks(CLAUDE, json.dumps(said), OURS, place="x"))["hooks"]["PreToolUse"]
    assert made == [OTHERS["hooks"]["PreToolUse"][0], twice]


def test_in_a_file_of_all_projects_only_this_ones_hooks_are_touched():
    elsewhere = attrs.evolve(SHARED, workspace="/home/ada/other")
    both = install_hooks(CODEX, install_hooks(CODEX, "", elsewhere, place="x"), SHARED, place="x")
    assert [found.event for found in find_hooks(both, SHARED.workspace, place="x")] == [
        found.event for found in find_hooks(both, elsewhere.workspace, place="x")
    ]
    assert json.loads(remove_hooks(both, SHARED.workspace, place="x")) == json.loads(
        install_hooks(CODEX, "", elsewhere, place="x")
    )


@pytest.mark.parametrize(
    ("where", "runs"), [("", True), ("deep/er", True), ("../other", False), ("../work space2", False)]
)
def test_a_hook_of_all_projects_runs_in_its_own_workspace_alone(tmp_path, where, runs):
    root = tmp_path / "work space"
    (root / where).mkdir(parents=True)
    setting = HookSettings(name="codex", program=("echo",), limit=10, workspace=str(root.resolve()))
    ran = subprocess.run(
        ["/bin/sh", "-c", setting.build_shell_line(CODEX.events["PreToolUse"])],
        cwd=root / where,
        capture_output=True,
        check=True,
    )
    assert bool(ran.stdout) == runs


@pytest.mark.parametrize(
    ("name", "said", "off"),
    [
        ("claude-code", {"disableAllHooks": True}, ["disableAllHooks"]),
        ("claude-code", {"disableAllHooks": False}, []),
        ("claude-code", {"disableAllHooks": 1}, []),
        ("gemini-cli", {"hooksConfig": {"enabled": False}}, ["hooksConfig.enabled"]),
        ("gemini-cli", {"hooksConfig": {"disabled": ["./theirs.sh"]}}, []),
        ("codex", {"disableAllHooks": True}, []),
    ],
)
def test_what_switches_hooks_off_is_found(name, said, off):
    text = install_hooks(agents.find_agent(name), json.dumps(said), OURS, place="x")
    assert find_disabling_settings(agents.find_agent(name), text, place="x") == off


def test_a_command_that_gemini_is_told_to_leave_out_is_switched_off():
    gemini = agents.find_agent("gemini-cli")
    said = json.loads(install_hooks(gemini, "", OURS, place="x"))
    said["hooksConfig"] = {"disabled": [said["hooks"]["BeforeTool"][0]["hooks"][0]["command"]]}
    assert find_disabling_settings(gemini, json.dumps(said), place="x") == ["hooksConfig.disabled"]


def test_what_would_be_installed_otherwise_is_outdated_and_others_hooks_are_not_looked_at():
    once = put(json.dumps(OTHERS))
    assert find_outdated(CLAUDE, once, OURS, place="x") == []
    longer = attrs.evolve(OURS, limit=310)
    assert set(find_outdated(CLAUDE, once, longer, place="x")) == INSTALLED
    edited = json.loads(once)
    edited["hooks"]["Stop"][0]["hooks"][0]["timeout"] = 1
    assert find_outdated(CLAUDE, json.dumps(edited), OURS, place="x") == ["Stop"]
    edited["hooks"]["Renamed"] = edited["hooks"].pop("Stop")
    assert find_outdated(CLAUDE, json.dumps(edited), OURS, place="x") == ["Renamed"]
    assert find_outdated(CLAUDE, json.dumps(OTHERS), OURS, place="x") == []


@pytest.mark.parametrize(
    "text", ["[]", "// a comment\n{}", '{"a": 1, "a": 2}', '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{", "\0"]
)
def test_a_file_that_cannot_be_changed_safely_is_refused(text):
    for change in (put, lambda text: remove_hooks(text, place="settings.json")):
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
    assert json.loads(remove_hooks(put(text), place="x")) == ({**said, "hooks": hooks} if hooks else said)


def test_the_difference_shows_what_is_new():
    shown = format_diff('{"a": 1}', put('{"a": 1}'), "settings.json")
    assert shown.startswith("--- settings.json\n+++ settings.json\n")
    assert '+    "PreToolUse": [' in shown
