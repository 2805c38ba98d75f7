"""Sections and files of a workspace that features read: found by the table of owners, a fault without the feature."""

import sys
from types import ModuleType

import pytest

from deedbook.charter.compiler import compile_charter
from deedbook.contract.features import featureimpl
from deedbook.format.errors import BindingError
from deedbook.format.files import Folder
from deedbook.plugins.groups import ENTRY_POINTS, FEATURE
from deedbook.plugins.host import ReadingHost
from deedbook.plugins.plugins import discover, known_owners
from deedbook.workspace.declarations import FeatureSection
from deedbook.workspace.sections import read_owners
from deedbook.workspace.workspace import load_workspace, survey_workspace
from deedbook_testing.offered import OfferedDistribution


@pytest.fixture
def write(tmp_path):
    """Write the files of a workspace and return its folder."""

    def written(settings="", **files):
        for path, text in {"deedbook.yaml": f"schema_version: v1\n{settings}", **files}.items():
            place = tmp_path / ".system" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return tmp_path

    return written


def faults(root):
    _, found = survey_workspace(root, catalogue=discover([]))
    return [(each.code, each.place, each.message) for each in found]


def test_section_of_a_feature_that_is_not_installed_is_a_fault_at_its_place(write):
    ((code, place, message),) = faults(write("servers: {it: {command: [it]}}\n"))
    assert (code, place) == ("PLUGIN_MISSING", ".system/deedbook.yaml:2:1")
    assert "feature 'servers' is not installed" in message
    assert "pip install deedbook-tool-mcp" in message


def test_file_of_a_feature_that_is_not_installed_is_a_fault_too(write):
    ((code, place, _),) = faults(write(**{"servers/it.json": "{}"}))
    assert (code, place) == ("PLUGIN_MISSING", ".system/servers")


def test_workspace_without_such_sections_needs_no_feature(write):
    assert load_workspace(write(), catalogue=discover([])).sections == {}


class ForeignServers:
    """A third party's feature of the name of a first-party one."""

    @featureimpl
    def read_section(self, reader, tree, document):
        return FeatureSection()


def test_charter_pins_the_feature_of_a_third_party_that_reads_a_section(write, monkeypatch):
    """The kernel's version pins first-party distributions; a third party's has a digest in the charter."""
    monkeypatch.setitem(sys.modules, "foreign_servers", ModuleType("foreign_servers"))
    sys.modules["foreign_servers"].plugin = ForeignServers
    point = (ENTRY_POINTS[FEATURE], "servers", "foreign_servers:plugin")
    catalogue = discover([OfferedDistribution("foreign", [point])])
    workspace = load_workspace(write("servers: {it: {command: [it]}}\n"), catalogue=catalogue)
    charter = compile_charter(workspace, catalogue, kernel="0")
    assert charter.document["plugins"]["feature/servers"]["distribution"] == "foreign"
    own = load_workspace(write("", **{"ROUTING.md": "# Counting\n\nUse nothing.\n"}))
    assert "feature/servers" not in compile_charter(own, discover(), kernel="0").document["plugins"]


def test_known_distributions_have_the_owners_of_all_sections():
    assert read_owners().keys() <= known_owners(FEATURE).keys()


def test_routing_documents_need_the_feature_that_reads_them(write):
    ((code, place, message),) = faults(write(**{"ROUTING.md": "# A\n\nx\n"}))
    assert (code, place) == ("PLUGIN_MISSING", ".system/ROUTING.md")
    assert "pip install deedbook-hook-standard" in message


def test_workflow_files_need_the_feature_that_reads_them(write):
    ((code, place, message),) = faults(write(**{"workflows/cycles/a.md": "---\nid: a\n---\n"}))
    assert (code, place) == ("PLUGIN_MISSING", ".system/workflows")
    assert "pip install deedbook-flow-workflow" in message


def test_folders_for_routing_documents_need_it_too(write):
    root = write("roots: {routing: [docs]}\n")
    (root / "docs").mkdir()
    ((code, place, _),) = faults(root)
    assert (code, place) == ("PLUGIN_MISSING", ".system/deedbook.yaml:2:9")


def test_catalogue_of_routes_needs_the_feature_that_ranks(tmp_path):
    with Folder.at(tmp_path) as folder:
        host = ReadingHost(folder, [""], [], {}, routes=dict, catalogue=discover([]))
        with pytest.raises(BindingError, match="pip install deedbook-hook-standard"):
            host.catalogue()
