"""The contracts find what is wrong: plugins that are, each in a way of its own, fail exactly where they should.

They are installed distributions, tried in a pytest of its own as their authors would call it.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

HERE = Path(__file__).parent
GROUPS = {
    "tools": "Tool:fine Writes Keeps Changes Differs TakesAnySetting Tells Sleeps Hosted Opens Threads",
    "providers": "Provider Prose Invents Bare",
    "flows": "Flow MovesOn Random WritingFlow",
    "hooks": "Hook Counts Reads Lax Raises Unmarked",
    "policy_kinds": "Policy CountingPolicy ReadingPolicy LaxPolicy FragilePolicy PointlessPolicy Judging "
    "FailingSubject AskingSubject UnnamedSubject CountingSubject",
    "skill_loaders": "Loader Skips Widens Varies",
}
PACKS = {"pack": {"policies/calm.yaml": "calm"}, "code": {"policies/calm2.yaml": "calm2", "run.py": ""}, "empty": {}}
POLICY = "schema_version: v1\nid: {}\nkind: rules\nrules: []\ndefault: allow\n"

FAILS = {
    "Fine": set(),
    "Writes": {"writes_nothing_unless_it_says_so"},
    "Keeps": {"neither_changes_nor_keeps_its_arguments"},
    "Changes": {"neither_changes_nor_keeps_its_arguments"},
    "Differs": {"equal_settings_give_equal_behaviour"},
    "TakesAnySetting": {"takes_its_settings_and_refuses_others"},
    "Tells": {"keeps_its_secrets"},
    "Sleeps": {"a_call_that_is_late_ends"},
    "Hosted": set(),
    "Opens": {"reaches_no_file_by_itself"},
    "Threads": {"reaches_no_file_by_itself"},
    "Peeks": {"imports_of_the_kernel_only_the_contract"},
    "Heavy": {"importing_it_imports_nothing_heavy"},
    "Absent": {"is_offered_by_an_installed_distribution", "fits_its_kind"},
    "NoExamples": {"does_what_its_examples_say_and_is_recorded"},
    "WrongExample": {"does_what_its_examples_say_and_is_recorded"},
    "Provider": set(),
    "Prose": {"answers_in_the_form_that_is_asked_for"},
    "Invents": {"asks_only_for_tools_that_it_was_offered"},
    "Bare": {"does_what_its_examples_say_and_is_recorded"},
    "Flow": set(),
    "MovesOn": {"does_what_its_examples_say_and_is_recorded"},
    "Random": {"equal_settings_give_equal_behaviour"},
    "WritingFlow": {"writes_nothing_unless_it_says_so"},
    "Hook": set(),
    "Counts": {"is_pure_if_it_says_so"},
    "Reads": {"is_pure_if_it_says_so"},
    "Lax": {"answers_as_its_cases_say_and_is_recorded"},
    "Raises": {"answers_as_its_cases_say_and_is_recorded"},
    "Unmarked": {"fits_its_kind"},
    "Policy": set(),
    "CountingPolicy": {"is_pure_if_it_says_so"},
    "ReadingPolicy": {"is_pure_if_it_says_so"},
    "LaxPolicy": {"answers_as_its_cases_say_and_is_recorded"},
    "FragilePolicy": {"never_fails_at_a_body_that_is_malformed"},
    "PointlessPolicy": {"says_of_a_policy_only_what_the_kernel_can_show"},
    "Judging": set(),
    "FailingSubject": {"answers_about_every_value_of_its_subjects"},
    "AskingSubject": {"answers_about_every_value_of_its_subjects"},
    "UnnamedSubject": {"has_a_case_for_every_subject"},
    "CountingSubject": {"is_pure_if_it_says_so"},
    "Loader": set(),
    "Skips": {"names_a_skill_that_is_wrong"},
    "Widens": {"loads_its_skills"},
    "Varies": {"loads_the_same_again"},
    "Pack": set(),
    "Lacking": {"joins_the_workspace_with_what_it_brings"},
    "Code": {"fits_its_kind"},
    "Empty": {"fits_its_kind"},
}
"""Each test class of ``wrong/test_wrong.py``, and the checks that it fails; others may fail with them."""


def spelled(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


def install(site: Path) -> None:
    """Install the wrong plugins as one distribution, and the packs as another."""
    site.mkdir()
    (site / "wrong_plugins.py").write_text((HERE / "wrong/wrong_plugins.py").read_text())
    (site / "peeking.py").write_text("import deedbook.call.door\nfrom wrong_plugins import Tool as Plugin\n")
    points = ""
    for group, names in GROUPS.items():
        pairs = [each.partition(":") for each in names.split()]
        lines = (f"{to or spelled(name)} = wrong_plugins:{name}\n" for name, _, to in pairs)
        points += f"[deedbook.{group}]\n" + "".join(lines)
        points += "peeks = peeking:Plugin\n" if group == "tools" else ""
    points += "[deedbook.packs]\n" + "".join(f"{name} = {name}_of_wrong.data\n" for name in PACKS)
    files = {f"{name}_of_wrong/data/{path}": POLICY.format(policy) if policy else "" for name, own in PACKS.items()
             for path, policy in own.items()}  # fmt: skip
    told = "wrong_plugins-1.0.dist-info"
    files |= {f"{told}/METADATA": "Metadata-Version: 2.1\nName: wrong-plugins\nVersion: 1.0\n"}
    files |= {f"{told}/entry_points.txt": points}
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (site / told / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{told}/RECORD"]))


def named(wrong: dict[str, set[str]]) -> list[str]:
    """Return the ids of the right plugins' tests, and of those that the wrong ones fail."""
    right = [f"test_wrong.py::Test{name}" for name, checks in wrong.items() if not checks]
    return right + [f"test_wrong.py::Test{name}::test_{check}" for name in wrong for check in sorted(wrong[name])]


