"""Damaged workspaces: verify reports on every ledger, calls nothing complete that is not, and never fails itself.

``pytest --campaign tests/test_verify_fuzz.py`` tries all cases; otherwise the first few are tried.
"""

from pathlib import Path

import pytest
from commandline import SCHEMAS
from faults import histories
from faults.fuzzing import Fuzzer
from faults.states import State, honest, keys_in

from deedbook.format.schema import Schemas

CASES = 6000
AT_ONCE = 30


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Fuzzer:
    """Give what damages a workspace with a log and one without; in a campaign also some with long histories."""
    work = tmp_path_factory.mktemp("fuzzing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schemas, "load", lambda _: SCHEMAS)
        bases = [honest(_made(work / "signed")), honest(_made(work / "plain"), log=False)]
        if pytestconfig.getoption("campaign"):
            with keys_in(work / "config"):
                lived = [histories.live(work, seed, steps=20) for seed in range(3)]
            bases += [State(history.place.path, {}) for history in lived]
    return Fuzzer(*bases)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.campaign(keep=1)
@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_damage_is_reported_and_hides_nothing(fuzzer: Fuzzer, tmp_path: Path, first: int):
    found = [fuzzer.case(seed, tmp_path / str(seed)) for seed in range(first, first + AT_ONCE)]
    assert not list(filter(None, found))
    assert fuzzer.tally.broken > fuzzer.tally.sound
