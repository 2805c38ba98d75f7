"""Workspaces, plugins, folders and disks that are not as they should be: one clear line, and nothing has happened."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import COMMAND, SECONDS, Place, Ran, environment

from deedbook_author.starter import STARTER

TOUCH = """
    from pathlib import Path

    from deedbook import HandlerSpec


    class Plugin:
        spec = HandlerSpec(takes={"type": "object"}, gives={"type": "object"}, effects="write")

        def __init__(self, settings, host):
            pass

        def __call__(self, args, ctx):
            Path("it-ran").touch()
            return {}
"""
TOUCHING = """\
    schema_version: v1
    default: {write: allow}
    abilities: {touch: {summary: Leave a trace., handler: {tool: touch}}}
    """


@pytest.fixture
def small(tmp_path: Path) -> Place:
    """Give a workspace of one file, whose only tool leaves a trace when it runs."""
    place = Place(tmp_path / "small")
    place.system("deedbook.yaml", TOUCHING)
    place.offer("tools", "touch", TOUCH)
    return place


FILLING = """
    import resource
    from pathlib import Path

    from deedbook import GateSpec, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def session_stop(self, session, ok, now, facts):
            size = Path(f".deedbook/sessions/{session}/.events.jsonl").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""


def test_result_of_a_call_is_printed_where_the_end_of_its_session_cannot_be_recorded(tmp_path):
    place = Place(tmp_path / "filling")
    hook = "hooks: {fill: {event_type: SessionStop, handler: {hook: fill}}}\n"
    place.system(
        "deedbook.yaml", "schema_version: v1\nabilities: {echo: {summary: Echo., handler: {tool: echo}}}\n" + hook
    )
    place.offer("hooks", "fill", FILLING)
    ran = place.run("call", "echo", "text=sent INV-1", status=1)
    assert '"text": "sent INV-1"' in ran.out
    assert ran.err.count("error:") == 1
    assert "not recorded (File too large)" in ran.err


# --- the workspace's files --------------------------------------------------------------------------------------------

SOURCES = [
    ("deedbook.yaml", "schema_version: v1\nprofiles: [\n", "deedbook.yaml:3:1", "SOURCE_INVALID"),
    ("deedbook.yaml", "schema_version: v1\npolices: {}\n", 'did you mean "policies"?', "SOURCE_INVALID"),
    ("deedbook.yaml", "schema_version: v1\nlock: [auto]\n", "deedbook.yaml:2:7", "SOURCE_INVALID"),
    ("deedbook.yaml", "schema_version: v1\na: &x 1\nb: *x\n", "deedbook.yaml:2:4", "SOURCE_INVALID"),
    ("deedbook.yaml", "schema_version: v1\nservers: {a: {}}\n", "deedbook.yaml:2:14: a server has either command",
     "SOURCE_INVALID"),
    ("policies/p.yaml", "schema_version: v1\nid: p\nkind: ruls\n", 'did you mean "rules"?', "PLUGIN_MISSING"),
    ("policies/p.yaml", "schema_version: v1\nid: p\nkind: rules\nrules: [{match: {abilties: [x]}, then: deny}]\n",
     'policies/p.yaml:4:18: rules[0].match.abilties: unknown key; did you mean "abilities"?', "SOURCE_INVALID"),
    ("hooks/h.yaml", "schema_version: v1\nid: h\nevent_type: PreToolUs\nhandler: {hook: allow}\n",
     "hooks/h.yaml:3:13", "SOURCE_INVALID"),
    ("hooks/h.yaml", "schema_version: v1\nid: h\nevent_type: PreToolUse\nhandler: {hook: alow}\n",
     'did you mean "allow"?', "PLUGIN_MISSING"),
    ("registry/low-level/x.yaml", "schema_version: v1\nid: x\nsummary: X.\nhandler: {tool: ecko}\n",
     'did you mean "echo"?', "PLUGIN_MISSING"),
    ("registry/low-level/x.yaml", "schema_version: v1\nid: echo\nsummary: X.\nhandler: {tool: echo}\n",
     "echo", "SOURCE_INVALID"),
    ("registry/low-level/x.yml", "schema_version: v1\n", "x.yml", "SOURCE_INVALID"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "said", "code"), SOURCES, ids=[f"{p}-{n}" for n, (p, *_) in enumerate(SOURCES)]
)
def test_source_that_is_wrong_is_told_with_its_place_and_nothing_is_written(
    place: Place, path: str, text: str, said: str, code: str | None
):
    place.system(path, text)
    ran = place.here("run", "Say hello to Ada", status=1)
    assert said in ran.err
    assert f".system/{path}" in ran.err
    assert all(line.startswith("error: ") for line in ran.err.splitlines())
    assert code is None or f"[{code}]" in ran.err
    assert ran.out == ""
    assert place.sessions() == []
    told = place.here("run", "--json", "Say hello to Ada", status=1).fits("output_error_v1")
    assert code in (None, told["errors"][0]["code"])


