"""The command line, called wrongly or for help: it says what is wrong, what was meant, and imports little."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import click
import pytest
from click.testing import CliRunner
from commandline import COMMAND, SECONDS, Place, environment

from deedbook.cli.common import GlobalOptions, OpenGroup
from deedbook.cli.output import is_data_command
from deedbook.cli.program import _status, program, sections
from deedbook.plugins.commands import find_commands

OURS = {
    "deedbook", "deedbook-approvals", "deedbook-audit", "deedbook-author", "deedbook-inspect", "deedbook-legacy",
    "deedbook-log", "deedbook-memory", "deedbook-serve",
}  # fmt: skip
"""The distributions whose commands are data commands."""
SECTIONS = sections()
COMMANDS = [name for listed in SECTIONS.values() for name in listed]
EVERYTHING = [[], *([name] for name in COMMANDS), ["sessions", "close"]]
HEAVY = ("ruamel", "jsonschema_rs", "fastjsonschema", "cattrs", "orjson", "asyncio")
WRONG = [
    (["rn"], "there is no command 'rn'; did you mean \"run\"?"),
    (["sesions"], 'did you mean "sessions"?'),
    (["zzz"], "there is no command 'zzz'"),
    (["--frobnicate"], "--frobnicate"),
    (["--kind", "tool", "plugins"], "options of a command stand after it: deedbook COMMAND --kind"),
    (["new", "plugin", "x"], "Missing option '--kind'. Choose from: tool, provider,"),
    (["completion"], "Choose from: bash, zsh, fish"),
    (["run"], "PROMPT"),
    (["run", ""], "the request is empty"),
    (["run", " \t\n"], "the request is empty"),
    (["run", "Say", "hello"], "put it in quotes"),
    (["run", "--jsn", "hello"], "--json"),
    (["run", "--profile"], "--profile"),
    (["run", "--profile", "lokal", "hello"], "profile 'lokal' is not declared; did you mean \"local\"?"),
    (["run", "--as", "bob", "hello"], "principal 'bob' is not declared"),
    (["call"], "ABILITY"),
    (["call", "echo", "--args", "{bad"], "--args: not acceptable JSON"),
    (["call", "echo", "--args", '{"text":"a","text":"b"}'], "--args: not acceptable JSON"),
    (["call", "echo", "--args", '{"text":NaN}'], "--args: not acceptable JSON"),
    (["call", "echo", "--args", '{"text":"\\ud800"}'], "--args: "),
    (["call", "echo", "--args", "[" * 2000], "--args: not acceptable JSON"),
    (["call", "echo", "--args", ""], "--args: not acceptable JSON"),
    (["call", "echo", "extra"], "extra"),
    (["abilities", "--profile", "lokal"], 'did you mean "local"?'),
    (["lock", "--profile", "lokal"], 'did you mean "local"?'),
    (["sessions", "clos"], "there is no command 'clos'; did you mean \"close\"?"),
    (["sessions", "close"], "SESSION"),
    (["abilities", "list"], "there is no command 'list'; `deedbook abilities` by itself lists them"),
    (["sessions", "list"], "there is no command 'list'; `deedbook sessions` by itself lists them"),
    (["sessions", "close", "nothere"], "there is no session 'nothere'"),
    (["verify", "nothere"], "there is no session 'nothere'"),
    (["verify", "nothere.jsonl"], "no file of that name exists"),
    (["replay", "../../etc/passwd"], "no file of that name exists"),
    (["tree", "x\n\x1b[31m"], "no file of that name exists"),
    (["export", "nothere"], "there is no session 'nothere'"),
    (["export", "nothere", "--as", "seed-003"], "'seed-003' is not one of 'seed-002', 'cloudevents'"),
    (["-C", "/", "abilities"], "no folder .system/ in / or any folder above it"),
    (["-C", "/nowhere/at/all", "run", "hello"], "there is no folder /nowhere/at/all"),
]


@pytest.mark.parametrize(("args", "said"), WRONG, ids=[" ".join(args)[:40].strip() for args, _ in WRONG])
def test_wrong_call_is_explained_and_exits_2(told: Place, args: list[str], said: str):
    before = told.sessions()
    ran = told.here(*args, status=2)
    assert ran.out == ""
    assert said in ran.err
    assert ran.err.startswith("error: ")
    assert "\x1b" not in ran.err
    assert told.sessions() == before, "nothing was begun"


def test_wrong_call_says_how_the_command_is_called(told: Place):
    assert told.run("run", "Say", "hello", status=2).err.count("[OPTIONS] PROMPT\n") == 1
    ran = told.run("verify", "--bogus", status=2)
    assert "Usage: deedbook verify [OPTIONS] [LEDGER]" in ran.err
    assert "deedbook verify --help" in ran.err


def test_close_of_an_ended_session_says_that_nothing_is_closed(told: Place):
    ran = told.run("sessions", "close", told.sessions()[0], status=1)
    assert "has ended already, so nothing is closed; no session is interrupted [SESSION_ENDED]" in ran.err


@pytest.mark.parametrize("args", [[], ["nothing"]], ids=["none", "wrong"])
def test_install_of_no_adapter_lists_the_adapters(args: list[str]):
    script = Path(__file__).parents[1] / "adapters/install"
    ran = subprocess.run([str(script), *args], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 2
    assert "there are: deedbook-adapter-agent-framework deedbook-adapter-" in ran.stderr


JSON = [
    ["verify", "--bogus", "--json"],
    ["verify", "--json", "--bogus"],
    ["whatif", "--all", "--json"],
    ["policy", "test", "--json", ".system/policies/no.test.yaml"],
    ["approvals", "show", "--json"],
    ["call", "echo", "--args", "{", "--json"],
    ["replay", "nothing", "--json"],
    ["agents", "--profile", "nothing", "--json"],
    ["keys", "show", "../x", "--json"],
]


@pytest.mark.parametrize("args", JSON, ids=" ".join)
def test_wrong_call_that_wants_json_gets_one_document_of_errors(place: Place, args):
    ran = place.here(*args)
    assert ran.status in (1, 2)
    assert ran.fits("output_error_v1")["errors"][0]["code"]


def test_session_id_that_begins_several_wants_more_of_it(told: Place, tmp_path: Path):
    copy = Place(tmp_path / "w")
    copy.system("deedbook.yaml", "schema_version: v1\n")
    for name in ("abc1", "abc2"):
        copy.write(f".deedbook/sessions/{name}/.events.jsonl", "")
    assert "2 sessions begin with 'abc'" in copy.run("replay", "abc", status=2).err


def test_misspelt_session_is_told_the_nearest(told: Place):
    session = told.sessions()[0]
    wrong = ("0" if session[0] != "0" else "1") + session[1:]
    assert f'did you mean "{session}"?' in told.run("replay", wrong, status=2).err


MANY = "9" * 5000
NUMBERS = {
    "call --args": ["call", "echo", "--args", f'{{"text": {MANY}}}'],
    "prove --event": ["prove", "x", "--event", MANY],
    "fork --at": ["fork", "x", "--at", MANY],
    "verify --jobs": ["verify", "--jobs", MANY],
    "stats --since": ["stats", "--since", f"{MANY}d"],
    "memory propose --result": ["memory", "propose", "world_state", "k", "v", "--result", f"SESSION:{MANY}"],
    "memory propose --result, no number": ["memory", "propose", "world_state", "k", "v", "--result", 'SESSION:1,"ts":'],
    "memory propose --expected": ["memory", "propose", "world_state", "k", "v", "--expected", MANY],
    "witness serve --listen": ["witness", "serve", "--listen", f"127.0.0.1:{MANY}"],
    "witness serve --listen, other digits": ["witness", "serve", "--listen", "127.0.0.1:\u0663"],
    "mcp serve --http": ["mcp", "serve", "--http", f"127.0.0.1:{MANY}"],
}


@pytest.mark.parametrize("args", NUMBERS.values(), ids=NUMBERS)
def test_number_of_5000_digits_is_wrong_usage_and_no_fault_of_ours(told: Place, args: list[str]):
    session = told.sessions()[0]
    ran = told.here(*(each.replace("SESSION", session) for each in args), status=2)
    assert "internal error" not in ran.err


def test_misspelt_ability_is_told_the_nearest(place: Place):
    ran = place.run("call", "ecko", status=3)
    assert "no ability 'ecko' is declared; did you mean \"echo\"? [TOOL_NOT_FOUND]" in ran.err


def test_folder_without_a_workspace_is_refused_with_what_to_do(tmp_path: Path):
    ran = Place(tmp_path).run("run", "hello", status=2)
    assert "deedbook init" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_present_folder_that_is_gone_is_one_line(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "{COMMAND}" abilities'
    ended = subprocess.run(
        ["/bin/sh", "-c", script], env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode in (1, 2)
    assert len(ended.stderr.splitlines()) == 1
    assert "Traceback" not in ended.stderr


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", EVERYTHING, ids=[" ".join(args) or "deedbook" for args in EVERYTHING])
def test_help_fits_a_screen_and_names_every_option(tmp_path: Path, args: list[str]):
    ran = Place(tmp_path).here(*args, "--help", status=0)
    assert ran.err == ""
    assert ran.out.startswith(f"Usage: {' '.join(['deedbook', *args])} ")
    assert len(ran.out.splitlines()) <= (24 if args else len(COMMANDS) + 12 + 2 * len(SECTIONS))
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "-h, --help" in ran.out


def test_help_lists_every_command_on_one_line(tmp_path: Path):
    _, _, help_text = Place(tmp_path).run("-h", status=0).out.partition("--help")
    _, *sections = re.split(r"^[A-Z][a-z]+:\n", help_text, flags=re.MULTILINE)
    listed = [[line.split()[0] for line in section.splitlines() if line] for section in sections]
    assert listed == [list(group) for group in SECTIONS.values()]


def test_help_describes_commands_and_has_no_markup(tmp_path: Path):
    shown = Place(tmp_path).run("-h", status=0).out
    assert not re.findall(r".*(?:``| The (?:command|group) ).*", shown)


def test_command_alone_shows_the_help_and_exits_2(tmp_path: Path):
    ran = Place(tmp_path).run(status=2)
    assert ran.out == ""
    assert "\nWorkspace:\n" in ran.err
    assert "error:" not in ran.err


def test_version_is_that_of_the_distribution(tmp_path: Path):
    from importlib.metadata import version

    assert Place(tmp_path).run("--version", status=0).out == f"deedbook {version('deedbook')}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_three_shells(tmp_path: Path, shell: str):
    script = Place(tmp_path).run(_DEEDBOOK_COMPLETE=f"{shell}_source", status=0).out
    assert "_DEEDBOOK_COMPLETE" in script
    asked = {"COMP_WORDS": "deedbook ver", "COMP_CWORD": "1" if shell != "fish" else "ver"}
    assert "verify" in Place(tmp_path).run(_DEEDBOOK_COMPLETE=f"{shell}_complete", **asked, status=0).out


IMPORTS = """
import json, os, sys
from deedbook.cli.program import main
for line in sys.stdin:
    if os.fork():
        os.wait()
        continue
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    cwd, sys.argv = json.loads(line)
    os.chdir(cwd)
    status = None
    try:
        main()
    except SystemExit as end:
        status = end.code
    finally:
        print(json.dumps([status, sorted(sys.modules)]), file=answers, flush=True)
        os._exit(0)
