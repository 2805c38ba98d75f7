"""Run programs in processes of their own with hard limits: no shell, an emptied environment, no process left behind.

A program gets its arguments, three pipes, a working directory, and of the environment `process.BASE` and the caller's
variables. It inherits no other descriptor, has a session of its own, writes no core dump and gains no rights
(``no_new_privs``). Its output is counted while it is read, so at most the limit is held in memory; too much output, a
timeout, the end of the program and the end of the kernel, also by kill -9, kill its whole process tree. `supervisor`
describes how.

What remains: a program with the kernel's own user id may do to files what that user may. On Linux before 6.12, or
without Landlock, it may also kill its supervising processes: its caller gets a failure, and its processes are killed
unless it kills both of them, in the right order. On macOS a process that leaves the program's process group survives.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self

from deedbook.contract import Failed, ProgramResult

from .process import (
    GRACE,
    LONGEST,
    WORD,
    ForkerClient,
    Program,
    deadline,
    encode_request,
    open_folder,
    pipe,
    quote_name,
)
from .supervisor import START, System

LIMIT: Final = 1_048_576
"""How many bytes a program may write to each of its outputs by default."""


class Workers:
    """Runs programs, from any thread; starts nothing before the first request, and leaves nothing running when closed.

    *private*: the kernel's environment holds secrets, so where Landlock does not keep programs from reading it
    (``/proc/PID/environ``), this process becomes undumpable with the first program, and stays so: debuggers of the same
    user and core dumps are then also blocked.
    """

    def __init__(self, *, private: bool = False) -> None:
        self._private = private
        self._lock = threading.Lock()
        self._forker: ForkerClient | None = None
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
    ) -> ProgramResult:
        """Run a program to its end; a non-zero status is an answer, too (minus the signal that ended it).

        *cwd* is a path or the descriptor of a folder (default ``/``), *seconds* may be infinite, *limit* applies to
        each output. Raises `Failed`: ``TOOL_TIMEOUT``, ``OUTPUT_TOO_LARGE``, ``NOT_STARTED``, ``WORKER_BROKEN``.
        """
        until = deadline(seconds, argv[0] if argv else argv)
        running = self.start(encode_request(argv, env), argv[0], cwd, limit)
        try:
            running.give(stdin, more=False)
            running.wait(until, seconds, lambda: False)
        except BaseException:
            self.stop(running)
            raise
        self.forget(running)
        return ProgramResult(running.status or 0, bytes(running.out), bytes(running.err))

    def keep(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        limit: int = LIMIT,
    ) -> "Worker":
        """Return a program that stays alive between questions; it is started at the first.

        A descriptor given as *cwd* must stay open as long as the worker. Raises `Failed` (``NOT_STARTED``) if *argv* or
        *env* are invalid.
        """
        with self._lock:
            worker = Worker(self, encode_request(argv, env), argv[0], cwd, limit)
            self._kept.add(worker)
        return worker

    def hold(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        mask: Callable[[str], str] = str,
    ) -> "PipedProgram":
        """Start a program and return its pipes; *mask* is applied to its standard error.

        Raises `Failed` (``NOT_STARTED``).
        """
        return PipedProgram(self.start(encode_request(argv, env), argv[0], cwd, LIMIT), self.stop, mask)

    def close(self) -> None:
        """Kill all programs and return when no process is left; waiting callers get ``WORKER_BROKEN``.

        May be called twice.
        """
        with self._lock:
            self._closed = True
            forker, self._forker = self._forker, None
            running, kept = list(self._running), list(self._kept)
        for each in running:
            each.request_kill()
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
                    raise Failed("NOT_STARTED", f"{quote_name(name)} was not started: the kernel is closed")
                running = self._begin(cwd, name, limit)
                self._running.add(running)
        except (OSError, ValueError) as problem:
            raise Failed("NOT_STARTED", f"{quote_name(name)} was not started: {problem}") from None
        try:
            running.ask(request)
        except OSError:
            self.stop(running)
            raise Failed("NOT_STARTED", f"{quote_name(name)} was not started: the supervisor has ended") from None
        return running

    def stop(self, running: Program) -> None:
        """Kill a program and all its processes, and return when it is done."""
        running.request_kill()
        if not running.wait_for_end(time.monotonic() + GRACE):
            if running.pid is None and not running.lost:
                running.forker.kill()  # it did not start; the next program gets a new forker
            elif not running.forker.sweep():
                running.kill()
        self.forget(running)

    def forget(self, running: Program) -> None:
        """Release a program that has ended."""
        with self._lock:
            self._running.discard(running)
        running.close()

    def drop(self, worker: "Worker") -> None:
        """Release a worker that was closed."""
        with self._lock:
            self._kept.discard(worker)

    def _begin(self, cwd: int | str | Path | None, name: str, limit: int) -> Program:
        """Have a supervisor forked for a new program; a killed forker is replaced once."""
        with ExitStack() as theirs, ExitStack() as ours:
            control, far = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(far.close)
            their_in, stdin = pipe(theirs, ours)
            out, their_out = pipe(ours, theirs)
            err, their_err = pipe(ours, theirs)
            fds = [far.fileno(), their_in, their_out, their_err]
            if cwd is not None:
                fds.append(cwd if isinstance(cwd, int) else open_folder(cwd, theirs))
            forker = self._send_to_forker(fds)
            running = Program(forker, control, (stdin, out, err), name, limit)
            ours.pop_all()
        return running

    def _send_to_forker(self, fds: Sequence[int]) -> ForkerClient:
        """Send a program's descriptors to the forker and return it; a killed forker is replaced once."""
        forker = self._live_forker()
        try:
            forker.send(START, fds)
        except OSError:
            forker.kill()
            forker = self._live_forker()
            forker.send(START, fds)
        return forker

    def _live_forker(self) -> ForkerClient:
        """Return the forker; it is started at the first use, and again if it died or belongs to another process."""
        if self._forker is None or not self._forker.is_alive():
            if self._private and not System().can_confine():
                System().make_undumpable()
            if self._forker is not None:
                self._forker.close()
            self._forker = ForkerClient()
        return self._forker


