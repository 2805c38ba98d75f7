"""The pack is data only, it can be used, and its policies are tested; the example is what tools report."""

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from commandline import Place
from swe_examples import REPOSITORY, TASK, UNITS, read_value, texts, unit_of

from deedbook.plugins.plugins import discover
from deedbook_pack.lint import lint_package
from deedbook_pack.packages import open_packs

PROJECT = Path(__file__).parents[1]
GIT = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def test_no_rule_of_the_pack_is_dead_and_each_has_a_test():
    [(title, findings)] = lint_package(str(PROJECT), discover())
    assert title.startswith("swe ")
    assert findings == []


def test_pack_has_data_only():
    with ExitStack() as held:
        [pack] = open_packs(str(PROJECT), held, discover())
        names = list(pack.folder().all_names())
    assert {name.rpartition(".")[2] for name in names} == {"md", "yaml", "json", "agent"}


def apply(folder, unit):
    patch = texts()[f"tasks/{TASK}/implementation/units/{unit}/patch.diff"]
    subprocess.run(["git", "apply", "--check", "-"], cwd=folder, env=GIT, input=patch.encode(), check=True)
    subprocess.run(["git", "apply", "-"], cwd=folder, env=GIT, input=patch.encode(), check=True)


def test_patches_of_the_example_apply_one_after_the_other(tmp_path):
    folder = tmp_path / "textkit"
    shutil.copytree(REPOSITORY, folder)
    for unit in UNITS:
        apply(folder, unit)
    assert '"[a-z0-9]+"' in (folder / "textkit/slugs.py").read_text()


@pytest.mark.campaign
def test_results_of_the_example_are_what_the_tools_report(tmp_path):
    """Each command of the contracts runs in the sandbox on the changed repository; its parsed result is the file."""
    from deedbook_flow_swe.tools.reports import ReportSubject, parse_report

    place = Place(tmp_path)
    place.system("deedbook.yaml", "schema_version: v1\npacks: [swe]\n")
    for folder in ("repos/textkit", "worktree"):
        shutil.copytree(REPOSITORY, tmp_path / folder)
    for unit in UNITS:
        apply(tmp_path / "worktree", unit)

    path = f"tasks/{TASK}/requirements/acceptance-criteria.md"
    criteria = read_value(path, texts()[path])["criteria"]

    def call(ability, reads, unit=None, **args):
        given = [f"{key}:={json.dumps(value)}" for key, value in {"code": "worktree", **args}.items()]
        result = place.here("call", ability, *given, "--json", status=0).json
        return parse_report(reads, result["result"], ReportSubject(task=TASK, unit=unit, criteria=criteria))

    for unit in map(unit_of, UNITS):
        found = call("swe/coverage", "coverage", unit, tests=unit["verification"]["tests"])
        assert found in json.loads(texts()[f"tasks/{TASK}/verification/unit-tests.json"])
    expected = json.loads(texts()[f"tasks/{TASK}/verification/integration-tests.json"])
    assert call("swe/tests", "pytest", tests=["."]) == expected
    assert call("swe/lint", "ruff") == json.loads(texts()[f"tasks/{TASK}/verification/lint.json"])
    assert call("swe/secrets", "secrets", before="repos/textkit")["findings"] == []
    found = call("swe/regression", "regression", before="repos/textkit")
    assert found == json.loads(texts()[f"tasks/{TASK}/integration/regression-results.json"])
