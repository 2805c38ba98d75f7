"""`deedbook whatif`: recorded calls judged again under another workspace's charter, and nothing touched."""

import shutil
from pathlib import Path

import pytest
from commandline import Place, starter

WRITING = '{"path":"reports/a.md","text":"hi","expected_hash":"","who":"ada","why":"to try"}'


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with a run, an allowed call, a denied call and a call of what is not there; only read it."""
    made = starter(tmp_path_factory.mktemp("worked") / "workspace")
    made.here("run", "Say hello to Ada", status=0)
    made.here("call", "file-write", "--args", WRITING, status=0)
    made.here("call", "file-write", "--args", WRITING.replace("reports/", "src/"), status=3)
    made.here("call", "ecko", status=3)
    return made


@pytest.fixture
def other(worked: Place, tmp_path: Path) -> Place:
    """Give a copy of its system folder, to be changed."""
    shutil.copytree(worked.path / ".system", tmp_path / "other/.system")
    return Place(tmp_path / "other")


def baseline(other: Place, old: str, new: str) -> None:
    place = other.path / ".system/policies/baseline.yaml"
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))


def test_whatif_under_the_same_charter_changes_nothing(worked: Place, other: Place) -> None:
    told = worked.here("whatif", "--all", "--system", str(other.path), "--json", status=0).fits("output_whatif_v1")
    assert (told["changed"], told["undetermined"], told["changes"]) == (0, [], [])
    assert told["totals"]["same"] == 10


def test_whatif_names_what_is_newly_denied_and_by_which_rule(worked: Place, other: Place) -> None:
    baseline(other, "under: [reports]", "under: [notes]")
    ran = worked.here("whatif", "--all", "--system", str(other.path), status=1)
    line = ran.out.splitlines()[0]
    assert line.startswith(
        "tighter file-write for local: allow → deny (policy baseline, .system/policies/baseline.yaml:2"
    )
    assert ran.out.endswith("10 calls of 4 sessions judged again: 0 looser, 1 tighter\n")
    assert worked.here("whatif", "--all", "--system", str(other.path), "--exit-zero", status=0).out == ran.out
