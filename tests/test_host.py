"""What a plugin can reach: files beneath the roots and nothing else, secrets that do not print."""

import copy
import json
import logging
import os
import pickle
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.contract import Failed, FolderEntry
from deedbook.format import canonical
from deedbook.format.errors import BindingError, IntakeError
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.host import HeldSecret, WorkspaceHost
from deedbook.policy.conditions import normal_path
from deedbook.programs.workers import Workers

OUTSIDE = b"what no plugin may read"


@pytest.fixture(name="root")
def make_root(tmp_path: Path) -> Path:
    """Return a workspace with files to reach, files not to reach, and ways that lead out."""
    root = tmp_path / "workspace"
    inside = {
        "a.txt": "a", "src/b.txt": "b", "src/deep/c.txt": "c", ".system/deedbook.yaml": "y", ".gitignore": "g",
        "..odd": "odd", "...": "dots", ".github/ci.yml": "ci",
    }  # fmt: skip
    hidden = [
        ".env",
        ".env.local",
        "src/.env",
        ".envs/key",
        "src/.Env.d/key",
        "state/ledger",
        "State2/x",
        ".git/config",
    ]
    for path, text in [*inside.items(), *((path, "hidden") for path in hidden)]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "secret.txt").write_bytes(OUTSIDE)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "link").symlink_to(tmp_path)
    (root / "inner").symlink_to(root / "src")
    os.link(tmp_path / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture(name="folder")
def open_folder(root: Path) -> Iterator[Folder]:
    with Folder.at(root) as folder:
        yield folder


@pytest.fixture(name="host")
def make_host(folder: Folder) -> WorkspaceHost:
    return WorkspaceHost(folder, ["."], ["state"], {"gh": "hunter2", "unset": None, "empty": ""})


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def refused(code: str = "PATH_REFUSED", match: str | None = None) -> Any:
    return pytest.raises(Failed, match=match, check=lambda problem: problem.code == code)


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.txt", "a"), ("./a.txt", "a"), ("src//b.txt", "b"), ("src/deep/../b.txt", "b"), ("src/./deep/c.txt", "c"),
        ("nowhere/../a.txt", "a"), (".system/deedbook.yaml", "y"), ("..odd", "odd"), ("...", "dots"),
    ],
)  # fmt: skip
def test_open_reads_files_beneath_the_root(host: WorkspaceHost, path: str, text: str) -> None:
    with host.open(path) as file:
        assert file.read() == text.encode()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.txt", "leads outside"), ("..", "leads outside"), ("src/../../secret.txt", "leads outside"),
        ("a/../../a.txt", "leads outside"), ("/etc/passwd", "leads outside"), ("//etc/passwd", "leads outside"),
        ("", "names no file"), (".", "names no file"), ("src/..", "names no file"), ("src", "is a folder"),
        ("link.txt", "link"), ("link/secret.txt", "link"), ("inner/b.txt", "link"), ("hard.txt", "2 names"),
        ("pipe", "expected a regular file"), ("a.txt/x", "file where a folder"), ("a\0.txt", "control character"),
        ("a\n.txt", "control character"), ("x" * 5000, "at most 4096"), ("x" * 300, "longer than the file system"),
        ("\ud800", "not Unicode"), (".env", "secrets"), (".ENV", "secrets"), (".env.local", "secrets"),
        (".git/config", "secrets"), ("src/.GIT/config", "secrets"), ("src/.env", "secrets"),
        (".envs/key", "secrets"), ("src/.Env.d/key", "secrets"), ("./src/../.env", "secrets"),
        (".e\u200cnv", "secrets"), ("\uff0eenv", "secrets"), ("state/ledger", "state"), ("STATE/ledger", "state"),
        ("state", "state"), ("state./ledger", "state"), ("st\u00adate/ledger", "state"),
        ("src/../state/ledger", "state"),
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_open_refuses_every_way_out_and_what_is_not_for_plugins(host: WorkspaceHost, path: str, why: str) -> None:
    with refused(match=why):
        host.open(path)


@pytest.mark.parametrize("path", [None, 1, b"a.txt", Path("a.txt")], ids=repr)
def test_paths_are_text(host: WorkspaceHost, path: Any) -> None:
    for use in (host.open, host.scan, lambda each: host.replace(each, b"", expected="")):
        with refused(match="a path is text"):
            use(path)


def test_open_tells_what_is_absent_by_its_path_in_the_workspace(host: WorkspaceHost, root: Path) -> None:
    with pytest.raises(FileNotFoundError) as absent:
        host.open("src/nothing.txt")
    assert absent.value.filename == "src/nothing.txt"
    assert str(root) not in str(absent.value)


