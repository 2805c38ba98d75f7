"""Whole workspaces that somebody tampered with, and others that are honest: the former are found and named.

``python -m benchmarks.faults tamper honest`` tries all of it.
"""

import shutil
from pathlib import Path

import pytest
from agreeing import javascript
from faults import histories
from faults.attacks import ATTACKS
from faults.judging import Judge
from faults.logged import CONTROLS, LOGGED
from faults.manipulations import Change
from faults.states import State, honest
from test_tampering import HASHED, STRUCTURE, TEMPLATE


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Give a workspace that nobody has signed anything about."""
    return honest(tmp_path_factory.mktemp("honest"), log=False)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Give a workspace with a log, of which a checkpoint was kept elsewhere."""
    return honest(tmp_path_factory.mktemp("logged"))


@pytest.mark.parametrize("name", list(ATTACKS)[::3])
def test_manipulation_is_found_and_named(judge: Judge, state: State, tmp_path: Path, name: str):
    assert judge.misses(state, ATTACKS[name], tmp_path / "copy") is None


@pytest.mark.parametrize("name", list(LOGGED)[::3])
def test_manipulation_is_found_by_the_log(judge: Judge, logged: State, tmp_path: Path, name: str):
    assert judge.misses(logged, LOGGED[name], tmp_path / "copy", "--log-key", logged.key) is None


@pytest.mark.parametrize("name", CONTROLS)
def test_what_no_reader_of_the_files_can_find_is_found_with_a_checkpoint_kept_elsewhere(
    judge: Judge, logged: State, tmp_path: Path, name: str
):
    assert judge.found_only_by(logged, CONTROLS[name], tmp_path)


def test_reader_in_javascript_finds_the_same(state: State, logged: State, tmp_path: Path):
    """Every third manipulation, as above, and whatever nobody finds who has the files alone."""

    def said(of: State, name: str, changes: list[Change], *keys: str) -> list[str]:
        copies = [of.copy(tmp_path / f"{name}{number}") for number in range(len(changes))]
        for copy, change in zip(copies, changes, strict=True):
            change(copy)
        return [verdict.partition(":")[0] for verdict in javascript("--state", *(copy.state for copy in copies), *keys)]

    plain = [one.change for one in list(ATTACKS.values())[::3]]
    assert "sound" not in said(state, "plain", plain)
    assert "sound" not in said(logged, "logged", [one.change for one in list(LOGGED.values())[::3]], logged.key)
    assert set(said(logged, "control", [lambda _: None, *CONTROLS.values()], logged.key)) == {"sound"}
    assert said(state, "honest", [lambda _: None]) == ["sound"]


def test_honest_workspaces_raise_no_alarm(judge: Judge, state: State, logged: State):
    for each, verdict in ((state, "unwitnessed: "), (logged, "sound and complete up to checkpoint ")):
        judged = judge(each)
        assert judged.status == 0
        assert judged.verdict.startswith(verdict)
        assert not judged.broken


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_honest_histories_raise_no_alarm(tmp_path: Path):
    assert sum(histories.ledgers_of(range(1), tmp_path, steps=8)) > 5
    shutil.rmtree(tmp_path)


def test_named_manipulations_are_more_than_250():
    assert len(HASHED) + len(TEMPLATE) + len(STRUCTURE) + len(ATTACKS) + len(LOGGED) >= 250
