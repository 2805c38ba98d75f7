"""What a crash, a full or failing disk, and damage do to a ledger: nothing acknowledged is lost, nothing is guessed."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import killing
import pytest
from writing import NAME, again, begin, checked, note, types

from deedbook import journal
from deedbook.errors import DeedbookError, LedgerError
from deedbook.files import Folder
from deedbook.ledger import Ledger
from deedbook.reader import read
from deedbook.sealed import opened

ROOT = os.geteuid() == 0


def code(caught) -> str:
    return caught.value.error.code


class FailingOs:
    """The `os` of a module, in which calls fail: *plan* says with what, by the name of the call and its number."""

    def __init__(self, plan) -> None:
        self.calls: list[str] = []
        self._plan = plan

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in SYSTEM_CALLS:
            return real

        def call(*args, **kwargs):
            self.calls.append(name)
            return self._plan(name, len(self.calls), lambda: real(*args, **kwargs), args)

        return call


SYSTEM_CALLS = {
    "open",
    "write",
    "pread",
    "fstat",
    "ftruncate",
    "fsync",
    "fdatasync",
    "mkdir",
    "rename",
    "unlink",
    "scandir",
}


def failing(monkeypatch, plan) -> FailingOs:
    fake = FailingOs(plan)
    for module in ("journal", "files", "ledger", "chain"):
        monkeypatch.setattr(f"deedbook.{module}.os", fake)
    return fake


def only(name, problem):
    """Plan that every call of *name* fails with *problem*."""

    def plan(called, _number, go, _args):
        if called == name:
            raise problem
        return go()

    return plan


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
BROKEN_DISK = OSError(errno.EIO, "Input/output error")


# --- killed writers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runs", "size"), [(8, 300), (3, 450_000), (3, 2_000_000)])
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path, runs, size):
    acknowledged, _ = killing.rounds(tmp_path / "ledger", runs, size)
    assert acknowledged > runs


@pytest.mark.skipif(not ROOT, reason="only root may mount a disk to cut its power")
@pytest.mark.parametrize(("runs", "size"), [(3, 300), (2, 900_000)])
def test_power_cuts_lose_nothing_that_was_acknowledged_as_durable(tmp_path, runs, size):
    try:
        acknowledged = killing.power_cuts(tmp_path, runs, size)
    except OSError as problem:
        pytest.skip(f"this machine has no ext4 disk to cut the power of: {problem}")
    assert acknowledged > runs


# --- torn tails -------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(tmp_path):
    """Give a folder in memory where there is one, since these tests sync thousands of times."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    place = memory / f"deedbook-{os.getpid()}-{time.monotonic_ns()}"
    place.mkdir()
    yield place
    shutil.rmtree(place)


def three_lines(place: Path) -> tuple[bytes, bytes]:
    """Write a ledger of three lines; return the first two and the last."""
    ledger = begin(place)
    ledger.append([note(ledger, "first")])
    ledger.append([note(ledger, "last")])
    ledger.close()
    *lines, last = (place / NAME).read_bytes().splitlines(keepends=True)
    return b"".join(lines), last


def recovered(place: Path, torn: bytes) -> None:
    """Open the ledger in *place* again; check that *torn* was set aside, that this is recorded, and that it goes on."""
    before = (place / NAME).stat().st_size - len(torn)
    ledger = again(place)
    ledger.append([note(ledger, "after")])
    ledger.close()
    lines = checked(place)
    assert types(lines)[-2:] == ["ledger.recovered", "user.message"]
    what = lines[-2]["payload"]
    assert (what["offset"], what["bytes"]) == (before, len(torn))
    assert (place / what["kept"]).read_bytes() == torn
    assert what["kept"] == f".torn-{before}-{what['sha256'][:16]}"


def test_torn_tail_at_every_byte_is_set_aside_and_recorded(quick):
    before, last = three_lines(quick / "whole")
    for cut in range(1, len(last)):
        place = quick / str(cut)
        place.mkdir()
        (place / NAME).write_bytes(before + last[:cut])
        assert [event.seq for event in read(place)] == [0, 1]
        recovered(place, last[:cut])


def test_tail_that_ends_with_a_whole_line_is_not_torn(quick):
    before, last = three_lines(quick)
    for content, size in ((before, 2), (before + last, 3)):
        (quick / NAME).write_bytes(content)
        ledger = again(quick)
        assert ledger.size == size
        ledger.close()
        assert (quick / NAME).read_bytes() == content


@pytest.mark.parametrize(
    "torn",
    [
        b"\0" * 4096,
        b"\0" * 100_000 + b"\n",
        b'{"schema_version":"1.1","session_id":"' + b"\0" * 512 + b'"}\n',
        b"garbage\n",
        b"garbage\nand more\n\n",
        b'{"schema_version":"1.1","ses\n',
        b"\xff\xfe" * 40_000,
        b"\n",
    ],
    ids=["zeros", "zeros and a newline", "zeros within", "garbage", "much garbage", "half a line", "binary", "newline"],
)
def test_tail_of_zeros_or_garbage_is_set_aside_and_recorded(quick, torn):
    before, last = three_lines(quick)
    (quick / NAME).write_bytes(before + last + torn)
    recovered(quick, torn)