@pytest.mark.parametrize("path", ["link.txt", "hard.txt", "pipe", "../x", ".env", "a\n"])
def test_refusals_name_the_path_and_never_where_the_workspace_lies(host: WorkspaceHost, root: Path, path: str) -> None:
    with refused() as problem:
        host.open(path)
    assert str(problem.value).startswith(repr(path))
    assert str(root.parent) not in str(problem.value)


def test_open_keeps_to_the_allowed_roots(folder: Folder) -> None:
    host = WorkspaceHost(folder, ["src/deep", "./.github/"], [], {})
    for path, text in (("src/deep/c.txt", b"c"), (".github/ci.yml", b"ci")):
        with host.open(path) as file:
            assert file.read() == text
    for path in ("a.txt", "src/b.txt", "src/deeper", "SRC/deep/c.txt", "src/deep/../b.txt"):
        with refused(match=r"outside the allowed roots: src/deep, \.github"):
            host.open(path)


def test_open_reaches_nothing_without_roots(folder: Folder) -> None:
    with refused(match="outside the allowed roots: none"):
        WorkspaceHost(folder, [], [], {}).open("a.txt")


pieces = st.sampled_from(
    [
        "..",
        ".",
        "",
        "src",
        "deep",
        "a.txt",
        "b.txt",
        "c.txt",
        "link",
        "inner",
        "state",
        "ledger",
        ".env",
        ".git",
        "secret.txt",
        "x",
    ]
)
PATHS = st.lists(pieces, max_size=6).map("/".join) | st.text(max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATHS)
def test_no_path_reads_anything_but_a_plain_file_inside(host: WorkspaceHost, path: str) -> None:
    try:
        with host.open(path) as file:
            text = file.read()
    except (Failed, FileNotFoundError):
        return
    assert text in (b"a", b"b", b"c")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATHS)
def test_host_and_path_conditions_of_policies_understand_a_path_alike(host: WorkspaceHost, path: str) -> None:
    try:
        place = host._reach(path, folder=True)
    except Failed:
        return
    assert normal_path(path) in (place, None)


# --- listing ----------------------------------------------------------------------------------------------------------


def test_scan_lists_what_can_be_reached_sorted_and_nothing_else(host: WorkspaceHost) -> None:
    assert host.scan("") == host.scan(".")
    assert [(entry.path, entry.folder, entry.size) for entry in host.scan("")] == [
        ("...", False, 4), ("..odd", False, 3), (".github", True, 0), (".gitignore", False, 1),
        (".system", True, 0), ("State2", True, 0), ("a.txt", False, 1), ("src", True, 0),
    ]  # fmt: skip
    assert host.scan("src/") == [FolderEntry("src/b.txt", False, 1), FolderEntry("src/deep", True, 0)]


def test_scan_leads_to_the_roots_and_shows_nothing_beside_them(folder: Folder) -> None:
    host = WorkspaceHost(folder, ["src/deep"], [], {})
    assert host.scan("") == [FolderEntry("src", True, 0)]
    assert host.scan("src") == [FolderEntry("src/deep", True, 0)]
    assert host.scan("src/deep") == [FolderEntry("src/deep/c.txt", False, 1)]
    with refused(match="outside the allowed roots"):
        host.scan(".github")


@pytest.mark.parametrize("path", ["..", "/", "link", "inner", "state", ".envs", "src/.Env.d", "a.txt"])
def test_scan_refuses_what_open_refuses(host: WorkspaceHost, path: str) -> None:
    with refused():
        host.scan(path)


def test_scan_says_that_a_folder_is_absent(host: WorkspaceHost) -> None:
    with pytest.raises(FileNotFoundError):
        host.scan("nowhere")


def test_everything_that_scan_shows_can_be_opened(host: WorkspaceHost) -> None:
    folders = [""]
    while folders:
        for entry in host.scan(folders.pop()):
            if entry.folder:
                folders.append(entry.path)
            else:
                with host.open(entry.path) as file:
                    assert len(file.read()) == entry.size


# --- writing ----------------------------------------------------------------------------------------------------------


def test_replace_writes_what_was_expected_and_returns_the_new_digest(host: WorkspaceHost, root: Path) -> None:
    made = host.replace("new/file.txt", b"one", expected="")
    assert made == digest(b"one")
    assert host.replace("./new//file.txt", b"two", expected=made) == digest(b"two")
    assert (root / "new/file.txt").read_bytes() == b"two"
    assert (root / "new/file.txt").stat().st_mode & 0o111 == 0


