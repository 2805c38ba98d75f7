"""Workflow files of packs and of further folders: ids are taken once, and a replacement names the pack."""

import sys
from pathlib import Path
from shutil import move
from typing import Any

import importlib_metadata
import packing
import pytest

from deedbook.charter.changes import compare
from deedbook.format.errors import BindingError
from deedbook.kernel import open_kernel
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.workspace.workspace import survey_workspace

W = ".system/workflows"
LABEL = "pack acme (acme 1.0)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a pack with the workflow files of the example, and return where."""
    here = Path(__file__).parent / "workspaces" / "two-phases" / W
    files = {f"workflows/{path.relative_to(here)}": path.read_text() for path in here.rglob("*.md")}
    folder = tmp_path_factory.mktemp("packs")
    packing.unpack(packing.wheel(packing.project(folder / "project", "acme", files)), folder / "site")
    return folder / "site"


@pytest.fixture
def catalogue(site: Path) -> Catalogue:
    """Return the installed plugins, with the pack."""
    return discover(importlib_metadata.distributions(path=[str(site), *sys.path]))


@pytest.fixture
def root(place: Any) -> Path:
    """Return a workspace without workflow files that activates the pack; its own files lie in `own`."""
    found: Path = place("two-phases")
    move(found / W, found / "own")
    settings = found / ".system" / "deedbook.yaml"
    settings.write_text(settings.read_text() + "packs: [acme]\n")
    return found


def put(root: Path, path: str, more: str = "") -> None:
    """Put one of the example's files into the workspace, with a line of front matter."""
    text = (root / "own" / path).read_text()
    (root / W / path).parent.mkdir(parents=True, exist_ok=True)
    (root / W / path).write_text(text.replace("\n---\n", f"\n{more}---\n", 1))


def faults(root: Path, catalogue: Catalogue) -> list[tuple[str, str]]:
    _, found = survey_workspace(root, catalogue=catalogue)
    return [(each.place or "", each.message) for each in found]


def test_cycle_of_a_pack_is_an_ability_like_an_own(root, catalogue):
    with open_kernel(root, catalogue=catalogue) as kernel:
        charter = kernel.bindings.charter.document
    assert charter["abilities"]["workflow/check"]["place"] == f"{LABEL}: workflows/cycles/check.md:3"
    assert charter["skills"]["reviewer-style"]["source"] == f"{LABEL}: workflows/personas/reviewer/style.md"
    assert charter["policies"]["gate"]["place"] == f"{LABEL}: workflows/policies/gate.md:3"


def test_folder_that_roots_name_is_read_like_the_usual_one(root, catalogue):
    settings = root / ".system" / "deedbook.yaml"
    settings.write_text(settings.read_text().replace("packs: [acme]", "roots: {workflows: [own]}"))
    with open_kernel(root, catalogue=catalogue) as kernel:
        charter = kernel.bindings.charter.document
    assert charter["abilities"]["workflow/check"]["place"] == "own/cycles/check.md:3"
    assert "own/personas/reviewer/style.md" in charter["sources"]


@pytest.mark.parametrize("path", ["phases/look.md", "personas/reviewer/style.md", "artifacts/lesson-template.md"])
def test_file_with_an_id_of_a_pack_is_refused(root, catalogue, path):
    put(root, path)
    ((where, why),) = faults(root, catalogue)
    assert where.startswith(f"{W}/{path}:")
    assert f"is also in {LABEL}: workflows/{path}:" in why
    assert "overrides: acme" in why


@pytest.mark.parametrize(
    "path", ["cycles/check.md", "phases/look.md", "policies/gate.md", "personas/reviewer/style.md"]
)
def test_file_that_names_the_pack_replaces_the_packs_file_and_the_lock_shows_it(root, catalogue, path):
    with open_kernel(root, catalogue=catalogue) as kernel:
        before = kernel.bindings.charter.document
    put(root, path, "overrides: acme\n")
    with open_kernel(root, catalogue=catalogue) as kernel:
        after = kernel.bindings.charter.document
    name = path.removesuffix(".md")
    assert after["workflows"][name]["place"].startswith(f"{W}/{path}")
    assert f"workflow file {name} in place of the pack acme's is new" in compare(before, after).looser
    assert f"workflow file {name} in place of the pack acme's is gone" in compare(after, before).other


def test_override_of_another_pack_is_refused(root, catalogue):
    put(root, "phases/look.md", "overrides: acmee\n")
    ((where, why),) = faults(root, catalogue)
    assert where.startswith(f"{W}/phases/look.md:")
    assert "is of the pack acme, not of acmee" in why


def test_pack_overrides_nothing(root, tmp_path):
    files = {
        "workflows/policies/x.md": "---\nschema_version: v1\nid: x\nkind: rules\nrules: []\noverrides: acme\n---\n"
    }
    packing.unpack(packing.wheel(packing.project(tmp_path / "project", "acme", files)), tmp_path / "other")
    catalogue = discover(importlib_metadata.distributions(path=[str(tmp_path / "other"), *sys.path]))
    assert faults(root, catalogue) == [
        (f"{LABEL}: workflows/policies/x.md:6:12", "overrides: a file of a pack replaces no other; leave it out")
    ]


def test_rules_of_a_persona_are_checked_with_their_place(root, catalogue):
    put(root, "personas/reviewer/style.md", "overrides: acme\n")
    path = root / W / "personas/reviewer/style.md"
    path.write_text(path.read_text().replace("path: '${path}'", "path: '${paht}'"))
    with pytest.raises(BindingError) as caught:
        open_kernel(root, catalogue=catalogue)
    assert [each.place for each in caught.value.errors] == [f"{W}/personas/reviewer/style.md:11:13"]


def test_unknown_policy_kind_is_refused_with_its_place(root, catalogue):
    put(root, "policies/gate.md", "overrides: acme\n")
    path = root / W / "policies/gate.md"
    path.write_text(path.read_text().replace("kind: rules", "kind: rulez"))
    with pytest.raises(BindingError) as caught:
        open_kernel(root, catalogue=catalogue)
    assert [(each.code, each.place) for each in caught.value.errors] == [("PLUGIN_MISSING", f"{W}/policies/gate.md:3")]


def test_skill_with_the_name_of_a_persona_is_refused(root, catalogue):
    skill = root / ".system/skills/reviewer-style/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: reviewer-style\ndescription: x\n---\n")
    with pytest.raises(BindingError) as caught:
        open_kernel(root, catalogue=catalogue)
    assert "skill 'reviewer-style' is also in .system/skills/reviewer-style/SKILL.md" in str(caught.value)