class Worker:
    """A program that answers each line with one line; made by `Workers.keep`. It handles one question at a time.

    A late answer kills the program, and a second answer is noticed at the latest when the next question is asked; but
    one that arrives just after that question is taken for its answer. So a question should contain something that only
    its own answer can repeat.
    """

    def __init__(self, workers: Workers, request: bytes, name: str, cwd: int | str | Path | None, limit: int) -> None:
        self._workers = workers
        self._start = (request, name, cwd, limit)
        self._lock = threading.Lock()
        self._running: Program | None = None

    def ask(self, line: bytes, seconds: float) -> bytes:
        r"""Send *line*, which gets its ``\n`` here, and return the one line that comes back, without it.

        A program that ended after an answer is started again. After any failure its process tree is killed, and the
        next question starts it again. Raises `Failed`: ``TOOL_TIMEOUT``, ``OUTPUT_TOO_LARGE``, ``NOT_STARTED``,
        ``WORKER_BROKEN`` (it ended before its answer, or wrote more than one line, or half a line); `ValueError` if
        *line* contains a line break.
        """
        if b"\n" in line:
            raise ValueError("a question is one line, without a newline")
        until = deadline(seconds, self._start[1])
        if not self._lock.acquire(timeout=min(seconds, LONGEST)):
            raise Failed(
                "TOOL_TIMEOUT", f"{quote_name(self._start[1])} was busy with other questions for {seconds:g} s"
            )
        try:
            return self._ask(line, until, seconds)
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kill the program and its processes; the next question would start it again."""
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
            raise running.failure("ended before it answered" if not answer else "ended after half a line")
        if rest:
            raise running.failure("answered more than one line")
        running.forget()
        return answer

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._workers.stop(running)


class PipedProgram:
    """Implements `contracts.RunningProgram`; made by `Workers.hold`. The last part of its standard error is kept."""

    def __init__(self, running: Program, stop: Callable[[Program], None], mask: Callable[[str], str]) -> None:
        self._running, self._stop, self._mask = running, stop, mask
        given, taken = running.release_pipes()
        self.stdin: BinaryIO = os.fdopen(given, "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(taken, "rb", buffering=0)
        self._lock = threading.Lock()
        self._closed = False
        self._attending = threading.Thread(target=running.collect_errors, name="deedbook-held", daemon=True)
        self._attending.start()

    def complaint(self) -> str:
        """Return how it ended, if it did, and the end of its standard error, without secrets."""
        return self._running.describe_end(self._mask)

    def close(self) -> None:
        """Kill it and all its processes, and close both files; may be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._running.is_ending():
                self._attending.join(WORD)  # for its own status, instead of that of a killed program
            self._running.request_kill()
            self._attending.join(GRACE)
            self._stop(self._running)
            for file in (self.stdin, self.stdout):
                file.close()