@pytest.mark.parametrize("expected", ["", digest(b"other"), digest(b"a").upper()], ids=["absent", "other", "upper"])
def test_replace_writes_nothing_where_the_file_is_not_as_expected(
    host: WorkspaceHost, root: Path, expected: str
) -> None:
    with refused("WRITE_CONFLICT", match="^'a.txt' "):
        host.replace("a.txt", b"new", expected=expected)
    assert (root / "a.txt").read_bytes() == b"a"


def test_replace_of_a_file_that_is_gone_is_a_conflict(host: WorkspaceHost) -> None:
    with refused("WRITE_CONFLICT", match="does not exist"):
        host.replace("nowhere/x.txt", b"new", expected=digest(b"old"))


@pytest.mark.parametrize("expected", [None, 0, False, b""], ids=repr)
def test_replace_takes_no_write_without_an_expectation(host: WorkspaceHost, root: Path, expected: Any) -> None:
    with refused("WRITE_CONFLICT", match="expected must be"):
        host.replace("a.txt", b"new", expected=expected)
    assert (root / "a.txt").read_bytes() == b"a"


@pytest.mark.parametrize(
    "path",
    [
        ".system/deedbook.yaml", ".SYSTEM/deedbook.yaml", ".System/new", ".system", "sub/.system/x", ".git/config",
        ".GIT/config", ".git", "sub/.git", ".g\u200dit/config", ".git./config", ".git /config", "\uff0egit/config",
        ".deedbook/x", ".Deedbook/x", ".env", "a/.env", ".envrc", "state/ledger",
        "src/../.git/config",
        "../x", "/tmp/x", "link/x", "inner/x", "pipe", "hard.txt", "",
    ],
    ids=ascii,
)  # fmt: skip
def test_replace_never_writes_where_tools_must_not(host: WorkspaceHost, root: Path, path: str) -> None:
    def everything() -> dict[str, bytes]:
        return {str(each): each.read_bytes() for each in sorted(root.parent.rglob("*")) if each.is_file()}

    before = everything()
    with refused():
        host.replace(path, b"new", expected="")
    assert everything() == before


def test_remove_removes_a_file_that_is_as_expected(host: WorkspaceHost, root: Path) -> None:
    host.remove("./a.txt", expected=digest(b"a"))
    assert not (root / "a.txt").exists()


@pytest.mark.parametrize("expected", ["", digest(b"other"), None], ids=["absent", "other", "none"])
def test_remove_leaves_a_file_that_is_not_as_expected(host: WorkspaceHost, root: Path, expected: Any) -> None:
    with refused("WRITE_CONFLICT", match="^'a.txt'"):
        host.remove("a.txt", expected=expected)
    assert (root / "a.txt").read_bytes() == b"a"


@pytest.mark.parametrize("path", ["b.txt", "nowhere/x.txt"])
def test_remove_of_a_file_that_is_gone_is_a_conflict(host: WorkspaceHost, path: str) -> None:
    with refused("WRITE_CONFLICT", match="does not exist"):
        host.remove(path, expected=digest(b"old"))


@pytest.mark.parametrize("path", [".system/x", ".GIT/config", ".env", "../x", "link/x", "pipe", "hard.txt", "src", ""])
def test_remove_removes_nothing_where_tools_must_not_write(host: WorkspaceHost, root: Path, path: str) -> None:
    before = sorted(root.parent.rglob("*"))
    with refused():
        host.remove(path, expected=digest(b"a"))
    assert sorted(root.parent.rglob("*")) == before


@pytest.mark.parametrize("path", [".github/ci.yml", ".gitignore", "gitx", "system/x", "src/env"])
def test_replace_writes_to_names_that_only_look_alike(host: WorkspaceHost, root: Path, path: str) -> None:
    present = (root / path).read_bytes() if (root / path).exists() else None
    host.replace(path, b"new", expected="" if present is None else digest(present))
    assert (root / path).read_bytes() == b"new"


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_secret_reveals_its_value_and_prints_its_name_only(
    host: WorkspaceHost, caplog: pytest.LogCaptureFixture
) -> None:
    secret = host.secret("gh")
    assert secret.reveal() == "hunter2"
    logging.getLogger(__name__).warning("%s %r %s", secret, secret, {"key": secret})
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        repr([secret]),
        json.dumps({"k": secret}, default=str),
        caplog.text,
    ]
    assert all("hunter2" not in text and "<secret gh>" in text for text in shown)


@pytest.mark.parametrize("copying", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda function: function.__name__)
def test_secret_cannot_be_copied_or_pickled(host: WorkspaceHost, copying: Any) -> None:
    with pytest.raises(TypeError, match="secret 'gh' cannot be pickled or copied") as refusal:
        copying(host.secret("gh"))
    assert "hunter2" not in str(refusal.value)


