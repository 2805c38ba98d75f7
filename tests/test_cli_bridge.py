"""``deedbook bridge``: hooks put into an agent's files, byte for byte the same each time, and what became of them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import serving
from commandline import ROOT, Place

from deedbook.format.reader import read
from deedbook_serve import agents
from deedbook_serve.bridging import client
from deedbook_serve.bridging.trust import codex_digest

CLAUDE = agents.find_agent("claude-code")
OWN = ".claude/settings.local.json"
GWT = "/Applications/GWT.app/Contents/MacOS/gwtd"
ALL = "schema_version: v1\nagents: {claude-code: {}, codex: {}, gemini-cli: {}, copilot-cli: {}, desk: {}}\n"


@pytest.fixture
def desk(tmp_path, monkeypatch):
    made = Place(tmp_path / "workspace")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    made.system("deedbook.yaml", ALL)
    return made


def rows(desk):
    return {
        row["agent"]: row
        for row in desk.here("bridge", "status", "--json", status=0).fits("output_bridge_v2")["agents"]
    }


def standing(row):
    return [each for each in row["files"] if each["installed"]]


# --- install --------------------------------------------------------------------------------------------------------


def test_install_shows_the_change_and_writes_only_when_told_to(desk):
    place = desk.path / OWN
    shown = desk.here("bridge", "install", status=1)
    assert '+    "PreToolUse": [' in shown.out
    assert "--yes" in shown.err
    assert not place.exists()
    desk.here("bridge", "install", "--yes", status=0)
    written = place.read_text()
    assert str(client.__file__) in written
    again = desk.here("bridge", "install", "--yes", status=0)
    assert (again.out, place.read_text()) == ("", written)
    assert "nothing to change" in again.err
    gone = desk.here("bridge", "install", "--remove", "--yes", status=0).err
    assert "deleted, since nothing else stood in it" in gone
    assert "deedbook serve" not in gone
    assert not place.exists()
    place.write_text('{"model": "x"}')
    desk.here("bridge", "install", "--yes", status=0)
    left = desk.here("bridge", "install", "--remove", "--yes", status=0).err
    assert "written without the hooks of the bridge" in left
    assert json.loads(place.read_text()) == {"model": "x"}


@pytest.mark.parametrize("name", agents.list_agents())
@pytest.mark.parametrize("project", [False, True])
def test_each_agent_has_its_own_file_and_the_projects_and_a_second_time_changes_no_byte(desk, tmp_path, name, project):
    known = agents.find_agent(name)
    file = known.project if project else known.personal
    place = tmp_path / "home" / file.path[2:] if file.is_shared else desk.path / file.path
    option = ["--project"] if project else []
    told = desk.here("bridge", "install", name, "--yes", *option, status=0)
    assert known.trust in told.err
    written = place.read_bytes()
    desk.here("bridge", "install", name, "--yes", *option, status=0)
    assert place.read_bytes() == written
    (row,) = standing(rows(desk)[name])
    assert (row["path"], row["role"]) == (str(place), "project" if project else "personal")
    assert (row["missing"], row["outdated"], row["problem"]) == ([], [], "")
    assert [
        path for path in desk.path.rglob("*") if path.is_file() and path != place and ".system" not in path.parts
    ] == []


@pytest.mark.parametrize("name", agents.list_agents())
def test_the_projects_file_names_nothing_of_this_machine(desk, tmp_path, name):
    desk.here("bridge", "install", name, "--yes", "--project", status=0)
    text = (desk.path / agents.find_agent(name).project.path).read_text()
    assert not re.search(r'[" =\']/', text)
    assert str(tmp_path) not in text
    assert "deedbook-bridge --limit" in text


def test_the_program_that_the_projects_file_starts_is_the_client(desk, tmp_path):
    scripts = tomllib.loads((ROOT / "plugins" / "deedbook-serve" / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["deedbook-bridge"] == "deedbook_serve.bridging.client:main"
    program = tmp_path / "bin" / "deedbook-bridge"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from deedbook_serve.bridging.client import main; main()" "$@"\n'
    )
    program.chmod(0o755)
    desk.here("bridge", "install", "--yes", "--project", status=0)
    hooks = json.loads((desk.path / ".claude/settings.json").read_text())["hooks"]
    (desk.path / "deep").mkdir()
    said = (
        b'{"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "TodoWrite", "tool_input": {"todos": []}}'
    )
    path = f"{program.parent}:{os.environ['PATH']}"

    def run():
        command = hooks["PreToolUse"][0]["hooks"][0]["command"]
        ran = subprocess.run(
            ["/bin/sh", "-c", command], input=said, cwd=desk.path / "deep", env={**os.environ, "PATH": path},
            capture_output=True, check=False,
        )  # fmt: skip
        return ran.returncode

    assert run() == 2
    with serving.served(desk):
        assert run() == 0


def test_a_state_folder_elsewhere_cannot_be_found_from_the_projects_file(desk, tmp_path):
    desk.system("deedbook.yaml", f"schema_version: v1\nstate: {tmp_path}/state\nagents: {{claude-code: {{}}}}\n")
    refused = desk.here("bridge", "install", "--project", "--yes", status=1).err
    assert "leave --project out" in refused
    assert not (desk.path / ".claude").exists()
    desk.here("bridge", "install", "--yes", status=0)


def test_hooks_in_two_files_would_ask_twice_and_are_refused(desk):
    desk.here("bridge", "install", "--project", "--yes", status=0)
    refused = desk.here("bridge", "install", "--yes", status=1).err
    assert "deedbook bridge install claude-code --project --remove" in refused
    assert not (desk.path / OWN).exists()
    desk.here("bridge", "install", "--project", "--remove", "--yes", status=0)
    desk.here("bridge", "install", "--yes", status=0)


def test_two_projects_share_a_persons_file_without_touching_each_other(desk, tmp_path):
    desk.here("bridge", "install", "codex", "--yes", status=0)
    other = Place(tmp_path / "other")
    other.system("deedbook.yaml", ALL)
    assert rows(other)["codex"]["installed"] is False
    other.here("bridge", "install", "codex", "--yes", status=0)
    assert rows(desk)["codex"]["installed"] is True
    desk.here("bridge", "install", "codex", "--remove", "--yes", status=0)
    assert rows(other)["codex"]["installed"] is True
    assert rows(desk)["codex"]["installed"] is False


def test_install_writes_where_it_is_told_to(desk, tmp_path):
    desk.here("bridge", "install", "--yes", "--settings", "mine.json", status=0)
    assert "PreToolUse" in json.loads((desk.path / "mine.json").read_text())["hooks"]
    assert not (desk.path / ".claude").exists()
    desk.here("bridge", "install", "--yes", "--settings", str(tmp_path / "all.json"), status=0)
    assert "case " in (tmp_path / "all.json").read_text()
    assert desk.here("bridge", "install", "--project", "--settings", "x.json", "--yes").status == 2


def test_install_does_not_write_through_a_link(desk):
    (desk.path / ".claude").mkdir()
    (desk.path / "elsewhere.json").write_text("{}")
    (desk.path / OWN).symlink_to("../elsewhere.json")
    assert desk.here("bridge", "install", "--yes").status != 0
    assert (desk.path / "elsewhere.json").read_text() == "{}"


def test_install_follows_no_folder_out_of_the_workspace_and_reads_no_pipe(desk, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.path / ".claude").symlink_to(elsewhere)
    assert "out of the workspace" in desk.here("bridge", "install", "--yes", status=1).err
    (desk.path / ".claude").unlink()
    (desk.path / ".claude").mkdir()
    os.mkfifo(desk.path / OWN)
    assert "no regular file" in desk.here("bridge", "install", "--yes", status=1).err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["desk", "nobody"])
def test_only_declared_coding_agents_are_installed(desk, name):
    assert "BRIDGE_AGENT_UNKNOWN" in desk.here("bridge", "install", name, "--yes", status=2).err


# --- status ---------------------------------------------------------------------------------------------------------


def test_status_says_when_to_install_again(desk):
    desk.here("bridge", "install", "--yes", status=0)
    assert "install again" not in desk.here("bridge", "status", status=0).out
    waits = "schema_version: v1\nagents: {claude-code: {asks: deedbook, wait_s: 300}}\n"
    desk.system("deedbook.yaml", waits)
    (row,) = standing(rows(desk)["claude-code"])
    assert set(row["outdated"]) == {event.name for event in CLAUDE.installed_events}
    told = desk.here("bridge", "status", status=0).out
    assert "install again: deedbook bridge install claude-code\n" in told
    desk.here("bridge", "install", "--yes", status=0)
    assert "install again" not in desk.here("bridge", "status", status=0).out


def test_status_says_which_events_are_missing_and_what_switches_hooks_off(desk):
    desk.here("bridge", "install", "--yes", status=0)
    said = json.loads((desk.path / OWN).read_text())
    del said["hooks"]["Stop"]
    (desk.path / OWN).write_text(json.dumps({**said, "disableAllHooks": True}))
    (row,) = standing(rows(desk)["claude-code"])
    assert (row["missing"], row["off"]) == (["Stop"], ["disableAllHooks"])
    told = desk.here("bridge", "status", status=0).out
    assert f"{OWN}: not at Stop; install again" in told
    assert f"{OWN} switches hooks off: disableAllHooks" in told


def test_a_file_that_cannot_be_read_does_not_keep_status_from_the_others(desk):
    (desk.path / ".claude").mkdir()
    (desk.path / ".claude/settings.json").write_text("// comment\n{}")
    found = {each["role"]: each["problem"] for each in rows(desk)["claude-code"]["files"]}
    assert "plain JSON" in found["project"]
    assert found["personal"] == ""
    assert "plain JSON" in desk.here("bridge", "status", status=0).out


def test_status_says_whether_a_hook_ever_called(desk):
    assert "no hook has ever called" in desk.here("bridge", "status", status=0).out
    assert rows(desk)["claude-code"]["last_call"] is None
    assert "deedbook serve" in desk.run("bridge", "test", status=3).err
    with serving.served(desk):
        desk.here("bridge", "install", "--yes", status=0)
        assert "PreToolUse: status 0" in desk.run("bridge", "test", status=0).out
        assert rows(desk)["claude-code"]["last_call"] is None, "a test is no call"
        heard = desk.run("bridge", "PreToolUse", stdin=b"nonsense", status=2)
        assert "INTAKE_REFUSED" in heard.err
        assert "deny" in heard.out
        assert heard.out.endswith("}\n")
        for event in ("StatusLine", "statusline"):  # in no table, and as near to a command as this
            body = json.dumps({"session_id": "s", "hook_event_name": event}).encode()
            heard = desk.run("bridge", event, stdin=body)
            assert (heard.status, heard.out) == ((0, "") if event == "StatusLine" else (2, "")), heard
        assert "there is no command 'statusline'; did you mean \"status\"?" in heard.err
        # what stands in the settings file is what a shell runs
        hooks = json.loads((desk.path / OWN).read_text())["hooks"]
        stop = b'{"session_id": "s", "hook_event_name": "Stop"}'
        command = hooks["Stop"][0]["hooks"][0]["command"]
        assert subprocess.run(["/bin/sh", "-c", command], input=stop, check=False).returncode == 0
        first = rows(desk)["claude-code"]["last_call"]
        command = hooks["Notification"][0]["hooks"][0]["command"]
        told = b'{"session_id": "s", "hook_event_name": "Notification", "message": "m"}'
        assert subprocess.run(["/bin/sh", "-c", command], input=told, check=False).returncode == 0
        last = rows(desk)["claude-code"]["last_call"]
        assert first < last
        assert f"called last at {last}" in desk.here("bridge", "status", status=0).out
    session = next(
        event.payload["session_id"]
        for event in read(desk.path / ".deedbook" / "workspace")
        if event.type == "bridge.session" and event.payload["agent_session"] == "s"
    )
    assert desk.events(session)[-1].type == "session.end"
    told = [event.payload["event"] for event in desk.events(session) if event.type == "bridge.told"]
    assert "StatusLine" in told
    assert rows(desk)["claude-code"]["last_call"] == last, "the end of the runtime is no call"
    assert rows(desk)["codex"]["last_call"] is None


def test_without_a_runtime_the_slow_way_denies_as_well(desk):
    heard = desk.run("bridge", "PreToolUse", stdin=b"{}", status=2)
    assert heard.err.startswith("Deedbook: ")


# --- trust ----------------------------------------------------------------------------------------------------------


def trusted(desk, name):
    (row,) = standing(rows(desk)[name])
    return row["trusted"], row["trust"]


@pytest.mark.parametrize(
    ("event", "matcher", "command", "digest"),
    [
        (
            "post_tool_use",
            "*",
            f"'{GWT}' hook event PostToolUse",
            "9c3ce103f03f0b27a28bc4a30883f7e98a80b5df566b4572fcbb2955ebf5ba62",
        ),
        (
            "user_prompt_submit",
            None,
            f'gwt_bin="${{GWT_BIN_PATH:-{GWT}}}"; "$gwt_bin" hook event UserPromptSubmit',
            "1a86ba6796c5b5bf1601fd1af1d6094846287ec85e9f1ad4d39335c6b306e2fa",
        ),
    ],
)
def test_the_digest_of_a_hook_is_the_one_that_codex_makes(event, matcher, command, digest):
    """Two digests that Codex wrote into a configuration that somebody published."""
    assert codex_digest(event, matcher, {"command": command}) == f"sha256:{digest}"


def codex_trusts(desk, *, without=(), **more):
    """Write what Codex keeps once its person has trusted every hook, as `/hooks` does."""
    place = Path(os.environ["HOME"]) / ".codex" / "hooks.json"
    lines = [more.get("first", "")]
    for event, groups in json.loads(place.read_text())["hooks"].items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        if event not in without:
            digest = codex_digest(name, groups[0].get("matcher"), groups[0]["hooks"][0])
            lines += [f'[hooks.state."{place}:{name}:0:0"]', f'trusted_hash = "{digest}"', more.get("also", "")]
    (place.parent / "config.toml").write_text("\n".join(lines))


def test_codex_trusts_hooks_by_their_digest_and_status_says_which_it_does_not(desk):
    desk.here("bridge", "install", "codex", "--yes", status=0)
    is_trusted, why = trusted(desk, "codex")
    assert is_trusted is False
    assert "PreToolUse" in why
    assert "/hooks" in why
    assert "skipped without a message" in why
    codex_trusts(desk)
    assert trusted(desk, "codex")[0] is True
    assert "is changed is skipped without a message" in desk.here("bridge", "status", status=0).out
    codex_trusts(desk, without=("PreToolUse",))
    assert "not trusted, or changed since: PreToolUse;" in trusted(desk, "codex")[1]
    codex_trusts(desk, also="enabled = false")
    assert trusted(desk, "codex")[0] is False
    codex_trusts(desk, first="[features]\nhooks = false")
    assert "features.hooks" in trusted(desk, "codex")[1]
    codex_trusts(desk)
    desk.system("deedbook.yaml", "schema_version: v1\nagents: {codex: {asks: deedbook, wait_s: 300}}\n")
    desk.here("bridge", "install", "codex", "--yes", status=0)
    assert trusted(desk, "codex")[0] is False, "a hook that was changed is another one"


def test_codex_loads_hooks_of_a_project_that_it_trusts(desk):
    desk.here("bridge", "install", "codex", "--project", "--yes", status=0)
    assert "does not trust this project" in trusted(desk, "codex")[1]
    config = Path(os.environ["HOME"]) / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[projects."{desk.path.resolve()}"]\ntrust_level = "trusted"\n')
    assert "not trusted, or changed since" in trusted(desk, "codex")[1]
    config.write_text("no toml")
    assert trusted(desk, "codex")[0] is None


def test_codex_is_looked_for_where_its_variable_says(desk, tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    desk.here("bridge", "install", "codex", "--yes", status=0)
    assert (tmp_path / "elsewhere" / "hooks.json").exists()
    assert not (tmp_path / "home").exists()
    assert rows(desk)["codex"]["installed"] is True


@pytest.mark.parametrize(
    ("settings", "folders", "trust"),
    [
        ({}, {}, None),
        ({"security": {"folderTrust": {"enabled": False}}}, {}, True),
        ({"security": {"folderTrust": {"enabled": True}}}, {}, False),
        ({}, {"{root}": "TRUST_FOLDER"}, True),
        ({}, {"{root}/..": "TRUST_FOLDER"}, True),
        ({}, {"{root}/x": "TRUST_PARENT"}, True),
        ({}, {"{root}/x": "TRUST_FOLDER"}, None),
        ({}, {"{root}": "DO_NOT_TRUST"}, False),
        ({}, {"{root}": "DO_NOT_TRUST", "{root}/..": "TRUST_FOLDER"}, False),
        ({}, {"{root}": "TRUST_FOLDER", "{root}/..": "DO_NOT_TRUST"}, True),
    ],
)
def test_gemini_runs_hooks_in_folders_that_it_trusts(desk, settings, folders, trust):
    desk.here("bridge", "install", "gemini-cli", "--project", "--yes", status=0)
    home = Path(os.environ["HOME"]) / ".gemini"
    home.mkdir(parents=True)
    (home / "settings.json").write_text(json.dumps(settings))
    named = {os.path.normpath(name.format(root=desk.path.resolve())): level for name, level in folders.items()}
    (home / "trustedFolders.json").write_text(json.dumps(named))
    assert trusted(desk, "gemini-cli")[0] is trust


@pytest.mark.parametrize("name", ["claude-code", "copilot-cli"])
def test_trust_that_stands_beside_logins_is_not_read(desk, name):
    home = Path(os.environ["HOME"])
    for place in (".claude.json", ".copilot/config.json"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(home / place)  # who opens it waits
    desk.here("bridge", "install", name, "--yes", status=0)
    assert trusted(desk, name) == (None, agents.find_agent(name).trust)


def test_a_workspace_that_moved_takes_its_hooks_nowhere(desk, tmp_path):
    desk.here("bridge", "install", "codex", "--yes", status=0)
    moved = Place(tmp_path / "moved")
    shutil.copytree(desk.path, moved.path, dirs_exist_ok=True)
    assert rows(moved)["codex"]["installed"] is False