def tried(folder: Path, *options: str, tests: list[str], **env: str) -> dict[str, set[str]]:
    """Run the tests of the wrong plugins; return for each class the checks that failed."""
    report = folder / "report.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
    done = subprocess.run(
        [*argv, *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "site"), "PYTEST_ADDOPTS": "", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    if not ET.parse(report).getroot().findall(".//testcase"):
        raise AssertionError(done.stdout + done.stderr)
    found: dict[str, set[str]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        names = found.setdefault(case.attrib["classname"].rpartition(".Test")[2], set())
        names |= {case.attrib["name"].removeprefix("test_")} if failed else set()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("wrong")
    install(made / "site")
    (made / "test_wrong.py").write_text((HERE / "wrong/wrong_tests.py").read_text())
    return made


def test_each_wrong_plugin_fails_where_it_is_wrong_and_a_right_one_nowhere(folder, sample_size):
    """One test, since they share one pytest; in a campaign with the checks that only may fail."""
    failed = tried(folder, tests=["test_wrong.py"] if sample_size(0, 1) else named(FAILS))
    assert failed.keys() == FAILS.keys()
    assert {name: FAILS[name] - found for name, found in failed.items() if not found >= FAILS[name]} == {}
    assert {name for name, found in failed.items() if found} == {name for name, wrong in FAILS.items() if wrong}


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (["--import-mode=importlib"], {}),
        (["--import-mode=importlib", "-p", "deedbook_testing.fixtures"], {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
        (["-p", "deedbook_testing.fixtures"], {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
    ],
    ids=["importlib", "importlib, named", "named"],
)
def test_contracts_work_however_pytest_is_called(folder, options, env):
    tests = [f"test_wrong.py::Test{name}::test_writes_nothing_unless_it_says_so" for name in ("Fine", "Writes")]
    assert tried(folder, *options, tests=tests, **env) == {"Fine": set(), "Writes": FAILS["Writes"]}