def test_broken_yaml_touches_no_file_at_all(place: Place):
    place.system("deedbook.yaml", "schema_version: v1\nprofiles: [\n")
    for args in (["run", "hello"], ["call", "echo"], ["abilities"], ["sessions"], ["verify"], ["lock"]):
        assert ".system/deedbook.yaml:3:1: " in place.here(*args, status=1).err
    assert not (place.path / ".deedbook").exists()
    assert not (place.path / ".system/deedbook.lock").exists()


def test_everything_that_is_wrong_is_said_at_once(place: Place):
    place.system("hooks/h.yaml", "schema_version: v1\nid: h\nevent_type: Nope\nhandler: {hook: allow}\n")
    place.system("policies/p.yaml", "schema_version: v1\nid: p\n")
    place.system("registry/low-level/x.yaml", "id: x\n")
    errors = place.here("abilities", "--json", status=1).fits("output_error_v1")["errors"]
    assert {error["place"].split(":")[0] for error in errors} == {
        ".system/hooks/h.yaml", ".system/policies/p.yaml", ".system/registry/low-level/x.yaml",
    }  # fmt: skip


def test_source_that_is_a_link_is_refused(place: Place, tmp_path: Path):
    (tmp_path / "elsewhere.yaml").write_text("schema_version: v1\nid: p\nkind: rules\nrules: []\n")
    (place.path / ".system/policies/p.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert ".system/policies/p.yaml" in place.here("abilities", status=1).err


# --- plugins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('gone\\nwrong \\x1b[31m')\n", "RuntimeError: gone"),
        ("import sys\nsys.exit('I quit')\n", "SystemExit: I quit"),
        ("Plugin = 3\n", "it is int, not a class"),
        ("class Plugin:\n    pass\n", "spec"),
        (TOUCH.replace("self, args, ctx", "self, args"), "__call__"),
        (TOUCH.replace('{"type": "object"}, gives', '{"type": "objct"}, gives'), "objct"),
    ],
    ids=["raises", "exits", "no class", "no plugin", "too few arguments", "bad schema"],
)  # fmt: skip
def test_plugin_that_is_broken_is_named_with_its_distribution(small: Place, source: str, said: str):
    small.offer("tools", "touch", source)
    ran = small.run("call", "touch", status=1)
    assert said in ran.err
    assert "tool plugin 'touch' of offered-touch 1.0" in ran.err
    assert all(line.startswith("error: ") for line in ran.err.splitlines())
    assert not [char for char in ran.err if not char.isprintable() and char != "\n"]
    assert small.sessions() == []


def test_two_distributions_with_one_name_are_refused(small: Place):
    small.offer("tools", "touch", TOUCH, distribution="rival")
    assert "offered-touch" in (ran := small.run("call", "touch", status=1)).err.replace("_", "-")
    assert "rival" in ran.err


def test_flow_or_model_that_the_profile_names_in_vain_is_refused(place: Place):
    place.configure("provider: rules", "provider: rulez")
    assert 'did you mean "rules"?' in place.run("run", "hello", status=1).err


# --- folders and disks ------------------------------------------------------------------------------------------------


def test_state_of_another_workspace_is_refused(small: Place, tmp_path: Path):
    shared = tmp_path / "shared"
    other = Place(tmp_path / "other")
    for place in (small, other):
        place.system("deedbook.yaml", f"state: {shared}\n{TOUCHING.replace('    ', '')}")
    other.env = small.env
    assert small.run("call", "touch", status=0).json == {}
    before = sorted(path for path in shared.rglob("*") if "charters" not in path.parts)
    ran = other.run("call", "touch", status=1)
    assert "[STATE_IN_USE]" in ran.err
    assert str(small.path) in ran.err
    assert not (other.path / "it-ran").exists()
    assert sorted(path for path in shared.rglob("*") if "charters" not in path.parts) == before
    assert small.run("call", "touch", status=0).json == {}


def test_workspace_may_move_with_its_state(small: Place):
    small.run("call", "touch", status=0)
    moved = small.path.rename(small.path.with_name("moved"))
    place = Place(moved)
    place.env = small.env
    assert place.run("call", "touch", status=0).json == {}
    assert place.run("verify", status=0).out.endswith("all 3 sound\n")


AS_NOBODY = """
import json, os, sys
from deedbook.cli import program as cli

def call(*args):
    sys.argv = ["deedbook", *args]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

call("call", "touch")  # imports everything: another user may not be able to read the interpreter's files
os.chdir(os.environ["PLACE"])
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print("---", file=sys.stderr, flush=True)
os._exit(call("call", "touch"))
"""


