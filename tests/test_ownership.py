"""Workspaces that others own or may write: nothing in them runs or decides, and what is recorded can be read."""

import os
import stat
import struct
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from commandline import Place, starter

from deedbook import open_kernel
from deedbook.format.copies import find_copy, mark_copy
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.ownership import TRUSTED, TRUSTED_FILE, OwnerCheck, UntrustedError
from deedbook.workspace.sources import find_workspace
from deedbook.workspace.trust import check_own, hold_sources
from deedbook.workspace.workspace import survey_workspace

OTHER = 54321
"""A user and a group that are nobody's here."""
UNTRUSTED = "[WORKSPACE_UNTRUSTED]"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")

HOOK = """\
    #!/bin/sh
    touch ran
    echo '{"decision": "allow"}'
    """


@pytest.fixture(autouse=True)
def _own_list(tmp_path_factory, monkeypatch):
    """Give each test a list of trusted workspaces of its own, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.delenv(TRUSTED, raising=False)


@contextmanager
def changed(path, mode=None, owner=None, group=None):
    """Give *path* other bits of its mode, or another owner, for a while."""
    found = path.stat()
    if owner is not None or group is not None:
        os.chown(path, found.st_uid if owner is None else owner, found.st_gid if group is None else group)
    path.chmod(stat.S_IMODE(found.st_mode) | (mode or 0))
    yield
    os.chown(path, found.st_uid, found.st_gid)
    path.chmod(stat.S_IMODE(found.st_mode))


@pytest.fixture(scope="module")
def hooked(tmp_path_factory):
    """Give a workspace with one session, and with a program as a hook, which leaves a file where it ran.

    Those who change it change it back.
    """
    place = starter(tmp_path_factory.mktemp("hooked") / "workspace")
    place.write("hook.sh", HOOK).chmod(0o755)
    place.system(
        "hooks/watch.yaml",
        """\
        schema_version: v1
        id: watch
        event_type: PreToolUse
        handler: {script: [./hook.sh]}
        match: {}
        """,
    )
    place.here("keys", "new", "owner-test", "--out", ".system/ada.pub", status=0)
    place.configure("schema_version: v1", "schema_version: v1\nprincipals: {ada: {roles: [approver], key: ada.pub}}")
    place.configure("lock: auto", "lock: required")
    place.here("lock", status=0)
    place.here("call", "echo", "text=hi", status=0)
    (place.path / "ran").unlink()
    return place


def trust(*folders, mode=0o600):
    """Write the user's list of trusted workspaces."""
    file = Path(os.environ["XDG_CONFIG_HOME"], "deedbook", TRUSTED_FILE)
    file.parent.mkdir(exist_ok=True)
    file.write_text("# mine\n\n" + "".join(f"{folder}\n" for folder in folders))
    file.chmod(mode)
    return file


def refused(path, **options):
    """Open the workspace at *path*, which is refused with one error, and return it."""
    with pytest.raises(UntrustedError) as caught:
        open_kernel(path, **options)
    (error,) = caught.value.errors
    assert error.code == "WORKSPACE_UNTRUSTED"
    return error


