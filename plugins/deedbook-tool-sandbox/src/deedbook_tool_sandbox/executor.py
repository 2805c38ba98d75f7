"""The executor: a process that starts launchers for others over a Unix socket, in a container of its own.

``python3 -m deedbook_tool_sandbox.executor SOCKET``. It decides itself which bubblewrap and which environment programs
get, and takes from a connection only limits and files. Its own files, network and keys are those of its container, and
its socket stands in a folder that it shares with the runner only.
"""

import argparse
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from deedbook.contract import Failed, RunningProgram
from deedbook.programs.workers import Workers

from .bubblewrap import Bubblewrap
from .doctor import try_sandbox
from .executor_protocol import BadMessage, LauncherOrder, encode_answer, get_peer
from .launchers import launcher_command
from .tool import launcher_arguments

_SECONDS: Final = 10.0
"""For a message of the tool."""
_PATIENCE: Final = 2.0
"""Seconds for a launcher to end after its connection ended."""
_MOST: Final = 32
"""Connections at the same time."""
_CHUNK: Final = 1 << 20


class Sandboxes:
    """What programs get here; what was found is kept, because a look takes time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str, bool], Bubblewrap] = {}

    def find(self, order: LauncherOrder) -> Bubblewrap:
        """Return bubblewrap and the environment for *order*; raises `Failed`.

        Where a degraded sandbox is enough and bubblewrap cannot make one, as in most containers, it is left out.
        """
        environment = order.environment or {}
        key = (environment.get("path", ""), environment.get("digest", ""), order.degraded)
        with self._lock:
            if key not in self._found:
                found = Bubblewrap.find(order.environment, degraded=order.degraded)
                if order.degraded and found.program and not try_sandbox(found).begun:
                    found = attrs.evolve(found, program="", home="/")
                self._found[key] = found
            return self._found[key]


class ExecutorServer:
    """Serves connections of the user *peer*; *report* gets a line about each that was refused."""

    def __init__(self, peer: int, report: Callable[[str], None]) -> None:
        self._peer = peer
        self._report = report
        self._sandboxes = Sandboxes()
        self._workers = Workers()
        self._free = threading.BoundedSemaphore(_MOST)

    def serve(self, listening: socket.socket) -> None:
        """Serve every connection on a thread of its own, until *listening* is closed."""
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Kill all programs."""
        self._workers.close()

    def _attend(self, connection: socket.socket) -> None:
        with connection:
            if not self._free.acquire(blocking=False):
                self._refuse(connection, "SANDBOX_REFUSED", f"it has {_MOST} connections already")
                return
            try:
                program = self._start(connection)
                if program is not None:
                    connection.settimeout(None)
                    if _relay(connection, program):
                        self._report(f"a launcher ended: {program.complaint()}")
            except OSError as problem:
                self._report(f"a connection ended: {problem}")
            finally:
                self._free.release()

    def _start(self, connection: socket.socket) -> RunningProgram | None:
        """Start the launcher that a connection asks for, or refuse it."""
        if (peer := get_peer(connection)) != self._peer:
            self._refuse(connection, "SANDBOX_REFUSED", f"it serves user {self._peer}, not {peer}")
            return None
        connection.settimeout(_SECONDS)
        try:
            order = LauncherOrder.receive(connection)
            found = self._sandboxes.find(order)
            program = self._workers.hold(
                launcher_command(launcher_arguments(found, order.limits, degraded=order.degraded))
            )
        except BadMessage as problem:
            self._refuse(connection, "SANDBOX_REFUSED", f"the order is refused: {problem}")
        except Failed as problem:
            self._refuse(connection, problem.code, str(problem))
        else:
            connection.sendall(encode_answer())
            return program
        return None

    def _refuse(self, connection: socket.socket, code: str, why: str) -> None:
        self._report(f"refused: {why}")
        with suppress(OSError):
            connection.sendall(encode_answer(code, why))


def _relay(connection: socket.socket, program: RunningProgram) -> bool:
    """Copy between the connection and the launcher until either ends; then kill what is left of the launcher.

    Return whether the launcher ended first, as it does after a program that passed a limit, or after a fault.
    """
    ended = threading.Event()
    back = threading.Thread(target=_copy_back, args=(program, connection, ended), daemon=True)
    back.start()
    try:
        with suppress(OSError):
            while data := connection.recv(_CHUNK):
                view = memoryview(data)
                while view:
                    view = view[program.stdin.write(view) :]
        first = ended.is_set()
        program.stdin.close()
        back.join(_PATIENCE)
        return first
    finally:
        program.close()
        back.join()


def _copy_back(program: RunningProgram, connection: socket.socket, ended: threading.Event) -> None:
    with suppress(OSError, ValueError):
        while data := program.stdout.read(_CHUNK):
            connection.sendall(data)
    ended.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def listen(path: str, *, shared: bool) -> socket.socket:
    """Return a socket that listens at *path*, for this user or, if *shared*, for each that reaches its folder.

    A stale socket is replaced. Raises `OSError`, and `FileExistsError` for any other file.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "it is no socket; move it out of the way")
        Path(path).unlink()
    if os.stat(os.path.dirname(path) or ".").st_mode & stat.S_IWOTH:  # noqa: PTH116, PTH120 - as the socket's path
        raise PermissionError(1, "every user may write in its folder, and could answer in its place; say: chmod o-w")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111 if shared else 0o177)
    try:
        made.bind(path)
        made.listen()
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return 2 if the socket cannot be made."""
    parser = argparse.ArgumentParser(prog="python3 -m deedbook_tool_sandbox.executor", description=main.__doc__)
    parser.add_argument("socket", metavar="SOCKET", help="where to listen")
    parser.add_argument("--peer", type=int, metavar="UID", default=os.getuid(), help="the user to serve (default: own)")
    asked = parser.parse_args(argv)
    try:
        listening = listen(asked.socket, shared=asked.peer != os.getuid())
    except OSError as problem:
        _report(f"{asked.socket}: {problem.strerror or problem}")
        return 2
    server = ExecutorServer(asked.peer, _report)
    threading.Thread(target=server.serve, args=(listening,), daemon=True).start()
    try:
        _wait_for_signal()
    finally:
        with suppress(FileNotFoundError):
            Path(asked.socket).unlink()
        listening.close()
        server.close()
    return 0


def _wait_for_signal() -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.wait(1.0):
        pass  # a wait without a limit can miss a signal


def _report(line: str) -> None:
    sys.stderr.write(f"executor: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