def as_nobody(place: Place, warm: Place) -> Ran:
    """Call ``touch`` in *place* as another user, after it was called in *warm* as this one."""
    ended = subprocess.run(
        [sys.executable, "-c", AS_NOBODY], cwd=warm.path,
        env=environment(**place.env, PLACE=str(place.path)), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode().partition("---\n")[2])


def open_to_all(path: Path) -> None:
    """Let everybody reach *path*, as far as its parents are this user's and closed, and read what is below it."""
    for parent in (path, *path.parents):
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | 0o055)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("moment", ["absent", "closed", "readable"])
def test_state_folder_that_cannot_be_written_is_one_line_and_no_tool_runs(small: Place, tmp_path: Path, moment: str):
    warm = Place(tmp_path / "warm")
    shutil.copytree(small.path, warm.path)
    if moment != "absent":
        small.run("call", "touch", status=0)
        (small.path / "it-ran").unlink()
    open_to_all(small.path)
    if moment == "readable":
        for path in (small.path / ".deedbook", *(small.path / ".deedbook").rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    ran = as_nobody(small, warm)
    assert ran.status == 1, ran
    assert len(ran.err.splitlines()) == 1, ran
    assert "ermission denied" in ran.err
    assert ".deedbook" in ran.err
    assert not (small.path / "it-ran").exists()


def test_state_folder_that_is_a_file_is_one_line(small: Place):
    (small.path / ".deedbook").write_text("in the way")
    ran = small.run("call", "touch", status=1)
    assert len(ran.err.splitlines()) == 1
    assert ".deedbook" in ran.err
    assert not (small.path / "it-ran").exists()


def test_state_folder_that_is_a_link_is_the_folder_behind_it(small: Place, tmp_path: Path):
    (tmp_path / "real").mkdir()
    (small.path / ".deedbook").symlink_to(tmp_path / "real")
    small.run("call", "touch", status=0)
    assert [path.name for path in (tmp_path / "real").iterdir() if path.name == "sessions"]


def test_workspace_ledger_that_was_changed_stops_everything(small: Place):
    small.run("call", "touch", status=0)
    (small.path / "it-ran").unlink()
    own = small.path / ".deedbook/workspace/.events.jsonl"
    raw = own.read_bytes()
    own.write_bytes(raw[:-80] + bytes([raw[-80] ^ 1]) + raw[-79:])
    ran = small.run("call", "touch", status=4)
    assert "[LEDGER_UNSOUND]" in ran.err
    assert not (small.path / "it-ran").exists()
    small.run("verify", status=4)


def test_charter_that_was_changed_in_the_state_folder_is_told_and_compiled_anew(small: Place):
    small.run("call", "touch", status=0)
    (charter,) = (small.path / ".deedbook/charters").glob("*/charter.json")
    sound = charter.read_bytes()
    charter.write_bytes(sound.replace(b'"write"', b'"none" '))
    assert "was changed; find out who changed it" in small.run("call", "touch", status=0).err
    assert charter.read_bytes() == sound
    small.run("verify", status=0)


@pytest.mark.parametrize("kib", [0, 4, 16])
def test_file_size_limit_ends_in_a_clear_message_and_keeps_the_ledger_sound(place: Place, kib: int):
    """A limit on file sizes stands for a full disk: writes fail in the middle of a session."""
    script = f'ulimit -f {kib}; trap "" XFSZ; exec "$D" run "Say hello to Ada"'
    ended = subprocess.run(
        ["/bin/bash", "-c", script], cwd=place.path, env=environment(D=COMMAND), capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr
    assert "File too large" in ended.stderr or "LEDGER_BROKEN" in ended.stderr
    for session in place.sessions():
        if place.ledger(session).stat().st_size:
            assert place.run("verify", session, status=0).out.endswith("sound\n")
    assert place.run("run", "Say hello to Ada", status=0).out == "Hello, Ada!\n"


def test_secret_that_is_not_set_is_told_by_name_and_never_by_value(place: Place):
    place.system("deedbook.yaml", (STARTER / "deedbook.yaml").read_text() + "secrets: {gh: {env: NOT_SET_ANYWHERE}}\n")
    assert place.run("run", "hello", status=0).out == "Hello, world!\n", "nobody asked for it"
    ran = place.run("run", "Say hello to Hunter Two", NOT_SET_ANYWHERE="Hunter Two", status=0)
    raw = place.ledger(ran.session).read_text()
    assert "Hunter Two" not in raw
    assert "[secret:gh]" in raw
    assert json.loads(raw.splitlines()[0])["event_type"] == "session.start"


def test_copy_of_a_workspace_without_its_state_begins_anew(place: Place, tmp_path: Path):
    place.run("run", "hello", status=0)
    shutil.copytree(place.path / ".system", tmp_path / "copy/.system")
    assert Place(tmp_path / "copy").run("sessions", status=0).out == "no sessions yet\n"
