"""Programs in processes of their own, with a hard limit: no shell, an emptied environment, nothing left behind.

A program is given its arguments, three pipes, a working directory, and of the environment `process.BASE` and what its
caller gives. It inherits no other descriptor, has a session of its own, writes no core dump and gains no rights
(``no_new_privs``). Its output is counted while it is read, so that never more than the limit is held; a flood, a late
answer, the end of the program and the end of the kernel, by kill -9 too, kill its whole tree. `supervisor` says how.

What remains: a program with the kernel's own user id may do to files whatever that user may. On Linux before 6.12, or
where Landlock is off, it may also kill the processes that watch it: its caller is told of a failure, and what it leaves
is killed unless it kills both of them, in the right order. On macOS what leaves the program's process group lives on.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self

from deedbook.contract import Failed, Ran

from .process import GRACE, LONGEST, Forker, Program, deadline, folder_of, pipe, request_of, shown
from .supervisor import START, System

LIMIT: Final = 1_048_576
"""How many bytes a program may write, on each of its outputs, where the caller says nothing else."""


class Workers:
    """Runs programs, from any thread; starts nothing until asked, and leaves nothing running when closed.

    *private*: the kernel's environment holds secrets, so where Landlock does not keep programs from reading it
    (``/proc/PID/environ``) this process becomes undumpable with the first program, and stays so: debuggers of the same
    user and core dumps are then shut out, too.
    """

    def __init__(self, *, private: bool = False) -> None:
        self._private = private
        self._lock = threading.Lock()
        self._forker: Forker | None = None
        self._running: set[Program] = set()
        self._kept: set[Worker] = set()
        self._closed = False

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        seconds: float,
        limit: int = LIMIT,
    ) -> Ran:
        """Run a program to its end; a status other than zero is an answer, too (minus the signal that ended it).

        *cwd* is a path or the descriptor of a folder (else ``/``), *seconds* may be infinite, *limit* holds for each
        output. Raises `Failed`: ``TOOL_TIMEOUT``, ``OUTPUT_TOO_LARGE``, ``NOT_STARTED``, ``WORKER_BROKEN``.
        """
        until = deadline(seconds, argv[0] if argv else argv)
        running = self.start(request_of(argv, env), argv[0], cwd, limit)
        try:
            running.give(stdin, more=False)
            running.wait(until, seconds, lambda: False)
        except BaseException:
            self.stop(running)
            raise
        self.forget(running)
        return Ran(running.status or 0, bytes(running.out), bytes(running.err))

    def keep(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        limit: int = LIMIT,
    ) -> "Worker":
        """Return a program that is kept alive between questions; it is started at the first.

        A descriptor given as *cwd* must stay open as long as the worker. Raises `Failed` (``NOT_STARTED``) if *argv* or
        *env* cannot be those of a program.
        """
        with self._lock:
            worker = Worker(self, request_of(argv, env), argv[0], cwd, limit)
            self._kept.add(worker)
        return worker

    def hold(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        mask: Callable[[str], str] = str,
    ) -> "Held":
        """Start a program and leave its pipes to the caller; *mask* is for what it complains of.

        Raises `Failed` (``NOT_STARTED``).
        """
        return Held(self.start(request_of(argv, env), argv[0], cwd, LIMIT), self.stop, mask)

    def close(self) -> None:
        """Kill what runs, and return when nothing is left; who waits for it gets ``WORKER_BROKEN``. Twice is fine."""
        with self._lock:
            self._closed = True
            forker, self._forker = self._forker, None
            running, kept = list(self._running), list(self._kept)
        for each in running:
            each.cut()
        for worker in kept:
            worker.close()
        if forker is not None:
            forker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for `Worker` -------------------------------------------------------------------------------------------------

    def start(self, request: bytes, name: str, cwd: int | str | Path | None, limit: int) -> Program:
        """Start a program; raises `Failed` (``NOT_STARTED``)."""
        try:
            with self._lock:
                if self._closed:
                    raise Failed("NOT_STARTED", f"{shown(name)} was not started: the kernel is closed")
                running = self._begin(cwd, name, limit)
                self._running.add(running)
        except (OSError, ValueError) as problem:
            raise Failed("NOT_STARTED", f"{shown(name)} was not started: {problem}") from None
        try:
            running.ask(request)
        except OSError:
            self.stop(running)
            raise Failed("NOT_STARTED", f"{shown(name)} was not started: nobody was left to do it") from None
        return running

    def stop(self, running: Program) -> None:
        """Kill a program and all that it started, and return when it is done."""
        running.cut()
        if not running.over(time.monotonic() + GRACE):
            if running.lost and not running.forker.sweep():
                running.kill()
            elif running.pid is None:
                running.forker.kill()  # it never got to its work; the next program gets another
        self.forget(running)

    def forget(self, running: Program) -> None:
        """Let go of a program that has ended."""
        with self._lock:
            self._running.discard(running)
        running.close()

    def drop(self, worker: "Worker") -> None:
        """Let go of a worker that was closed."""
        with self._lock:
            self._kept.discard(worker)

    def _begin(self, cwd: int | str | Path | None, name: str, limit: int) -> Program:
        """Have a supervisor forked for a new program; a forker that was killed is replaced, once."""
        with ExitStack() as theirs, ExitStack() as ours:
            control, far = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(far.close)
            given, stdin = pipe(theirs, ours)
            out, told = pipe(ours, theirs)
            err, said = pipe(ours, theirs)
            fds = [far.fileno(), given, told, said]
            if cwd is not None:
                fds.append(cwd if isinstance(cwd, int) else folder_of(cwd, theirs))
            forker = self._sent(fds)
            running = Program(forker, control, (stdin, out, err), name, limit)
            ours.pop_all()
        return running

    def _sent(self, fds: Sequence[int]) -> Forker:
        """Return the forker that took what a program needs; one that was killed meanwhile is replaced, once."""
        forker = self._serving()
        try:
            forker.send(START, fds)
        except OSError:
            forker.kill()
            forker = self._serving()
            forker.send(START, fds)
        return forker

    def _serving(self) -> Forker:
        """Return the forker, made at the first need and anew if it died or another process began it."""
        if self._forker is None or not self._forker.serves():
            if self._private and not System().scopes():
                System().hides()
            if self._forker is not None:
                self._forker.close()
            self._forker = Forker()
        return self._forker


class Worker:
    """A program that answers each line with one line; made by `Workers.keep`. One question at a time is asked.

    An answer that comes too late to be counted kills the program, and a second answer is noticed at the latest when
    the next question is asked; but one that comes just after that question is taken for its answer. So a question
    should hold something that only its own answer can repeat.
    """

    def __init__(self, workers: Workers, request: bytes, name: str, cwd: int | str | Path | None, limit: int) -> None:
        self._workers = workers
        self._start = (request, name, cwd, limit)
        self._lock = threading.Lock()
        self._running: Program | None = None

    def ask(self, line: bytes, seconds: float) -> bytes:
        r"""Send *line*, which gets its ``\n`` here, and return the one line that comes back, without it.

        A program that ended after an answer is started again. After any failure its whole tree is dead, and the next
        question starts it anew. Raises `Failed`: ``TOOL_TIMEOUT``, ``OUTPUT_TOO_LARGE``, ``NOT_STARTED``,
        ``WORKER_BROKEN`` (it ended before it answered, said more than one line, or half a line); `ValueError` for a
        *line* that is none.
        """
        if b"\n" in line:
            raise ValueError("a question is one line, without a newline")
        until = deadline(seconds, self._start[1])
        if not self._lock.acquire(timeout=min(seconds, LONGEST)):
            raise Failed("TOOL_TIMEOUT", f"{shown(self._start[1])} was busy with other questions for {seconds:g} s")
        try:
            return self._ask(line, until, seconds)
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kill the program and all that it started; the next question would start it anew."""
        with self._lock:
            self._end()
        self._workers.drop(self)

    def _ask(self, line: bytes, until: float, seconds: float) -> bytes:
        running = self._running
        if running is None or not running.idle() or not running.give(line + b"\n", more=True):
            self._end()
            running = self._running = self._workers.start(*self._start)
            running.give(line + b"\n", more=True)
        running.wait(until, seconds, lambda: b"\n" in running.out)
        answer, newline, rest = bytes(running.out).partition(b"\n")
        if not newline:
            raise running.broken("ended before it answered" if not answer else "ended after half a line")
        if rest:
            raise running.broken("answered more than one line")
        running.forget()
        return answer

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._workers.stop(running)


class Held:
    """Implements `contracts.Kept`; made by `Workers.hold`. What it says on standard error is read, and its end kept."""

    def __init__(self, running: Program, stop: Callable[[Program], None], mask: Callable[[str], str]) -> None:
        self._running, self._stop, self._mask = running, stop, mask
        given, taken = running.part_with()
        self.stdin: BinaryIO = os.fdopen(given, "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(taken, "rb", buffering=0)
        self._lock = threading.Lock()
        self._closed = False
        self._attending = threading.Thread(target=running.attend, name="deedbook-held", daemon=True)
        self._attending.start()

    def complaint(self) -> str:
        """Return how it ended, if it did, and the end of what it wrote on standard error, without secrets."""
        return self._running.ending(self._mask)

    def close(self) -> None:
        """Kill it, with all that it started, and close both files; twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._running.cut()
            self._attending.join(GRACE)
            self._stop(self._running)
            for file in (self.stdin, self.stdout):
                file.close()