def test_secret_is_no_json_and_so_never_part_of_a_record(host: WorkspaceHost) -> None:
    with pytest.raises(IntakeError, match="HeldSecret is not a JSON type"):
        canonical.admit({"key": host.secret("gh")})
    for dump in (orjson.dumps, json.dumps):
        with pytest.raises(TypeError):
            dump({"key": host.secret("gh")})


def test_secret_has_no_dictionary_to_look_into() -> None:
    with pytest.raises(TypeError):
        vars(HeldSecret("gh", "hunter2"))


@pytest.mark.parametrize("name", ["unset", "empty"])
def test_secret_without_a_value_is_a_binding_error(host: WorkspaceHost, name: str) -> None:
    with pytest.raises(BindingError, match=f"secret '{name}' is declared, but") as refusal:
        host.secret(name)
    assert refusal.value.error.code == "SECRET_MISSING"


def test_secret_that_is_not_declared_is_a_binding_error_with_the_nearest_name(host: WorkspaceHost) -> None:
    with pytest.raises(BindingError) as refusal:
        host.secret("hg")
    assert str(refusal.value) == "secret 'hg' is not declared; declared: empty, gh, unset"
    with pytest.raises(BindingError, match='did you mean "unset"'):
        host.secret("unsett")


@pytest.mark.parametrize("pasted", ["sk-PASTED-0123456789", "AIza" + "0a" * 20, "a" * 41, "pass word", "geh€im", ""])
def test_a_pasted_key_in_place_of_a_secrets_name_is_not_repeated(host: WorkspaceHost, pasted: str) -> None:
    with pytest.raises(BindingError, match="looks like a key, not like the name of a secret") as refusal:
        host.secret(pasted)
    assert not pasted or pasted not in str(refusal.value)


def test_schemas_of_the_kernel_are_given_as_copies(folder: Folder) -> None:
    host = WorkspaceHost(folder, ["."], [], {}, Schemas.load(data_folder("schemas")))
    given = host.schema("plan_v1")
    assert given["$id"] == "plan_v1"
    given["properties"].clear()
    assert host.schema("plan_v1")["properties"]


def test_schema_that_nobody_has_is_refused_with_the_nearest(folder: Folder) -> None:
    host = WorkspaceHost(folder, ["."], [], {}, Schemas.load(data_folder("schemas")))
    with pytest.raises(Failed, match='no schema has the id "plan_v3"; did you mean "plan_v2"') as caught:
        host.schema("plan_v3")
    assert caught.value.code == "SCHEMA_UNKNOWN"


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(name="runs")
def make_running_host(folder: Folder) -> Iterator[WorkspaceHost]:
    with Workers() as workers:
        yield WorkspaceHost(folder, ["."], ["state"], {}, workers=lambda: workers)


def test_program_runs_in_a_folder_of_the_workspace(runs: WorkspaceHost, root: Path) -> None:
    for cwd in ("", ".", "src", "src/deep"):
        assert runs.run(["pwd"], cwd=cwd, seconds=60).out.decode().strip() == str((root / cwd).resolve())


def test_program_gets_input_and_environment_and_its_status_is_an_answer(runs: WorkspaceHost) -> None:
    ran = runs.run(["sh", "-c", 'cat; echo "$A" >&2; exit 7'], stdin=b"in", env={"A": "b"}, seconds=60)
    assert (ran.status, ran.out, ran.err) == (7, b"in", b"b\n")


@pytest.mark.parametrize("cwd", ["..", "/", "/tmp", "link", "inner", "inner/deep", "state", ".git", ".envs", "a\0"])
def test_program_runs_nowhere_outside_and_through_no_link(runs: WorkspaceHost, cwd: str) -> None:
    with refused():
        runs.run(["pwd"], cwd=cwd, seconds=60)


@pytest.mark.parametrize("cwd", ["missing", "src/missing"])
def test_program_is_not_started_in_a_folder_that_is_not_there(runs: WorkspaceHost, cwd: str) -> None:
    with refused("NOT_STARTED", match="working directory"):
        runs.run(["pwd"], cwd=cwd, seconds=60)


def test_program_runs_only_beneath_the_roots(folder: Folder) -> None:
    with Workers() as workers:
        host = WorkspaceHost(folder, ["src"], [], {}, workers=lambda: workers)
        assert host.run(["pwd"], cwd="src/deep", seconds=60).status == 0
        with refused():
            host.run(["pwd"], cwd=".github", seconds=60)


def test_no_program_runs_while_the_charter_is_compiled(host: WorkspaceHost) -> None:
    with refused("NOT_STARTED", match="charter"):
        host.run(["pwd"], seconds=60)
