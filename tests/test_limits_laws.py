"""Laws of limits: nobody gets around a list of files by spelling, and limits only ever narrow."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook import Limits
from deedbook.contract import Failed
from deedbook.format.files import Folder
from deedbook.plugins.call_files import CallFiles
from deedbook.plugins.host import WorkspaceHost
from deedbook.policy.conditions import normal_path
from deedbook.policy.limits import FileList, FileRules, compile_limits, limits_document

NAMES = st.sampled_from(["a", "b", "ab", "A", "a.b", "x"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
GLOB = st.lists(st.sampled_from(["a", "b", "*", "a*", "**", "x", "*.b"]), min_size=1, max_size=4).map("/".join)
GLOBS = st.lists(GLOB, min_size=1, max_size=3)
SPELLINGS = st.lists(st.sampled_from(["a", "b", "A", "..", ".", "", "link", "hard", "x"]), max_size=6).map("/".join)
FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def reference(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression, written independently of the kernel."""
    whole = ""
    for number, part in enumerate(glob.split("/")):
        if part == "**":
            whole += "(?:.*/)?" if number < glob.count("/") else ".*"
            continue
        whole += re.escape(part).replace(r"\*", "[^/]*") + ("/" if number < glob.count("/") else "")
    return re.compile(whole, re.DOTALL)


def rules(*limits: Limits) -> FileRules:
    return FileRules(tuple(compile_limits(f"b{n}", limits_document(each)) for n, each in enumerate(limits)))


@FAST
@given(GLOBS, st.lists(GLOB, max_size=2), PATHS)
def test_list_has_what_fits_a_glob_and_no_exclusion(globs: list[str], excluded: list[str], path: str) -> None:
    fits = FileList.compile([*globs, *(f"!{each}" for each in excluded)]).fits(path)
    wanted = any(reference(each).fullmatch(path) for each in globs)
    cut = any(reference(each).fullmatch(path) for each in excluded)
    if fits:
        assert wanted
        assert not cut
    elif wanted and not cut:  # another spelling is excluded
        assert any(reference(each.casefold()).fullmatch(path.casefold()) for each in excluded)


@FAST
@given(GLOBS, PATHS)
def test_every_folder_above_a_file_of_the_list_reaches_below(globs: list[str], path: str) -> None:
    files = FileList.compile(globs)
    parts = path.split("/")
    assert not files.fits(path) or all(files.reaches_below("/".join(parts[:depth])) for depth in range(len(parts)))


@FAST
@given(GLOBS, GLOBS, PATHS, st.sampled_from(["read", "write", "list"]))
def test_limits_together_allow_what_each_of_them_allows(
    first: list[str], second: list[str], path: str, access: str
) -> None:
    one, two = Limits(reads=first, writes=second), Limits(reads=second, writes=first)
    both = rules(one, two).refusal(access, path) is None  # type: ignore[arg-type]
    assert both == all(rules(each).refusal(access, path) is None for each in (one, two))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose files hold their own paths, with links and a hard link between them."""
    root = tmp_path_factory.mktemp("tree")
    for path in ("a/a", "a/b", "a/x/a", "b/a", "b/x/b", "x/a", "A/a"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    for folder in ("a", "b", "a/x"):
        os.symlink(os.path.relpath(root / "b/a", root / folder), root / folder / "link")
        os.symlink(os.path.relpath(root / "x", root / folder), root / folder / "x2")
    os.link(root / "x/a", root / "a/hard")
    return root


@FAST
@given(GLOBS, SPELLINGS)
def test_no_spelling_reads_a_file_outside_the_list(tree: Path, globs: list[str], path: str) -> None:
    """The host gives the content of the very file that is allowed, or refuses."""
    files, calls = rules(Limits(reads=globs)), CallFiles()
    with Folder.at(tree) as folder, calls.enter(files):
        host = WorkspaceHost(folder, [""], [], {}).for_handler(calls)
        try:
            with host.open(path) as file:
                content = file.read().decode()
        except (Failed, OSError):
            return
        assert any(reference(each).fullmatch(content) for each in globs)
        assert os.path.normpath(path) == content


@FAST
@given(GLOBS, SPELLINGS)
def test_no_spelling_writes_outside_the_list(tree: Path, globs: list[str], path: str) -> None:
    """What the door allows is in the list after the system resolves it; nothing absolute or above is."""
    files = rules(Limits(writes=globs))
    normal = normal_path(path)
    if normal is None or files.refusal("write", normal) is not None:
        return
    assert normal == os.path.normpath(path)
    assert any(reference(each).fullmatch(os.path.normpath(path)) for each in globs)


@pytest.mark.parametrize(
    "path", ["Secret/x", "SECRET/X", "\uff53ecret/x", "secret./x", "secret /x", "sec\u200bret/x", "secret/x"]
)
def test_exclusion_holds_for_every_spelling_of_some_file_system(path: str) -> None:
    """APFS, HFS+ and FAT treat these as one path."""
    assert not FileList.compile(["**", "!secret/**"]).fits(path)


def test_inclusion_holds_for_no_other_spelling() -> None:
    """A list opens exactly what it names."""
    files = FileList.compile(["src/**"])
    assert not any(files.fits(path) for path in ("SRC/a", "\uff53rc/a", "src./a", "src"))
