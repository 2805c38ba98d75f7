"""Asks the process of `forkserver.py` for a command; as a program, a stand-in for that command in a shell's PATH.

It imports little, as it is started for each command of a page.
"""

import array
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

SIZE = 1 << 16


class Asked:
    """A process that was asked for: its id, and how it ends."""

    def __init__(self, place: str, argv: Sequence[str], fds: Sequence[int], **more: object) -> None:
        """Ask at the socket *place*. *more*: ``program`` (a Python file, else the command), ``cwd``, ``env``."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(place)
        asked = {"argv": [*argv], "umask": _umask(), **more}
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        self._socket.sendmsg([json.dumps(asked).encode()], given)
        self.pid = self._answer("pid")

    def wait(self, seconds: float | None = None) -> int:
        """Return its exit status, below zero for a signal; raises `TimeoutError` after *seconds*."""
        self._socket.settimeout(seconds)
        return self._answer("status")

    def close(self) -> None:
        """Wait for it no longer: if it goes on, it is killed."""
        self._socket.close()

    def kill(self, number: int, _frame: object = None) -> None:
        """Send it a signal; it may have ended, but is waited for only when it was answered that it did."""
        os.kill(self.pid, number)

    def _answer(self, name: str) -> int:
        raw = self._socket.recv(SIZE)
        if not raw:
            raise ConnectionResetError("the process that forks has ended")
        value: int = json.loads(raw)[name]
        return value


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def stand_in(place: str, environment: Mapping[str, str] = os.environ) -> None:
    """Be `deedbook`, or `python` with a file: pass arguments, streams and signals on, and end as the fork ends."""
    name, *args = sys.argv
    program = None
    if os.path.basename(name) == "python":
        if not args or not args[0].endswith(".py"):
            os.execv(sys.executable, [sys.executable, *args])
        program, name, *args = args[0], *args
    more = {"program": program, "cwd": os.getcwd(), "env": dict(environment)}
    passed_on = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # a signal waits until there is a fork to pass it on to
    asked = Asked(place, [name, *args], (0, 1, 2), **more)
    for number in passed_on:
        signal.signal(number, asked.kill)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    status = asked.wait()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