"""
"""Runs each command in a fork of a process that has imported what the command begins with."""
Imported: TypeAlias = Callable[..., tuple[int, set[str]]]


@pytest.fixture(scope="module")
def imported() -> Iterator[Imported]:
    """Give a function that runs the command in a process and returns its status and what it has imported."""
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTS], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip

    def ask(*args: str, cwd: Path) -> tuple[int, set[str]]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([str(cwd), ["deedbook", *args]]) + "\n")
        process.stdin.flush()
        status, modules = json.loads(process.stdout.readline())
        return status, set(modules)

    yield ask
    process.communicate(timeout=SECONDS)


@pytest.mark.parametrize("args", EVERYTHING, ids=[" ".join(args) or "deedbook" for args in EVERYTHING])
def test_help_imports_no_plugin_and_nothing_heavy(imported: Imported, tmp_path: Path, args: list[str]):
    status, modules = imported(*args, "--help", cwd=tmp_path)
    assert status == 0
    offered = find_commands().get(args[0]) if args else None
    own = {target.split(".")[0] for target in offered.targets} if offered else set()
    foreign = {name.split(".")[0] for name in modules} - own
    assert not [name for name in foreign if name in HEAVY or name.startswith("deedbook_")]
    assert "deedbook.kernel" not in modules


def test_help_of_the_whole_command_imports_little_more_than_click(imported: Imported, tmp_path: Path):
    """Reading metadata with a library, and attrs, doubled the time of ``deedbook --help``."""
    status, modules = imported("--help", cwd=tmp_path)
    assert status == 0
    standard = {*sys.stdlib_module_names, "__main__", "click", "deedbook"}
    run = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, check=True)
    assert {name.partition(".")[0] for name in modules} <= {*standard, *run.stdout.decode().replace(".", " ").split()}
    assert not modules & {"deedbook.format.errors", "importlib.metadata", "pathlib"}


@pytest.mark.parametrize(
    "command",
    [["abilities"], ["sessions"], ["verify"], ["replay", "S"], ["tree", "S"], ["export", "S", "--as", "seed-002"]],
    ids=lambda command: command[0],
)
def test_reading_command_imports_no_plugin(imported: Imported, told: Place, command: list[str]):
    args = [told.sessions()[0] if arg == "S" else arg for arg in command]
    status, modules = imported(*args, cwd=told.path)
    assert status == 0
    plugins = {name.partition(".")[0] for name in modules if name.startswith("deedbook_")}
    # judging again asks Deedbook's own rules, and nobody else's
    assert plugins <= {"deedbook_audit", "deedbook_author", "deedbook_inspect", "deedbook_policy_standard"}


def test_command_of_ours_has_standard_output_to_itself_and_one_that_is_not_marked_has_not():
    """The marker is explicit: `data_command` marks a command of any distribution, and nothing else does."""
    found = {name: each for name, each in find_commands().items() if {*each.owners} <= OURS}
    assert {"verify", "ledger.checkpoint", "replay"} <= found.keys()
    assert [name for name, each in found.items() if not is_data_command(each.load())] == []
    assert not is_data_command(click.Command("hello"))


def test_unknown_command_names_its_distribution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("deedbook.cli.program.find_commands", dict)
    ran = CliRunner().invoke(program, ["verify"], obj=GlobalOptions())
    assert ran.exit_code == 2
    assert "pip install deedbook-audit" in ran.output


def test_command_that_needs_a_missing_distribution_names_it(
    told: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["deedbook", "-C", str(told.path), "replay", told.sessions()[0]])
    for name in [name for name in sys.modules if name.startswith("deedbook_audit")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "deedbook_audit", None)
    assert _status(GlobalOptions()) == 1
    assert "needs deedbook-audit, which is not installed: pip install deedbook-audit" in capsys.readouterr().err


def test_acting_command_imports_only_plugins_that_the_workspace_binds(imported: Imported, place: Place):
    plugins = {name.split(".")[0] for name in imported("run", "hello", cwd=place.path)[1] if name[:9] == "deedbook_"}
    assert "deedbook_tool_standard" in plugins
    assert "deedbook_testing" not in plugins
    assert os.environ.get("PYTHONPATH") is None or plugins


class BareGroup(OpenGroup):
    """A group that no installed distribution adds a command to."""

    def external_commands(self):
        return {}


def test_help_of_a_group_without_commands_names_the_distributions_that_have_some():
    shown = CliRunner().invoke(BareGroup("ledger"), ["--help"]).output
    assert "erase       not installed: pip install deedbook-log" in shown
    assert "import      not installed: pip install deedbook-legacy" in shown


def test_help_of_a_group_that_nobody_adds_to_lists_nothing():
    ran = CliRunner().invoke(BareGroup("nothing"), ["--help"])
    assert (ran.exit_code, "Commands:" in ran.output) == (0, False)
