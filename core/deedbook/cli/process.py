"""The process of the command: its streams, its signals, and an orderly end."""

import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TextIO

_PATIENCE = 5.0
"""Seconds for threads and exit functions of plugins after all output is written."""
STOPPING = (signal.SIGTERM, signal.SIGHUP)
"""Signals besides SIGINT that ask a process to end. A session is then closed as interrupted, as on Ctrl-C."""


def hold_streams() -> None:
    """Ensure that descriptors 0 to 2 are open, and that unencodable text can be printed.

    A closed descriptor would be reused for the next opened file, perhaps a ledger, and a print would write into it.
    Standard output moves to another descriptor, so that only the command itself can write to it.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _separate_stdout(sys.stdout)


def _separate_stdout(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return standard output at its own descriptor; what is written to descriptor 1 goes to standard error.

    An ASCII encoding is treated as a wrong locale, as click does.
    """
    stdout.flush()
    encoding = "utf-8" if codecs.lookup(stdout.encoding).name == "ascii" else stdout.encoding
    own = os.fdopen(os.dup(1), "wb", 0 if stdout.write_through else -1)
    os.dup2(2, 1)
    return io.TextIOWrapper(
        own, encoding, stdout.errors, line_buffering=stdout.line_buffering, write_through=stdout.write_through
    )


def restore_stdout() -> None:
    """Make descriptor 1 standard output again, for a command that writes there."""
    if sys.stdout is not None:
        sys.stdout.flush()
        os.dup2(sys.stdout.fileno(), 1)


def install_signal_handlers() -> None:
    """Make termination signals act like Ctrl-C; a signal that the parent ignores stays ignored."""
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def flush(status: int) -> int:
    """Write buffered output and return the exit status: 1 instead of 0 if it cannot be written.

    A command that has failed has reported that already.
    """
    failed = [stream for stream in (sys.stdout, sys.stderr) if stream and not _flush_stream(stream, quiet=status != 0)]
    return status or int(bool(failed))


def leave(status: int) -> NoReturn:
    """Exit with *status*: normally, or at once if something keeps the process from ending.

    Output of exit functions of plugins goes to standard error: the command's own output is complete. Signals to end
    are ignored from here on: there is nothing left to interrupt.
    """
    for number in (signal.SIGINT, *STOPPING):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = sys.stderr
    watch = threading.Timer(_PATIENCE, _cut_off, [os._exit, os.write, status])
    watch.daemon = True
    with suppress(RuntimeError):  # there is no memory for a thread
        watch.start()
    sys.exit(status)


def _cut_off(exit_now: Callable[[int], NoReturn], write: Callable[[int, bytes], int], status: int) -> None:
    with suppress(OSError):
        write(2, b"a plugin keeps the process from ending (a thread, or an atexit function); it is ended now\n")
    exit_now(status or 1)


def _flush_stream(stream: TextIO, *, quiet: bool) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        _redirect_to_null(stream)  # the reader has closed the pipe; no report is needed
        return False
    except (OSError, ValueError) as problem:
        _redirect_to_null(stream)
        if stream is sys.stdout and sys.stderr and not quiet:
            sys.stderr.write(f"error: standard output: {getattr(problem, 'strerror', None) or problem}\n")
        return False
    return True


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect *stream* to the null device, so that Python's own flush at exit succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
