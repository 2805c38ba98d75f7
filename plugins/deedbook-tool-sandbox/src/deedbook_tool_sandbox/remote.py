"""A launcher that an executor started: to the tool it is a program with pipes, like one that the host keeps."""

import io
import os
import socket
import time
from contextlib import suppress
from typing import BinaryIO, Final, Self, cast

import attrs

from deedbook.contract import Failed, Object

from .executor_protocol import BadMessage, LauncherOrder, get_peer, receive_answer

_SECONDS: Final = 10.0
"""For the executor to start a launcher."""
_CODES: Final = frozenset({"SANDBOX_REFUSED", "NOT_AVAILABLE", "BINDING_INVALID"})


@attrs.frozen
class Executor:
    """Where an executor listens: the *path* of its socket, and the *user* that it has to run as."""

    path: str
    user: int

    @classmethod
    def parse(cls, setting: Object | str) -> Self:
        """Return the executor of the setting: a path, or ``{path, user}``; the default is the user of this process."""
        if isinstance(setting, str):
            return cls(setting, os.getuid())
        return cls(setting["path"], setting.get("user", os.getuid()))

    def start(self, order: LauncherOrder) -> "RemoteLauncher":
        """Let the executor start a launcher; raises `Failed`: ``SANDBOX_REFUSED``, or the executor's own refusal."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_SECONDS)
            self._connect(connection)
            self._order(connection, order)
            connection.settimeout(None)
            return RemoteLauncher(connection, self.path)
        except BaseException:
            connection.close()
            raise

    def _connect(self, connection: socket.socket) -> None:
        try:
            connection.connect(self.path)
            peer = get_peer(connection)
        except OSError as problem:
            why = f"no executor listens at {self.path} ({problem.strerror or problem})"
            start = f"start it with: python3 -m deedbook_tool_sandbox.executor {self.path}"
            raise Failed("SANDBOX_REFUSED", f"{why}; {start}", retryable=True) from None
        if peer != self.user:
            why = f"the executor at {self.path} runs as user {peer}, expected {self.user}"
            raise Failed("SANDBOX_REFUSED", f"{why}; nothing was sent. If that is right, set executor: {{path, user}}")

    def _order(self, connection: socket.socket, order: LauncherOrder) -> None:
        end = time.monotonic() + _SECONDS
        try:
            with suppress(ConnectionError):  # an executor that refuses this user does not wait for the order
                connection.sendall(order.encode())
            refused = receive_answer(connection)
        except (BadMessage, OSError) as problem:
            late = isinstance(problem, TimeoutError) or time.monotonic() >= end
            why = f"did not answer within {_SECONDS:g} s" if late else f"sent no answer: {problem}"
            raise Failed("SANDBOX_REFUSED", f"the executor at {self.path} {why}") from None
        if refused:
            code, why = refused
            raise Failed(code if code in _CODES else "SANDBOX_REFUSED", f"the executor at {self.path}: {why}")


class RemoteLauncher:
    """Implements `deedbook.contract.RunningProgram` over a connection to an executor."""

    def __init__(self, connection: socket.socket, path: str) -> None:
        self._connection, self._path = connection, path
        self.stdin: BinaryIO = cast("BinaryIO", _Sending(connection))
        self.stdout: BinaryIO = cast("BinaryIO", _Receiving(connection))

    def complaint(self) -> str:
        """Return how it ended; its errors are in the executor's log."""
        return f"the executor at {self._path} ended the connection; its log says why"

    def close(self) -> None:
        """End the connection, so that the executor kills the launcher; may be called twice."""
        self.stdin.close()
        self.stdout.close()
        self._connection.close()


class _End(io.RawIOBase):
    """One end of a launcher's pipes, on a descriptor of its own."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._socket = connection.dup()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the descriptor."""
        if not self.closed:
            self._finish()
            self._socket.close()
        super().close()

    def _finish(self) -> None:
        """Do what has to be done before."""


class _Receiving(_End):
    """What the launcher writes."""


class _Sending(_End):
    """What the launcher reads: closed, it has ended."""

    def _finish(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
