"""Faults of machines and disks, a little of each; ``python -m benchmarks.faults`` runs the full figures."""

from pathlib import Path

import pytest
from failing import ROOT, in_memory
from faults import flips, killing, racing, sessions, soak, syscalls
from faults.writers import Style


@pytest.fixture
def quick(tmp_path):
    with in_memory(tmp_path) as place:
        yield place


@pytest.mark.parametrize(
    ("runs", "kind", "size", "durability"),
    [
        (5, "session", "small", "boundary"),
        (1, "session", "line", "always"),
        (2, "session", "sealed", "boundary"),
        (2, "workspace", "small", "always"),
        (1, "workspace", "sealed", "boundary"),
    ],
)
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path, runs, kind, size, durability, sample_size):
    runs = min(runs, sample_size(2, runs))
    toll = killing.kills(tmp_path, runs, Style(kind, killing.SIZES[size], durability))
    assert toll.acknowledged >= runs


@pytest.mark.skipif(not ROOT, reason="only root may mount a disk to cut its power")
@pytest.mark.parametrize(("kind", "size", "disk"), [("session", "small", "ext4"), ("workspace", "line", "xfs")])
def test_power_cuts_lose_nothing_that_was_acknowledged_as_durable(tmp_path, kind, size, disk):
    style = Style(kind, killing.SIZES[size], synced=True)
    try:
        toll = killing.power_cuts(tmp_path, 2, style, disk)
    except OSError as problem:
        pytest.skip(f"this machine has no disk to cut the power of: {problem}")
    assert toll.stopped >= 2


@pytest.mark.skipif(not syscalls.available(), reason="strace is not installed, or may not hold a process here")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_system_calls_fail_in_turn_and_nothing_acknowledged_is_lost(quick, sample_size):
    counts = syscalls.sweep(quick, every=sample_size(64, 24))
    assert counts["cases"] >= 20
    assert counts["told"] > 6
    assert counts["died"] > 2


@pytest.mark.parametrize(("durability", "every", "log"), [("boundary", 9, False), ("always", 17, True)])
def test_sessions_outlive_every_write_and_sync_that_fails(quick, durability, every, log, sample_size):
    counts = sessions.sweep(quick, durability, every=every * sample_size(3, 1), log=log)
    assert counts["cases"] >= 12
    assert counts["told"] > 6


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_sessions_whose_process_dies_at_a_write_or_a_sync_are_recovered(quick, sample_size):
    assert sessions.deaths(quick, "boundary", every=sample_size(19, 5), log=True) >= 12


def test_eight_processes_write_one_chain_while_another_signs_it(tmp_path):
    race = racing.race(tmp_path, processes=8, events=20, size=20_000)
    assert race.held == 160
    assert race.checkpoints


@pytest.mark.parametrize(("seeds", "level"), [(range(700), "hashes"), (range(700, 1000), "full")])
def test_no_flipped_bits_are_accepted(quick, seeds, level):
    assert list(flips.accepted(quick, seeds, level)) == []


def test_a_fault_that_harms_is_found_by_the_harness(tmp_path):
    """A harness that cannot fail proves nothing: what was acknowledged and is then cut away is missed."""
    style = Style()
    said = killing.stop_some(tmp_path / "ledger", style, ["w"], killing.kill)
    path: Path = tmp_path / "ledger" / ".events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-4]))
    with pytest.raises(AssertionError, match="lost"):
        killing.kept(tmp_path / "ledger", style, said)


def test_load_with_kills_loses_nothing_and_holds_its_memory(tmp_path):
    soaked = soak.soak(tmp_path, 2.5, writers=2, every=1.0)
    assert soaked.kills
    assert soaked.verified
    assert soaked.events > sum(soaked.quarters)
    assert len(list(soaked.lines())) == 10
