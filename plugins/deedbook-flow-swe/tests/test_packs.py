"""Files of pipelines in packs: an id is taken once, and a replacement names the pack."""

import sys
from pathlib import Path
from shutil import rmtree

import importlib_metadata
import packing
import pytest
from pipelines import WORKSPACES, copy_workspace, replace_text

from deedbook.kernel import open_kernel
from deedbook.plugins.plugins import discover
from deedbook.workspace.workspace import survey_workspace
from deedbook_flow_swe.definition import Definition

S = ".system/swe"
LABEL = "pack acme (acme 1.0)"
SYSTEM = WORKSPACES / "small" / ".system"


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """Return the installed plugins, with a pack that has the pipeline and the agents of the example."""
    paths = [path for part in ("swe", "agents") for path in (SYSTEM / part).rglob("*") if path.is_file()]
    files = {str(path.relative_to(SYSTEM)): path.read_text() for path in paths}
    folder = tmp_path_factory.mktemp("packs")
    packing.unpack(packing.wheel(packing.project(folder / "project", "acme", files)), folder / "site")
    return discover(importlib_metadata.distributions(path=[str(folder / "site"), *sys.path]))


@pytest.fixture
def root(tmp_path):
    """Return a workspace without files of pipelines that activates the pack."""
    found = copy_workspace("small", tmp_path / "small")
    for part in ("swe", "agents"):
        rmtree(found / ".system" / part)
    settings = found / ".system/deedbook.yaml"
    settings.write_text(settings.read_text() + "packs: [acme]\n")
    return found


def put(root: Path, path: str, more: str = "") -> None:
    """Put one of the example's files into the workspace, with a line at its end."""
    (root / S / path).parent.mkdir(parents=True, exist_ok=True)
    (root / S / path).write_text((SYSTEM / "swe" / path).read_text() + more)


def faults(root, catalogue):
    _, found = survey_workspace(root, catalogue=catalogue)
    return [(each.place or "", each.message) for each in found]


def compiled(root, catalogue):
    with open_kernel(root, catalogue=catalogue) as kernel:
        charter = kernel.bindings.charter.document
    return {name: Definition.parse(each["settings"]) for name, each in charter["abilities"].items()
            if each["plugin"][1] == "phase-pipeline"}  # fmt: skip


def test_pipeline_of_a_pack_is_an_ability_with_the_skills_of_its_agents(root, catalogue):
    (definition,) = compiled(root, catalogue).values()
    assert definition.places["contracts/build"] == f"{LABEL}: swe/contracts/build.yaml:2"
    assert [each.path for each in definition.skills["builder"]] == [
        "agents/builder/skills/steps.md", "agents/builder/skills/tokens.md",
    ]  # fmt: skip


def test_file_of_the_workspace_replaces_that_of_the_pack_by_name(root, catalogue):
    put(root, "contracts/build.yaml", "overrides: acme\n")
    replace_text(root, f"{S}/contracts/build.yaml", "tokens: 3000", "tokens: 2000")
    (definition,) = compiled(root, catalogue).values()
    assert definition.phase("build").tokens == 2000
    assert definition.places["contracts/build"] == f"{S}/contracts/build.yaml:2"


def test_second_pipeline_uses_the_contracts_of_the_pack(root, catalogue):
    put(root, "pipeline.yaml")
    replace_text(root, f"{S}/pipeline.yaml", "id: small", "id: large")
    found = compiled(root, catalogue)
    assert set(found) == {"swe/small", "swe/large"}
    assert found["swe/large"].phases == found["swe/small"].phases


@pytest.mark.parametrize(
    ("path", "more", "why"),
    [
        ("contracts/build.yaml", "", "or replace the pack's file with overrides: acme"),
        ("contracts/build.yaml", "overrides: acm\n", "contracts/build is of the pack acme, not of acm"),
        ("pipeline.yaml", "", "or replace the pack's file with overrides: acme"),
        ("schemas/note_v1.json", "", "an id names one of the schemas"),
    ],
)
def test_id_is_taken_once(root, catalogue, path, more, why):
    put(root, path, more)
    ((place, message),) = faults(root, catalogue)
    assert place.startswith(f"{S}/{path}:")
    assert why in message
