"""Who may write a ledger, and through what: one writer, its threads, no fork, no links; and what its clock says."""

import os
import subprocess
import sys
import threading

import pytest
from writing import NAME, SESSION, Clock, again, begin, checked, code, note, types

from deedbook.format.errors import FileRefused, LedgerError
from deedbook.format.files import Folder

# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_second_writer_in_this_process_is_told_that_it_is_locked(tmp_path):
    ledger = begin(tmp_path)
    with pytest.raises(LedgerError) as caught:
        again(tmp_path)
    assert code(caught) == "LEDGER_LOCKED"
    assert caught.value.error.retryable
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 2


def test_a_second_writer_in_another_process_is_told_that_it_is_locked(tmp_path):
    ledger = begin(tmp_path)
    script = """
import sys
from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger
try:
    Ledger.reopen(Folder.at(sys.argv[1]))
except LedgerError as problem:
    print(problem.error.code)
"""
    run = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert run.stdout == "LEDGER_LOCKED\n"
    ledger.close()


def test_a_forked_process_cannot_write_and_does_not_disturb_its_parent(tmp_path):
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from writing import begin, note
from deedbook.format.errors import LedgerError
ledger = begin(Path(sys.argv[1]))
ledger.append([note(ledger)])
child = os.fork()
if not child:
    for attempt in (lambda: ledger.append([note(ledger)]), lambda: ledger.append([note(ledger)], durable=True)):
        try:
            attempt()
        except LedgerError as problem:
            print(problem.error.code, flush=True)
    ledger.close()
    os._exit(0)
os.waitpid(child, 0)
ledger.append([note(ledger)], durable=True)
try:
    begin(Path(sys.argv[1]))
except LedgerError as problem:
    print(problem.error.message)
ledger.close()
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, tmp_path, os.path.dirname(__file__)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[:2] == ["LEDGER_BROKEN", "LEDGER_BROKEN"]
    assert len(checked(tmp_path)) == 3


def test_threads_write_one_chain(tmp_path):
    ledger = begin(tmp_path)

    def work(name: int) -> None:
        for i in range(40):
            ledger.append([note(ledger, f"{name}.{i}.a"), note(ledger, f"{name}.{i}.b")], durable=i % 8 == 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    texts = [line["payload"].get("text") for line in checked(tmp_path)][1:]
    assert len(set(texts)) == len(texts) == 640
    for name in range(8):
        own = [text for text in texts if text.startswith(f"{name}.")]
        assert own == [f"{name}.{i}.{part}" for i in range(40) for part in "ab"]


def test_writer_whose_file_is_not_as_long_as_its_chain_says_breaks_the_ledger(tmp_path):
    ledger = begin(tmp_path)
    ledger._journal.end -= 1
    with pytest.raises(LedgerError, match="the chain does not end where the file ends"):
        ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 1


# --- time -------------------------------------------------------------------------------------------------------------


def test_clock_that_goes_back_is_recorded_once_and_then_believed(tmp_path):
    clock = Clock(1_700_003_600.0)
    ledger = begin(tmp_path, clock=clock)
    ledger.append([note(ledger)])
    clock.now -= 3600
    for _ in range(3):
        ledger.append([note(ledger)])
        clock.now += 1
    ledger.close()
    lines = checked(tmp_path)
    assert types(lines) == ["session.start", "user.message", "system.clock_regressed", *["user.message"] * 3]
    assert lines[2]["payload"] == {"from": "2023-11-14T23:13:20.000Z", "to": "2023-11-14T22:13:20.000Z"}
    assert lines[2]["parent_span_id"] == lines[0]["span_id"]
    assert [line["ts"] for line in lines[2:]] == sorted(line["ts"] for line in lines[2:])


def test_clock_that_went_back_while_the_ledger_was_closed_is_recorded(tmp_path):
    begin(tmp_path, clock=Clock(1_700_000_000.0)).close()
    ledger = again(tmp_path, clock=Clock(1_600_000_000.0))
    ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(tmp_path)) == ["session.start", "system.clock_regressed", "user.message"]


def test_clock_that_goes_back_by_less_than_is_written_is_no_event(tmp_path):
    clock = Clock(1_700_000_000.0009)
    ledger = begin(tmp_path, clock=clock)
    clock.now -= 0.0005
    ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(tmp_path)) == ["session.start", "user.message"]


def test_clock_that_goes_back_after_the_end_adds_nothing(tmp_path):
    clock = Clock()
    ledger = begin(tmp_path, clock=clock)
    ledger.append([note(ledger, event_type="session.end")])
    clock.now -= 10
    assert ledger.now() == "2023-11-14T22:13:10.000Z"
    ledger.close()
    assert types(checked(tmp_path)) == ["session.start", "session.end"]


# --- links and special files ------------------------------------------------------------------------------------------


def test_ledger_that_is_a_link_is_refused(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious\n")
    for link in (lambda to: to.symlink_to(victim), lambda to: to.hardlink_to(victim)):
        link(tmp_path / NAME)
        for attempt in (begin, again):
            with pytest.raises((FileRefused, LedgerError)):
                attempt(tmp_path)
        (tmp_path / NAME).unlink()
    assert victim.read_bytes() == b"precious\n"


def test_ledger_that_is_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / NAME)
    with pytest.raises((FileRefused, LedgerError)):
        again(tmp_path)


def test_session_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    (tmp_path / "state" / "sessions" / SESSION).symlink_to(tmp_path / "outside")
    with Folder.at(tmp_path / "state") as state, pytest.raises(FileRefused):
        state.sub(f"sessions/{SESSION}", create=True)


def test_sealed_folder_that_is_a_link_is_refused_and_nothing_is_recorded(tmp_path):
    (tmp_path / "outside").mkdir()
    ledger = begin(tmp_path / "own")
    (tmp_path / "own" / "sealed").symlink_to(tmp_path / "outside")
    with pytest.raises(FileRefused):
        ledger.append([note(ledger, "x" * 2_000_000)])
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path / "own")) == 2
    assert not list((tmp_path / "outside").iterdir())