def snapshot(folder):
    """Return every file below *folder* with its bytes and its time."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


# --- commands ---------------------------------------------------------------------------------------------------------

RUNNING = (
    ("call", "echo", "text=hi"),
    ("run", "Say hello to Ada"),
    ("resume", "last"),
    ("fork", "last", "--at", "3"),
    ("fork", "last", "--at", "3", "--run"),
    ("approvals", "approve", "abc"),
    ("tasks", "create", "echo", "--args", '{"text":"hi"}'),
    ("tasks", "render"),
    ("memory", "rebuild"),
    ("freeze", "--all", "--reason", "because"),
    ("thaw", "--all"),
    ("serve",),
    ("serve", "--check"),
    ("mcp", "serve"),
    ("mcp", "list"),
    ("swe", "run", "--all"),
    ("workflow", "run", "review", "x"),
    ("lock",),
    ("hooks", "test"),
    ("policy", "test"),
    ("registry", "lint"),
    ("explain", "echo", "text=hi"),
    ("whatif", "--system", ".", "--all"),
    ("compile", "say hello"),
    ("doctor", "--guarantees"),
    ("sessions", "close", "last"),
    ("ledger", "checkpoint"),
    ("notify", "run"),
    ("bridge", "status"),
    ("workdocs",),
)


@pytest.mark.parametrize("args", RUNNING, ids=" ".join)
def test_command_that_runs_or_decides_stops_where_others_may_write_the_settings(hooked, args):
    before = snapshot(hooked.path)
    with changed(hooked.path / ".system", 0o777):
        ran = hooked.run(*args) if args == ("mcp", "serve") else hooked.here(*args)  # it writes to the descriptors
    assert ran.status != 0
    assert UNTRUSTED in ran.err, ran
    assert ran.err.count("WORKSPACE_UNTRUSTED") == 1
    assert f"{hooked.path}/.system" in ran.err
    assert "mode 0777" in ran.err
    assert snapshot(hooked.path) == before


READING = (
    ("sessions",),
    ("tree", "last"),
    ("replay", "last"),
    ("stats", "all"),
    ("export", "last", "--as", "cloudevents"),
    ("processes",),
    ("verify",),
    ("verify", "last"),
    ("approvals", "list"),
    ("tasks", "list"),
    ("memory", "list"),
    ("memory", "history"),
)


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_reading_command_goes_on_with_the_record_writes_nothing_and_says_so_in_one_line(hooked, args):
    before = snapshot(hooked.path)
    with changed(hooked.path / ".system", 0o777):
        ran = hooked.here(*args, status=0)
    assert [line for line in ran.err.splitlines() if str(hooked.path / ".system") in line] == [
        next(line for line in ran.err.splitlines() if line.startswith("only the record is read"))
    ]
    assert snapshot(hooked.path) == before


def test_doctor_names_the_workspace_that_others_may_write_and_runs_nothing_of_it(hooked):
    with changed(hooked.path / ".system", 0o777):
        ran = hooked.here("doctor", status=1)
    assert "can be written by every user" in ran.out
    assert not (hooked.path / "ran").exists()


def test_bridge_refuses_a_hook_where_others_may_write_the_settings(hooked):
    with changed(hooked.path / ".system", 0o777):
        ran = hooked.run("bridge", "PreToolUse", stdin=b"{}")
    assert (ran.status, ran.out) == (2, "")
    assert "can be written by every user" in ran.err


def test_guard_refuses_a_workspace_that_others_may_write_and_makes_none_instead(hooked, tmp_path):
    from deedbook import guard

    with changed(hooked.path / ".system", 0o777), pytest.raises(DeedbookError, match="can be written by every user"):
        guard("shop", workspace=hooked.path, state=tmp_path / "state").call("find", {}, pytest.fail)
    assert not (tmp_path / "state").exists()


# --- what is checked --------------------------------------------------------------------------------------------------

DECIDING = (
    ".",
    ".system",
    ".system/deedbook.yaml",
    ".system/hooks",
    ".system/hooks/watch.yaml",
    ".system/policies/baseline.yaml",
    ".system/registry",
    ".system/registry/low-level/echo.yaml",
    ".system/skills/greet",
    ".system/skills/greet/SKILL.md",
    ".system/deedbook.lock",
    ".system/ada.pub",
    ".system/agents",
    "hook.sh",
    ".deedbook",
    ".deedbook/workspace",
    ".deedbook/workspace/.events.jsonl",
    ".deedbook/charters",
)


@pytest.mark.parametrize("name", DECIDING)
def test_each_file_that_decides_is_refused_where_others_may_write_it(hooked, name):
    with changed(hooked.path / name, 0o002):
        error = refused(hooked.path)
    assert error.place == str(hooked.path / name)
    assert "can be written by every user" in error.message


@root_only
def test_each_file_that_decides_is_refused_where_another_user_owns_it(hooked):
    for name in DECIDING:
        with changed(hooked.path / name, owner=OTHER):
            error = refused(hooked.path)
        assert error.place == str(hooked.path / name)
        assert f"owner {OTHER}, group 0 (root), mode 0" in error.message


@pytest.mark.parametrize("name", [each for each in DECIDING if each.startswith(".system") and "lock" not in each])
def test_each_source_is_checked_where_it_is_read_and_none_is_set_aside(hooked, name):
    with changed(hooked.path / name, 0o002), pytest.raises(UntrustedError) as caught:
        survey_workspace(hooked.path)
    assert caught.value.error.place == str(hooked.path / name)


@root_only
def test_group_of_others_may_not_write_what_decides(hooked):
    for name in (".system", ".system/policies/baseline.yaml", ".deedbook"):
        with changed(hooked.path / name, 0o020):
            open_kernel(hooked.path).close()  # the group of root holds root alone
        with changed(hooked.path / name, 0o020, group=OTHER):
            assert f"can be written by the group {OTHER}" in refused(hooked.path).message


def test_access_list_that_lets_another_user_write_is_refused(place):
    target = place.path / ".system/policies/baseline.yaml"
    entries = ((0x01, 6, -1), (0x02, 6, OTHER), (0x04, 4, -1), (0x10, 6, -1), (0x20, 4, -1))
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(target, "system.posix_acl_access", raw)
    except (AttributeError, OSError):
        pytest.skip("this file system has no access control lists")
    assert "can be written by" in refused(place.path).message


def test_data_that_others_may_write_is_no_obstacle(place):
    place.write("data/table.csv", "a,b\n").chmod(0o666)
    (place.path / "data").chmod(0o777)
    open_kernel(place.path).close()


def test_program_in_the_workspace_that_an_ability_names_is_refused_where_others_may_write_it(place):
    place.write("tools/count.py", f"#!{sys.executable}\nopen('ran', 'w')\n").chmod(0o755)
    for name, argv in {
        "direct": [f"{place.path}/tools/count.py"],
        "interpreted": [sys.executable, "tools/count.py"],
    }.items():
        place.system(
            f"registry/low-level/{name}.yaml",
            f"""\
            schema_version: v1
            id: {name}
            summary: Count.
            handler: {{tool: process}}
            effects: read
            schema_in: {{type: object, additionalProperties: false}}
            schema_out: true
            with: {{argv: {argv}}}
            """.replace("'", '"'),
        )
    for name in ("direct", "interpreted"):
        place.here("call", name, status=0)
        (place.path / "ran").unlink()
    (place.path / "tools").chmod(0o777)
    for name in ("direct", "interpreted"):
        ran = place.here("call", name)
        assert ran.status != 0
        assert f"{place.path}/tools: can be written by every user" in ran.err, ran
    assert place.here("call", "echo", "text=hi", status=0)  # a warm start asks only for what is called
    assert not (place.path / "ran").exists()


@pytest.mark.parametrize(
    ("section", "args"),
    [
        ("features: {{notify: {{targets: {{pager: {{command: {{run: [{0}]}}}}}}}}}}", ("notify", "run", "--once")),
        ("servers: {{shop: {{command: [{0}]}}}}", ("mcp", "refresh", "shop", "--yes")),
    ],
)
def test_program_that_a_command_starts_is_refused_where_others_may_write_it(place, section, args):
    program = place.write("tools/program", "#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    place.configure("schema_version: v1", "schema_version: v1\n" + section.format(program))
    program.chmod(0o777)
    ran = place.here(*args)
    assert ran.status != 0
    assert f"{program}: can be written by every user" in ran.err, ran
    assert not (place.path / "ran").exists()


def test_plugins_are_not_imported_from_a_folder_of_the_workspace_that_others_may_write(place, monkeypatch):
    folder = place.path / "venv/lib/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    open_kernel(place.path).close()
    (place.path / "venv/lib").chmod(0o777)
    assert refused(place.path).place == str(place.path / "venv/lib")


def forked_check(root, user):
    """Return whether a process of *user* may use the workspace at *root*."""
    child = os.fork()
    if not child:
        status = 2
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            check_own(root)
            status = 0
        except UntrustedError:
            status = 1
        finally:
            os._exit(status)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@root_only
def test_root_and_the_user_of_the_process_are_accepted_owners_and_nobody_else(monkeypatch):
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        root = Path(made) / "ws"
        starter(root)
        assert forked_check(root, OTHER)
        for path in (root, *root.rglob("*")):
            os.chown(path, OTHER, OTHER)
        assert forked_check(root, OTHER)
        assert not forked_check(root, OTHER + 1)
        assert not forked_check(root, 0)
        os.chown(root / ".system", 0, 0)
        assert forked_check(root, OTHER)
        monkeypatch.delenv("XDG_CONFIG_HOME")
        for home in ("/nowhere", "", made):
            monkeypatch.setenv("HOME", home)
            assert not forked_check(root, OTHER + 1)


# --- folders above ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "fine"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_folder_above_is_refused_where_others_could_put_another_workspace_in_the_place(tmp_path, mode, fine):
    shared = tmp_path / "shared"
    starter(shared / "ws")
    shared.chmod(mode)
    if fine:
        open_kernel(shared / "ws").close()
    else:
        assert refused(shared / "ws").place == str(shared)


def test_workspace_in_a_shared_folder_itself_is_refused(tmp_path):
    place = starter(tmp_path / "shared")
    (place.path / "mine").mkdir()
    place.path.chmod(0o1777)
    assert refused(place.path / "mine").place == str(place.path)


@root_only
def test_folder_above_of_another_user_is_refused(tmp_path):
    starter(tmp_path / "theirs/ws")
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    assert refused(tmp_path / "theirs/ws").place == str(tmp_path / "theirs")


@pytest.mark.parametrize("name", [".system", ".system/policies/baseline.yaml"])
def test_link_to_what_others_may_write_is_refused(place, tmp_path, name):
    target = place.path / name
    target.rename(tmp_path / "moved")
    (tmp_path / "moved").chmod(0o777)
    target.symlink_to(tmp_path / "moved")
    with pytest.raises(DeedbookError, match="link"):
        open_kernel(place.path)


def test_state_elsewhere_is_refused_where_others_may_write_above_it(place, tmp_path):
    place.configure("schema_version: v1", f"schema_version: v1\nstate: {tmp_path}/var/state")
    open_kernel(place.path).close()
    (tmp_path / "var").chmod(0o777)
    assert refused(place.path).place == str(tmp_path / "var")


# --- the list of trusted workspaces -----------------------------------------------------------------------------------


@root_only
def test_workspace_of_another_owner_works_where_the_user_lists_it(place):
    for path in (place.path, *place.path.rglob("*")):
        os.chown(path, OTHER, OTHER)
    assert str(place.path) in refused(place.path).message
    trust(place.path)
    assert place.here("call", "echo", "text=hi", status=0).json == {"text": "hi"}


def test_variable_lists_trusted_workspaces(place, monkeypatch):
    (place.path / ".system").chmod(0o777)
    monkeypatch.setenv(TRUSTED, f"/elsewhere:{place.path}")
    open_kernel(place.path).close()
    monkeypatch.setenv(TRUSTED, f"{place.path.parent}:.")
    assert f"'.' in {TRUSTED} is not used: it is no absolute path" in refused(place.path).message


def test_list_that_others_may_write_is_not_used(place):
    (place.path / ".system").chmod(0o777)
    file = trust(place.path, mode=0o666)
    assert f"{file} is not used: can be written by every user" in refused(place.path).message
    file.chmod(0o600)
    open_kernel(place.path).close()
    file.parent.chmod(0o777)
    assert f"{file} is not used: can be written by every user" in refused(place.path).message


def test_list_inside_the_workspace_is_not_used(place, monkeypatch):
    (place.path / ".system").chmod(0o777)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.path))
    file = trust(place.path)
    assert f"{file} is not used: it is inside the workspace" in refused(place.path).message


@root_only
def test_list_of_another_user_is_not_used(place):
    (place.path / ".system").chmod(0o777)
    file = trust(place.path)
    os.chown(file, OTHER, 0)
    assert f"{file} is not used: belongs neither to root" in refused(place.path).message


def test_state_alone_can_be_listed(place):
    place.here("call", "echo", "text=hi", status=0)
    (place.path / ".deedbook").chmod(0o777)
    assert refused(place.path).place == str(place.path / ".deedbook")
    trust(place.path / ".deedbook")
    open_kernel(place.path).close()
    (place.path / ".system").chmod(0o777)
    assert refused(place.path).place == str(place.path / ".system")


def test_nested_workspace_needs_an_entry_of_its_own(place):
    inner = starter(place.path / "inner")
    (inner.path / ".system").chmod(0o777)
    trust(place.path)
    assert refused(inner.path).place == str(inner.path / ".system")


def test_list_is_not_read_for_a_workspace_that_nobody_else_may_write(place):
    trust("relative").chmod(0o666)
    open_kernel(place.path).close()


# --- reading while others change --------------------------------------------------------------------------------------


def test_file_is_checked_through_the_descriptor_that_is_read(place, tmp_path):
    name = ".system/policies/baseline.yaml"
    with hold_sources(place.path) as folder, folder.sub(".system/policies") as held:
        held.read("baseline.yaml", limit=65536)
        (tmp_path / "other").write_text("x")
        (tmp_path / "other").chmod(0o666)
        (tmp_path / "other").rename(place.path / name)
        with pytest.raises(UntrustedError):
            held.read("baseline.yaml", limit=65536)
        with pytest.raises(UntrustedError):
            folder.digests(".system/policies", ["baseline.yaml"])


def test_refused_file_and_folder_leave_no_descriptor_open(place):
    (place.path / ".system/hooks").chmod(0o777)
    (place.path / ".system/deedbook.yaml").chmod(0o666)
    with hold_sources(place.path) as folder:
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        for path in (".system/deedbook.yaml", ".system/hooks/x"):
            with pytest.raises(UntrustedError):
                folder.open(path)
        assert not before or len(os.listdir("/proc/self/fd")) == before
    place.path.chmod(0o777)
    with pytest.raises(UntrustedError):
        hold_sources(place.path)


# --- copies of repositories -------------------------------------------------------------------------------------------


@contextmanager
def copied(place, path="tasks/t1/worktree"):
    """Give a copy of a repository that brings a workspace of its own."""
    with Folder.at(place.path) as root:
        mark_copy(root, path)
    yield starter(place.path / path)


@pytest.mark.parametrize("below", ["", "src/deep"])
@pytest.mark.parametrize("brings", [True, False])
def test_search_stops_at_a_copy_that_deedbook_made(place, below, brings):
    with copied(place) as copy:
        start = copy.path / below
        start.mkdir(parents=True, exist_ok=True)
        if not brings:
            (copy.path / ".system").rename(place.path / "away")
        ran = Place(start).here("call", "echo", "text=hi")
        assert ran.status == 1
        assert len(ran.err.splitlines()) == 1
        assert f"{copy.path}: is a copy of a repository, made by Deedbook" in ran.err
        assert find_workspace(place.path / "tasks/t1") == place.path


def test_copy_cannot_remove_its_mark_and_marks_nothing_above_it(place):
    with copied(place) as copy:
        with Folder.at(copy.path) as inside:
            mark_copy(inside, "src")
        assert find_copy(copy.path / "src/x") == copy.path / "src"
        assert find_copy(copy.path) == copy.path
        assert find_copy(place.path) is None


def test_copy_can_be_listed_as_a_workspace(place):
    with copied(place) as copy:
        trust(copy.path)
        assert find_workspace(copy.path / ".system") == copy.path


@root_only
def test_mark_of_another_user_stops_nobody(place):
    with copied(place) as copy:
        os.chown(place.path / ".deedbook/copies", OTHER, OTHER)
        assert find_workspace(copy.path) == copy.path


def test_check_of_a_missing_file_passes(tmp_path):
    OwnerCheck(tmp_path).path(tmp_path / "nothing")
