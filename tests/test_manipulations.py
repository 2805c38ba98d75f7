"""Whole workspaces that somebody tampered with, and others that are honest: the former are found and named.

``python -m benchmarks.faults tamper honest`` tries all of it.
"""

import shutil
from pathlib import Path

import pytest
from faults import histories
from faults.attacks import ATTACKS
from faults.judging import Judge
from faults.manipulations import Manipulation
from faults.states import State, honest
from test_tampering import HASHED, STRUCTURE, TEMPLATE


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Give a workspace that nobody has signed anything about."""
    return honest(tmp_path_factory.mktemp("honest"), log=False)


@pytest.mark.parametrize("name", list(ATTACKS)[::3])
def test_manipulation_is_found_and_named(judge: Judge, state: State, tmp_path: Path, name: str):
    assert judge.misses(state, ATTACKS[name], tmp_path / "copy") is None


def test_an_honest_workspace_raises_no_alarm(judge: Judge, state: State, tmp_path: Path):
    nothing = Manipulation(lambda _: None, "call", ".*")
    missed = judge.misses(state, nothing, tmp_path / "copy")
    assert missed
    assert "status 0" in missed
    assert "()" in missed


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_honest_histories_raise_no_alarm(tmp_path: Path):
    assert sum(histories.ledgers_of(range(1), tmp_path, steps=8)) > 5
    shutil.rmtree(tmp_path)


def test_named_manipulations_are_more_than_150():
    assert len(HASHED) + len(TEMPLATE) + len(STRUCTURE) + len(ATTACKS) >= 150
