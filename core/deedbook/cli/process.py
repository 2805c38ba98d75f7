"""What the command owes the process that it runs in: its streams, and an orderly end when it is told to stop."""

import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, Self, TextIO

_PATIENCE = 5.0
"""Seconds that threads and exit functions of plugins have, once all is done and written."""
STOPPING = (signal.SIGTERM, signal.SIGHUP)
"""Besides SIGINT: what asks a process to end. A session is then closed as interrupted, like one of Ctrl-C."""


def hold_streams() -> None:
    """See to it that descriptors 0 to 2 are taken, and that nothing which is printed can fail to be spelled.

    A closed one would be given to the next file that is opened, a ledger perhaps, and whoever prints would write there.
    Standard output moves to another descriptor, so that nothing but the command itself can write to it.
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _moved(sys.stdout)


def _moved(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return standard output at a descriptor of its own; what is written to descriptor 1 goes to standard error.

    ASCII alone is taken for a mistake in the locale, as click does.
    """
    stdout.flush()
    encoding = "utf-8" if codecs.lookup(stdout.encoding).name == "ascii" else stdout.encoding
    own = os.fdopen(os.dup(1), "wb", 0 if stdout.write_through else -1)
    os.dup2(2, 1)
    return io.TextIOWrapper(
        own, encoding, stdout.errors, line_buffering=stdout.line_buffering, write_through=stdout.write_through
    )


def give_back() -> None:
    """Let descriptor 1 be standard output again, for a command that writes there."""
    if sys.stdout is not None:
        sys.stdout.flush()
        os.dup2(sys.stdout.fileno(), 1)


def take_signals() -> None:
    """Let what asks the process to end do what Ctrl-C does; a signal that the parent has ignored stays so."""
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def flush(status: int) -> int:
    """Write out what is still held, and return the exit status: 1 instead of 0 where nobody can take it.

    A command that has failed has said so, and is not reported again.
    """
    failed = [stream for stream in (sys.stdout, sys.stderr) if stream and not _flushed(stream, quiet=status != 0)]
    return status or int(bool(failed))


def leave(status: int) -> NoReturn:
    """End the process with *status*: in an orderly way, or at once where something keeps it from ending.

    What exit functions of plugins print goes to standard error: the command has said all that it had to say.
    """
    sys.stdout = sys.stderr
    watch = threading.Timer(_PATIENCE, _cut_off, [os._exit, os.write, status])
    watch.daemon = True
    watch.start()
    sys.exit(status)


def _cut_off(exit_now: Callable[[int], NoReturn], write: Callable[[int, bytes], int], status: int) -> None:
    with suppress(OSError):
        write(2, b"a plugin keeps the process from ending (a thread, or an atexit function); it is ended now\n")
    exit_now(status or 1)


class Deadline:
    """Ends the process when *seconds* have passed since `begin`, and says where each thread stands then.

    Hold it as a context: with that the deadline ends. *what* is what did not end.
    """

    def __init__(self, seconds: float, what: str) -> None:
        self._watch = threading.Timer(seconds, self._cut_off)
        self._watch.daemon = True
        self._exit = os._exit  # a plugin may replace it
        self._said = f"{what} did not end within {seconds:g} s of being told to; it is ended now, and stood here:\n"

    def begin(self) -> None:
        """Begin to count."""
        self._watch.start()

    def _cut_off(self) -> None:
        import faulthandler

        with suppress(OSError):
            os.write(2, self._said.encode())
            faulthandler.dump_traceback(2)
        self._exit(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()


def _flushed(stream: TextIO, *, quiet: bool) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        _point_nowhere(stream)  # nobody reads on, and nobody has to be told
        return False
    except (OSError, ValueError) as problem:
        _point_nowhere(stream)
        if stream is sys.stdout and sys.stderr and not quiet:
            sys.stderr.write(f"error: standard output: {getattr(problem, 'strerror', None) or problem}\n")
        return False
    return True


def _point_nowhere(stream: TextIO) -> None:
    """Let Python's own flush at its end succeed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
