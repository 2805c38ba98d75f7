"""Entry points are read from the folders of the path as the library for metadata reads them."""

import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import importlib_metadata
import pytest

from deedbook.plugins.commands import GROUP, entry_points, find_commands

POINTS = (
    f"[console_scripts]\nx = y:z\n\n[{GROUP}]\n# a comment = none\n  hello = greeting.words:command\n[other]\na = b:c\n"
)


def _install(folder: Path, name: str, text: str = POINTS) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "entry_points.txt").write_text(text, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the only folder of the path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.mark.parametrize("name", ["A_Greeting-1.0.dist-info", "a.greeting.egg-info"])
def test_entry_points_of_a_folder_are_those_of_one_group(site: Path, name: str):
    _install(site, name)
    assert list(entry_points(GROUP)) == [("a-greeting", "hello", "greeting.words:command")]


@pytest.mark.parametrize("group", ["deedbook.tools", "deedbook.commands", "console_scripts", "pytest11"])
def test_entry_points_are_those_that_the_library_finds(group: str):
    expected = {(point.name, point.value) for point in importlib_metadata.entry_points(group=group)}
    assert {(name, target) for _, name, target in entry_points(group)} == expected
    assert expected


def test_first_distribution_of_a_name_on_the_path_counts(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "later"), str(tmp_path / "absent"), str(site)])
    _install(site, "greeting-1.0.dist-info")
    _install(tmp_path / "later", "Greeting-2.0.dist-info", f"[{GROUP}]\nlater = greeting.later:command\n")
    assert [name for _, name, _ in entry_points(GROUP)] == ["hello"]


def test_distribution_that_cannot_be_read_has_no_entry_points(site: Path):
    (site / "partly-1.0.dist-info").mkdir()
    (site / "file-1.0.egg-info").write_text("Name: file\n")
    _install(site, "bytes-1.0.dist-info")
    (site / "bytes-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff" + POINTS.encode())
    _install(site, "whole-1.0.dist-info")
    assert [owner for owner, _, _ in entry_points(GROUP)] == ["whole"]


def test_distribution_in_an_archive_is_found(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = tmp_path / "greeting.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        made.writestr("greeting-1.0.dist-info/entry_points.txt", POINTS)
    monkeypatch.setattr(sys, "path", [str(site), str(archive)])
    assert [(owner, name) for owner, name, _ in entry_points(GROUP)] == [("greeting", "hello")]


def test_distribution_of_a_finder_of_its_own_is_found(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _install(tmp_path / "elsewhere", "greeting-1.0.dist-info")
    found = importlib_metadata.PathDistribution(tmp_path / "elsewhere" / "greeting-1.0.dist-info")
    finder = SimpleNamespace(find_distributions=lambda *_: [found], find_spec=lambda *_: None)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert [(owner, name) for owner, name, _ in entry_points(GROUP)] == [("greeting", "hello")]


@pytest.mark.parametrize("module", ["greeting/words.py", "greeting/words/__init__.py"])
def test_help_of_a_command_is_read_from_a_folder_of_the_path(site: Path, module: str):
    _install(site, "greeting-1.0.dist-info")
    (site / module).parent.mkdir(parents=True)
    (site / module).write_text('"""Say hello."""\nSECTION = "Greetings"\nraise RuntimeError\n')
    assert find_commands()["hello"].describe() == ("Say hello.", "Greetings")


def test_help_of_a_command_is_read_where_its_finder_says(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package of an editable installation may be in no folder of the path."""
    _install(site, "greeting-1.0.dist-info")
    package = tmp_path / "checkout" / "greeting"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError\n")
    (package / "words.py").write_text('"""Say hello."""\nraise RuntimeError\n')
    finder = SimpleNamespace(
        find_spec=lambda name, *_: PathFinder.find_spec(name, [str(package.parent)]) if name == "greeting" else None
    )
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert find_commands()["hello"].describe().line == "Say hello."


def test_command_with_an_extra_is_loaded(site: Path):
    _install(site, "greeting-1.0.dist-info", f"[{GROUP}]\nhello = json.decoder : JSONDecoder.decode [more]\n")
    assert find_commands()["hello"].load().__qualname__ == "JSONDecoder.decode"


def test_target_that_is_no_name_in_a_module_is_refused(site: Path):
    from deedbook.format.errors import BindingError

    _install(site, "greeting-1.0.dist-info", f"[{GROUP}]\nhello = json\n")
    with pytest.raises(BindingError, match="'json' is not MODULE:NAME; reinstall greeting"):
        find_commands()["hello"].load()
