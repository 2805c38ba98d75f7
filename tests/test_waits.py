"""Waits in slices: the main thread sees a signal although nothing interrupts its wait."""

import os
import select
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from deedbook.format import waits

BLOCKED = """
import signal, sys, threading
from concurrent.futures import Future
from deedbook.format import waits
import os, select

# The signal is delivered to a thread that is not the main thread, as the system may do: nothing ends the wait early.
waiting = threading.Event()

def interrupt():
    waiting.wait()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait()

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
thread = threading.Thread(target=interrupt, daemon=True)
nothing = select.poll()
nothing.register(os.pipe()[0], select.POLLIN)
wait = {
    "result": lambda: waits.get_result(Future()),
    "join": lambda: waits.join(thread),
    "poll": lambda: waits.poll(nothing, 600),
}
thread.start()
try:
    waiting.set()
    wait[sys.argv[1]]()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("wait", ["result", "join", "poll"])
def test_wait_sees_a_signal_that_another_thread_received(wait: str) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, wait], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"interrupted\n"


def test_get_result_raises_the_exception_of_the_future_also_a_timeout() -> None:
    future: Future[Any] = Future()
    future.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        waits.get_result(future)


def test_get_result_waits_longer_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SLICE_S", 0.001)
    future: Future[str] = Future()
    timer = threading.Timer(0.05, future.set_result, ["done"])
    timer.start()
    assert waits.get_result(future) == "done"
    timer.join()


def test_poll_gives_what_is_ready_and_nothing_after_its_time() -> None:
    reader, writer = os.pipe()
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    assert waits.poll(ready, 0.0) == []
    os.write(writer, b".")
    assert waits.poll(ready, 600.0) == [(reader, select.POLLIN)]
    os.close(reader)
    os.close(writer)
