"""What the bridge's client costs an agent for each event, beside a Python that starts and does nothing."""

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.measures import Line, Measure, Value
from benchmarks.processes import Program, in_turns
from benchmarks.rounds import Plan
from deedbook_serve.bridging import client

_BARE: Final = (sys.executable, "-I", "-S")
_PAIRS: Final = 200
_EVENT: Final = "PreToolUse"
_INPUT: Final = json.dumps(
    {"session_id": "s", "hook_event_name": _EVENT, "tool_name": "Bash", "tool_input": {"command": "ls"}}
).encode()
_ANSWER: Final = b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'


def run(plan: Plan) -> Iterator[Line]:
    """Start both in turns, as an agent starts the client; a thread of this process answers it at once."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder, _answering(Path(folder)):
        ours = (*_BARE, str(Path(client.__file__)), "--state", folder, "claude-code", _EVENT)
        programs = {
            "ours": Program(ours, _INPUT, env={}, answer=_ANSWER + b"\n"),
            "empty": Program((*_BARE, "-c", "pass"), _INPUT, env={}, answer=b""),
        }
        elapsed, cpu = in_turns(programs, plan.size(_PAIRS, 2))
    what = "bridge: its client, asked and answered: to an empty `python -I -S -c pass`"
    yield Measure(f"{what}, elapsed", "at most", 2, elapsed.ratio("ours", "empty"))
    yield Measure(f"{what}, CPU", "at most", 2, cpu.ratio("ours", "empty"))
    yield Value("bridge: its client: elapsed", elapsed.micros("ours").times(1e-3), "ms")
    yield Value("bridge: an empty `python -I -S -c pass`: elapsed", elapsed.micros("empty").times(1e-3), "ms")


@contextmanager
def _answering(folder: Path) -> Iterator[None]:
    """Answer at the bridge's socket in a folder, with the same words for every client."""
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
                link.sendall(b"0 %d 0\n%b" % (len(_ANSWER), _ANSWER))
