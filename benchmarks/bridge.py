"""What the bridge's client costs an agent for each event, beside a Python that starts and does nothing."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.measures import Line, Measure, Note
from deedbook.bridging import client

_BARE: Final = (sys.executable, "-I", "-S")
_EMPTY: Final = (*_BARE, "-c", "pass")
_PAIRS: Final = 200
_EVENT: Final = "PreToolUse"
_INPUT: Final = json.dumps(
    {"session_id": "s", "hook_event_name": _EVENT, "tool_name": "Bash", "tool_input": {"command": "ls"}}
).encode()
_SAID: Final = b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'


def run() -> Iterator[Line]:
    """Start both in pairs, each first in every other one; the client is answered at once, by a thread of ours."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder, _answering(Path(folder)):
        ours = (*_BARE, str(Path(client.__file__)), "--state", folder, "claude-code", _EVENT)
        pairs = [_pair(ours, swapped=bool(number % 2)) for number in range(_PAIRS)]
    elapsed = median(one[0] for one, _ in pairs) / median(other[0] for _, other in pairs)
    cpu = median(one[1] for one, _ in pairs) / median(other[1] for _, other in pairs)
    yield Measure("bridge: its client, asked and answered, to an empty Python: elapsed", "at most", 2, elapsed)
    yield Measure("the same: CPU", "at most", 2, cpu)
    yield Note(f"the client took {median(one[0] for one, _ in pairs) * 1000:.1f} ms of an agent's time")


def _pair(ours: tuple[str, ...], *, swapped: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    if swapped:
        empty = _started(_EMPTY, b"")
        return _started(ours, _SAID), empty
    return _started(ours, _SAID), _started(_EMPTY, b"")


def _started(command: tuple[str, ...], said: bytes) -> tuple[float, float]:
    """Return the seconds, elapsed and of CPU, of one program from start to end; it has to say what is expected."""
    begun = perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={})
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(_INPUT)
    with suppress(BrokenPipeError):
        process.stdin.close()
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode or out != said:
        raise RuntimeError(f"{command} ended with {process.returncode} and said {out!r}")
    return elapsed, usage.ru_utime + usage.ru_stime


@contextmanager
def _answering(folder: Path) -> Iterator[None]:
    """Answer at the bridge's socket in a folder, with the same words to everybody."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / client.SOCKET))
        server.listen()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield


def _serve(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(b"0 %d 0\n%b" % (len(_SAID), _SAID))