def test_torn_tails_do_not_add_up(quick):
    three_lines(quick)
    for torn in (b"{", b"{{", b"{{{"):
        with (quick / NAME).open("ab") as file:
            file.write(torn)
        recovered(quick, torn)
    assert types(checked(quick)).count("ledger.recovered") == 3


def test_recovery_after_the_end_is_recorded_and_the_session_stays_ended(quick):
    ledger = begin(quick)
    ledger.append([note(ledger, event_type="session.end")])
    ledger.close()
    with (quick / NAME).open("ab") as file:
        file.write(b"{")
    ledger = again(quick)
    with pytest.raises(LedgerError, match="has ended"):
        ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(quick)) == ["session.start", "session.end", "ledger.recovered"]


def test_recovery_that_was_killed_is_recorded_by_the_next(quick, monkeypatch):
    before, last = three_lines(quick)
    (quick / NAME).write_bytes(before + last[:100])

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "recover", killed)
        with pytest.raises(KeyboardInterrupt):
            again(quick)
    assert (quick / NAME).read_bytes() == before
    again(quick).close()
    again(quick).close()
    lines = checked(quick)
    assert types(lines).count("ledger.recovered") == 1
    assert (quick / lines[-1]["payload"]["kept"]).read_bytes() == last[:100]


def test_recovery_that_finds_no_room_changes_nothing(quick, monkeypatch):
    before, last = three_lines(quick)
    content = before + last[:100]
    (quick / NAME).write_bytes(content)
    with monkeypatch.context() as patch:
        failing(patch, only("write", NO_SPACE))
        with pytest.raises(LedgerError, match="No space left"):
            again(quick)
    assert (quick / NAME).read_bytes() == content
    recovered(quick, last[:100])


# --- damage -----------------------------------------------------------------------------------------------------------


def test_damage_in_the_last_line_is_never_taken_for_what_was_written(quick):
    before, last = three_lines(quick)
    for at in range(len(last) - 1):
        damaged = bytearray(last)
        damaged[at] ^= 0x01
        (quick / NAME).write_bytes(content := before + bytes(damaged))
        if at in (0, len(last) - 2):  # the braces: no line any more
            recovered(quick, bytes(damaged))
            continue
        with pytest.raises(LedgerError) as caught:
            again(quick)
        assert code(caught) == "LEDGER_UNSOUND"
        assert (quick / NAME).read_bytes() == content


@pytest.mark.parametrize(
    "last",
    [
        b'{"valid":"json"}\n',
        b'{"schema_version":"1.0","payload":{}}\n',
        lambda before, last: before.splitlines(keepends=True)[0].replace(b'"5e5e', b'"ffff'),
        lambda before, last: last.replace(b'"text":"last"', b'"text":"lost"'),
        lambda before, last: last.replace(b",", b", ", 1),
    ],
    ids=["another object", "an older envelope", "another session", "another payload", "another spelling"],
)
def test_last_line_that_was_not_written_so_is_refused(quick, last):
    before, real = three_lines(quick)
    line = last if isinstance(last, bytes) else last(before, real)
    (quick / NAME).write_bytes(before + line)
    with pytest.raises(LedgerError) as caught:
        again(quick)
    assert code(caught) == "LEDGER_UNSOUND"
    assert (quick / NAME).read_bytes() == before + line


def test_tail_that_no_writer_leaves_is_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MAX_TAIL", 100_000)
    three_lines(tmp_path)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"\0" * 300_000)
    with pytest.raises(LedgerError) as caught:
        again(tmp_path)
    assert code(caught) == "LEDGER_UNSOUND"


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
        with pytest.raises(LedgerError, match="the ledger is as it was") as caught:
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


# --- syncs ------------------------------------------------------------------------------------------------------------


class Disk:
    """An fdatasync that counts who called it, may fail, and knows what it has covered."""

    def __init__(self, *, slow: float = 0.0) -> None:
        self.callers: list[int] = []
        self.covered = 0
        self.failing = False
        self._slow = slow

    def __call__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self.callers.append(threading.get_ident())
        if self.failing:
            raise BROKEN_DISK
        time.sleep(self._slow)
        self.covered = max(self.covered, size)

    def in_this_thread(self) -> int:
        return self.callers.count(threading.get_ident())


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
    monkeypatch.setattr("deedbook.journal.threading.Thread.start", no_thread)
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


def test_sealed_values_are_synced_before_the_line_that_names_them(tmp_path):
    order = []
    ledger = begin(tmp_path, fdatasync=lambda fd: order.append(Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name))
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
        texts = [opened(folder, event.payload).get("text") for event in read(place)]
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
