"""What the command owes the process that it runs in: its streams, and an orderly end when it is told to stop."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TextIO

_PATIENCE = 5.0
"""Seconds that threads and exit functions of plugins have, once all is done and written."""
STOPPING = (signal.SIGTERM, signal.SIGHUP)
"""Besides SIGINT: what asks a process to end. A session is then closed as interrupted, like one of Ctrl-C."""


def hold_streams() -> None:
    """See to it that descriptors 0 to 2 are taken, and that nothing which is printed can fail to be spelled.

    A closed one would be given to the next file that is opened, a ledger perhaps, and whoever prints would write there.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free, which is this one
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def take_signals() -> None:
    """Let what asks the process to end do what Ctrl-C does; a signal that the parent has ignored stays so."""
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def flush(status: int) -> int:
    """Write out what is still held, and return the exit status: 1 instead of 0 where nobody can take it."""
    failed = [stream for stream in (sys.stdout, sys.stderr) if stream and not _flushed(stream)]
    return status or int(bool(failed))


def drop_unwritable(problem: OSError) -> None:
    """Drop what standard output still holds if it fails with *problem* again, which has been reported."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError as again:
        if again.errno == problem.errno:
            _point_nowhere(sys.stdout)


def leave(status: int) -> NoReturn:
    """End the process with *status*: in an orderly way, or at once where something keeps it from ending."""
    watch = threading.Timer(_PATIENCE, _cut_off, [os._exit, os.write, status])
    watch.daemon = True
    watch.start()
    sys.exit(status)


def _cut_off(exit_now: Callable[[int], NoReturn], write: Callable[[int, bytes], int], status: int) -> None:
    with suppress(OSError):
        write(2, b"a plugin keeps the process from ending (a thread, or an atexit function); it is ended now\n")
    exit_now(status or 1)


def _flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        _point_nowhere(stream)  # nobody reads on, and nobody has to be told
        return False
    except (OSError, ValueError) as problem:
        _point_nowhere(stream)
        if stream is sys.stdout and sys.stderr:
            sys.stderr.write(f"error: standard output: {getattr(problem, 'strerror', None) or problem}\n")
        return False
    return True


def _point_nowhere(stream: TextIO) -> None:
    """Let Python's own flush at its end succeed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
