"""When a ledger syncs: who waits for it, what it covers, and what a failed one means."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from failing import Disk, in_memory
from writing import NAME, again, begin, checked, code, note

from deedbook.format.errors import LedgerError
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.ledger import journal
from deedbook.ledger.ledger import Ledger


@pytest.fixture
def quick(tmp_path):
    with in_memory(tmp_path) as place:
        yield place


def test_boundary_syncs_once_for_a_durable_append_and_not_for_another(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, fdatasync=disk)
    for _ in range(5):
        ledger.append([note(ledger)])
    assert disk.in_this_thread() == 0
    ledger.append([note(ledger), note(ledger)], durable=True)
    assert disk.in_this_thread() == 1
    assert disk.covered == (tmp_path / NAME).stat().st_size
    ledger.close()


def test_boundary_syncs_the_rest_soon_without_being_asked(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, fdatasync=disk)
    for round_ in range(3):
        ledger.append([note(ledger, str(round_))])
        deadline = time.monotonic() + 10
        while disk.covered < (tmp_path / NAME).stat().st_size and time.monotonic() < deadline:
            time.sleep(0.005)
        assert disk.covered == (tmp_path / NAME).stat().st_size
    assert disk.in_this_thread() == 0
    ledger.close()


def test_boundary_syncs_the_rest_when_it_is_closed(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, fdatasync=disk)
    ledger.append([note(ledger)])
    ledger.close()
    assert disk.covered == (tmp_path / NAME).stat().st_size


def test_close_ends_the_flusher_at_whatever_moment(quick, monkeypatch):
    monkeypatch.setattr(journal, "FLUSH_SECONDS", 0.0001)
    ledger = begin(quick)
    for i in range(300):
        ledger.append([note(ledger)])
        time.sleep(i % 30 / 100_000)
        closing_it = threading.Thread(target=ledger.close, daemon=True)
        closing_it.start()
        closing_it.join(30)
        assert not closing_it.is_alive()
        ledger = again(quick)
    ledger.close()


def test_boundary_goes_without_its_flusher_where_no_thread_can_be_had(tmp_path, monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    disk = Disk()
    monkeypatch.setattr("deedbook.ledger.journal.threading.Thread.start", no_thread)
    ledger = begin(tmp_path, fdatasync=disk)
    ledger.append([note(ledger)])
    assert disk.in_this_thread() == 2
    ledger.close()


def test_always_syncs_every_append_once(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, durability="always", fdatasync=disk)
    for _ in range(4):
        ledger.append([note(ledger), note(ledger)])
    assert len(disk.callers) == 5
    ledger.close()


def test_os_never_syncs(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, durability="os", fdatasync=disk)
    ledger.append([note(ledger)], durable=True)
    ledger.append([note(ledger, "x" * 2_000_000)], durable=True)
    ledger.close()
    assert disk.callers == []


def test_first_durable_event_is_durable_with_the_folders_it_lies_in(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr("deedbook.format.files.os.fsync", lambda fd: synced.append(name_of(fd)) or fsync(fd))
    with Folder.at(tmp_path / "state", create=True) as state:
        folder = state.sub("sessions/s", create=True)
    ledger = Ledger.create(folder, "s", "7a" * 16, fdatasync=lambda fd: synced.append(name_of(fd)))
    root = Entry(label("session.start", "runtime", None), ledger.span(), None, b"{}")
    ledger.append([root], durable=True)
    assert {tmp_path, *(tmp_path / "state" / name for name in ("", "sessions", "sessions/s"))} <= set(synced)
    assert synced[-1] == tmp_path / "state" / "sessions" / "s" / NAME
    ledger.close()


def name_of(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


def test_sealed_values_are_synced_before_the_line_that_names_them(tmp_path):
    order = []
    ledger = begin(tmp_path, fdatasync=lambda fd: order.append(name_of(fd).parent.name))
    order.clear()
    ledger.append([note(ledger, "x" * 2_000_000)], durable=True)
    ledger.close()
    assert order[0] == "sealed"
    assert order[-1] == tmp_path.name


def test_sixteen_threads_share_syncs_and_each_event_is_covered_when_acknowledged(tmp_path):
    disk = Disk(slow=0.003)
    ledger = begin(tmp_path, durability="always", fdatasync=disk)
    acknowledged: dict[int, int] = {}
    barrier = threading.Barrier(16)

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            seq = ledger.append([note(ledger)])
            acknowledged[seq] = disk.covered

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    checked(tmp_path)
    end = 0
    for seq, line in enumerate((tmp_path / NAME).read_bytes().splitlines(keepends=True)):
        end += len(line)
        assert acknowledged.get(seq, end) >= end
    assert len(acknowledged) == 320
    assert len(disk.callers) <= 320 / 5


def test_failed_sync_breaks_the_ledger_and_is_not_tried_again(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, fdatasync=disk)
    disk.failing = True
    with pytest.raises(LedgerError, match="Input/output error") as caught:
        ledger.append([note(ledger)], durable=True)
    assert code(caught) == "LEDGER_BROKEN"
    disk.failing = False
    tried = len(disk.callers)
    for durable in (True, False):
        with pytest.raises(LedgerError, match="reopen the ledger"):
            ledger.append([note(ledger)], durable=durable)
    ledger.close()
    assert len(disk.callers) == tried
    ledger = again(tmp_path)
    ledger.append([note(ledger)], durable=True)
    ledger.close()
    checked(tmp_path)


def wait_for_the_fault(ledger: Ledger, deadline: float) -> None:
    with suppress(LedgerError):
        while time.monotonic() < deadline:
            ledger.append([note(ledger)])
            time.sleep(0.005)


def test_failed_sync_of_the_flusher_breaks_the_ledger(tmp_path):
    disk = Disk()
    disk.failing = True
    ledger = begin(tmp_path, fdatasync=disk)
    wait_for_the_fault(ledger, time.monotonic() + 10)
    with pytest.raises(LedgerError, match="the disk did not take"):
        ledger.append([note(ledger)])
    ledger.close()


def test_failed_sync_reaches_every_thread_that_waits_for_it(tmp_path):
    disk = Disk(slow=0.05)
    ledger = begin(tmp_path, durability="always", fdatasync=disk)
    disk.failing = True
    refused = []

    def work() -> None:
        try:
            ledger.append([note(ledger)])
        except LedgerError as problem:
            refused.append(problem.error.code)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    assert refused == ["LEDGER_BROKEN"] * 8


def test_close_that_cannot_sync_says_so_and_gives_the_lock_back(tmp_path):
    disk = Disk()
    ledger = begin(tmp_path, fdatasync=disk)
    disk.failing = True
    with pytest.raises(LedgerError):
        ledger.close()
    again(tmp_path).close()
