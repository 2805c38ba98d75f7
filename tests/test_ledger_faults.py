"""What a full or failing disk does to a ledger: it refuses, stays sound, and goes on when it can."""

import errno
import os
import resource
import shutil
import signal
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest
from failing import BROKEN_DISK, NO_SPACE, ROOT, failing, in_memory
from writing import NAME, again, begin, checked, code, note, types

from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import open_values
from deedbook.ledger import journal
from deedbook.ledger.ledger import Ledger


@pytest.fixture
def quick(tmp_path):
    with in_memory(tmp_path) as place:
        yield place


# --- a full or failing disk -------------------------------------------------------------------------------------------


def fill(ledger: Ledger) -> int:
    """Append until the disk is full; return how many events were acknowledged before."""
    for _ in range(100_000):
        try:
            ledger.append([note(ledger, "x" * 999), note(ledger, "x" * 999)])
        except LedgerError as problem:
            full = problem.error
            break
    assert (full.code, full.retryable) == ("LEDGER_BROKEN", True)
    return ledger.size


@pytest.mark.skipif(not ROOT, reason="only root may mount a small disk")
def test_full_disk_refuses_and_takes_again_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        (disk / "other").write_bytes(b"x" * 50_000)
        ledger = begin(disk / "ledger")
        size = fill(ledger)
        assert len(checked(disk / "ledger")) == size
        (disk / "other").unlink()
        ledger.append([note(ledger, "room again")], durable=True)
        ledger.close()
        assert len(checked(disk / "ledger")) == size + 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_file_size_limit_refuses_and_takes_again_when_it_is_lifted(tmp_path):
    ledger = begin(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        size = fill(ledger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(checked(tmp_path)) == size
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == size + 1


def test_removed_file_takes_no_event(tmp_path):
    """A write to a file without a name succeeds, and nobody will ever read it."""
    ledger = begin(tmp_path)
    (tmp_path / NAME).unlink()
    for _ in range(2):
        with pytest.raises(LedgerError, match="its file was removed"):
            ledger.append([note(ledger)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", [NO_SPACE, BROKEN_DISK, OSError(errno.EDQUOT, "Disk quota exceeded")])
def test_failing_write_is_cut_back_and_not_acknowledged(tmp_path, monkeypatch, problem):
    def half_then_fail(name, _number, go, args):
        if name == "write":
            os.write(args[0], bytes(args[1])[:50])
            raise problem
        return go()

    ledger = begin(tmp_path)
    before = (tmp_path / NAME).read_bytes()
    with monkeypatch.context() as patch:
        failing(patch, half_then_fail)
        with pytest.raises(LedgerError, match="the ledger is unchanged") as caught:
            ledger.append([note(ledger)])
    assert caught.value.error.retryable
    assert (tmp_path / NAME).read_bytes() == before
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 2


def test_short_writes_are_completed(tmp_path, monkeypatch):
    def a_little(name, _number, go, args):
        return os.write(args[0], bytes(args[1])[: 7 + len(args[1]) // 20]) if name == "write" else go()

    ledger = begin(tmp_path)
    with monkeypatch.context() as patch:
        calls = failing(patch, a_little).calls
        ledger.append([note(ledger), note(ledger, "x" * 2_000_000)])
        assert calls.count("write") > 100
    ledger.close()
    assert len(checked(tmp_path)) == 3


def test_short_write_that_cannot_be_completed_is_cut_back(tmp_path, monkeypatch):
    def half_and_nothing(name, number, go, args):
        if name != "write":
            return go()
        return os.write(args[0], bytes(args[1])[:40]) if number == 1 else 0

    ledger = begin(tmp_path)
    with monkeypatch.context() as patch:
        failing(patch, half_and_nothing)
        with pytest.raises(LedgerError, match="takes no more bytes"):
            ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 1


def test_interrupted_write_is_made_again_by_the_system(tmp_path):
    """Signals without pause reach a writer of large lines; each write is whole all the same."""
    ledger = begin(tmp_path)
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(30):
            ledger.append([note(ledger, "x" * 900_000)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    ledger.close()
    assert len(checked(tmp_path)) == 31


def test_interrupt_from_the_keyboard_in_a_write_leaves_no_half_event(tmp_path, monkeypatch):
    def interrupted(name, _number, go, _args):
        done = go()
        if name == "write":
            raise KeyboardInterrupt
        return done

    ledger = begin(tmp_path)
    with monkeypatch.context() as patch:
        failing(patch, interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.append([note(ledger)])
    ledger.append([note(ledger, "goes on")])
    ledger.close()
    assert [line["payload"].get("text") for line in checked(tmp_path)] == [None, "goes on"]


def test_write_that_cannot_be_cut_back_breaks_the_ledger_until_it_is_reopened(tmp_path, monkeypatch):
    def half_and_stuck(name, _number, go, args):
        if name == "write":
            os.write(args[0], bytes(args[1])[:50])
        if name in ("write", "ftruncate"):
            raise BROKEN_DISK
        return go()

    ledger = begin(tmp_path)
    with monkeypatch.context() as patch:
        failing(patch, half_and_stuck)
        with pytest.raises(LedgerError):
            ledger.append([note(ledger)])
    with pytest.raises(LedgerError, match="reopen the ledger") as caught:
        ledger.append([note(ledger)])
    assert code(caught) == "LEDGER_BROKEN"
    assert not caught.value.error.retryable
    ledger.close()
    again(tmp_path).close()
    assert types(checked(tmp_path)) == ["session.start", "ledger.recovered"]


# --- every call failing in turn ---------------------------------------------------------------------------------------


def a_life(place: Path, acknowledged: list[str]) -> None:
    """Create, append, seal, sync, close, tear, reopen, recover, append: every way in which a ledger uses the system."""
    sync = {"fdatasync": journal.os.fdatasync, "durability": "always"}
    with closing(begin(place, **sync)) as ledger:
        for text in ("one", "two" + "x" * 1_100_000):
            ledger.append([note(ledger, text)])
            acknowledged.append(text)
    with (place / NAME).open("ab") as file:
        file.write(b"torn")
    with closing(again(place, **sync)) as ledger:
        for text in ("three", "four"):
            ledger.append([note(ledger, text)])
            acknowledged.append(text)


@pytest.mark.parametrize("problem", [BROKEN_DISK, NO_SPACE], ids=["EIO", "ENOSPC"])
def test_every_system_call_may_fail_and_nothing_acknowledged_is_lost(quick, monkeypatch, problem):
    with monkeypatch.context() as patch:
        fake = failing(patch, lambda _name, _number, go, _args: go())
        a_life(quick / "whole", [])
        total = len(fake.calls)
    assert total > 40
    for fails in range(1, total + 1):
        place, acknowledged = quick / str(fails), []

        def plan(_name, number, go, _args, fails=fails):
            if number == fails:
                raise OSError(problem.errno, problem.strerror)
            return go()

        with monkeypatch.context() as patch:
            failing(patch, plan)
            with suppress(DeedbookError, OSError):
                a_life(place, acknowledged)
        sound_with(place, acknowledged)
        shutil.rmtree(place, ignore_errors=True)


def sound_with(place: Path, acknowledged: list[str]) -> None:
    """Open the ledger once more on a disk that works; it is sound and holds what was acknowledged, in order."""
    if not acknowledged:
        return
    with closing(again(place)) as ledger:
        ledger.append([note(ledger, "at last")], durable=True)
    checked(place)
    with Folder.at(place) as folder:
        texts = [open_values(folder, event.payload).get("text") for event in read(place)]
    assert [text for text in texts if text in acknowledged] == acknowledged


# --- a folder that may not be written ---------------------------------------------------------------------------------


@pytest.mark.skipif(not ROOT, reason="only root may act as another user")
def test_read_only_folder_refuses_the_session_with_one_line(tmp_path):
    begin(tmp_path / "old").close()
    (tmp_path / "new").mkdir()
    with Folder.at(tmp_path / "new") as new, Folder.at(tmp_path / "old") as old:
        os.seteuid(65534)
        try:
            for attempt in (lambda: Ledger.create(new, "s", "7a" * 16), lambda: Ledger.reopen(old)):
                with pytest.raises(LedgerError, match="Permission denied") as caught:
                    attempt()
                assert code(caught) == "LEDGER_BROKEN"
                assert "\n" not in str(caught.value)
        finally:
            os.seteuid(0)
    assert not list((tmp_path / "new").iterdir())
