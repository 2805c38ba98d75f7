"""Two hundred sessions at once in one runtime: nothing lost, nothing crossed, at what speed, and in how much memory."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Plan
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file
from deedbook_serve.client import Runtime

_SESSIONS: Final = 200
_BATCHES: Final = 5
_ACTIONS: Final = 4
_ALONE: Final = 400

_LEAVES: Final = '''
from deedbook import HandlerSpec


class Leave:
    """Appends a line to a file: an effect that can be counted."""

    spec = HandlerSpec(takes={"type": "object", "required": ["line"], "properties": {"line": {"type": "string"}}},
                       gives={"type": "object"}, effects="write")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        with open("effects.txt", "a") as file:
            file.write(args["line"] + "\\n")
        return {"left": args["line"]}
'''
_INFO: Final[Mapping[str, str]] = {
    "METADATA": "Metadata-Version: 2.1\nName: leaves\nVersion: 1.0\n",
    "entry_points.txt": "[deedbook.tools]\nleave = leaves:Leave\n",
    "RECORD": "leaves.py,,\nleaves-1.0.dist-info/entry_points.txt,,\n",
}


def workspace(folder: Path) -> None:
    """Write a workspace with an ability without effects (`echo`) and one whose effects can be counted (`leave`)."""
    (folder / ".system").mkdir(parents=True)
    rule = {"match": {"abilities": ["echo", "leave"]}, "then": "allow"}
    abilities = {"echo": {"summary": "Echo.", "handler": {"tool": "echo"}}}
    abilities["leave"] = {"summary": "Leave a line.", "handler": {"tool": "leave"}}
    policy = {"baseline": {"kind": "rules", "rules": [rule], "default": "deny"}}
    settings = {"schema_version": "v1", "abilities": abilities, "policies": policy}
    (folder / ".system/deedbook.yaml").write_bytes(orjson.dumps(settings))
    info = folder / "site/leaves-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "site/leaves.py").write_text(_LEAVES)
    for name, text in _INFO.items():
        (info / name).write_text(text)


def start(folder: Path, *args: str) -> "subprocess.Popen[bytes]":
    """Begin to serve the workspace in *folder*, and return the process when it answers."""
    path = os.pathsep.join(filter(None, [str(folder / "site"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", "from deedbook.cli.program import main; main()", "serve", *args]
    env = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE)
    assert process.stderr
    while line := process.stderr.readline():
        if line.startswith(b"serving"):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # its later output must not fill the pipe
            return process
    raise RuntimeError(f"the server ended with {process.wait()}")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a server in an orderly way."""
    process.terminate()
    if process.wait(120):
        raise RuntimeError(f"the server ended with {process.returncode}")


def resident(pid: int) -> int:
    """Return how many bytes a process holds in memory; 0 where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def actions(session: str, number: int, ability: str = "echo") -> list[dict[str, Any]]:
    """Return a request of some actions whose arguments are its own."""
    key = "text" if ability == "echo" else "line"
    said = [f"{session}:{number}:{each}" for each in range(_ACTIONS)]
    return [{"id": f"a{i}", "action": "CALL", "ability": ability, "args": {key: text}} for i, text in enumerate(said)]


def run(plan: Plan) -> Iterator[Line]:
    """Measure loss, speed and memory."""
    sessions, actions_alone = plan.size(_SESSIONS, 4), plan.size(_ALONE, 40)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as name, _served(Path(name)) as pid:
        alone, before = _alone(Path(name), actions_alone), resident(pid)
        crowd, kept = _crowd(Path(name), pid, sessions)
        lost = _lost(Path(name), sessions, actions_alone)
    what = f"runtime, {sessions} sessions at once"
    yield Measure(f"{what}: events lost or crossed, ledgers not sound", "at most", 0, lost, unit="")
    yield Measure(f"{what}: actions a second, one session alone = 1", "at least", 0.2, crowd / alone)
    yield Value("runtime, one session alone, its client included", alone, "actions/s")
    yield Value(f"{what}, their clients included", crowd, "actions/s")
    yield Measure("runtime: memory of an open session", "at most", 250, (kept - before) / sessions / 1024, unit="KiB")


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    workspace(folder)
    process = start(folder)
    try:
        yield process.pid
        stop(process)
    finally:
        process.kill()


def _alone(folder: Path, count: int) -> float:
    """Return the actions that one client has done in a second, a request after the other."""
    with Runtime(folder) as runtime:
        session = runtime.open()
        runtime.actions(session, actions(session, 0))
        begun = time.perf_counter()
        for number in range(count // _ACTIONS):
            runtime.actions(session, actions(session, number + 1))
        return count / (time.perf_counter() - begun)


def _crowd(folder: Path, pid: int, sessions: int) -> tuple[float, int]:
    """Let many clients work at once; return actions a second, and the server's memory while all sessions are open."""
    begun, ended, memory = [0.0], [0.0], [0]

    def mark(times: list[float]) -> None:
        times[0] = time.perf_counter()
        memory[0] = resident(pid)

    go, done = threading.Barrier(sessions, lambda: mark(begun)), threading.Barrier(sessions, lambda: mark(ended))

    def client(_: int) -> None:
        with Runtime(folder) as runtime:
            session = runtime.open()
            go.wait()
            for number in range(_BATCHES):
                asked = actions(session, number)
                told = runtime.actions(session, asked)
                if [each["result"] for each in told] != [each["args"] for each in asked]:
                    raise RuntimeError(f"session {session} was told what it had not asked for")
            done.wait()
            runtime.end(session)

    with ThreadPoolExecutor(sessions) as pool:
        list(pool.map(client, range(sessions)))
    return sessions * _BATCHES * _ACTIONS / (ended[0] - begun[0]), memory[0]


def _lost(folder: Path, sessions: int, alone: int) -> int:
    """Count what is wrong with the ledgers: each holds what its own client asked for, in order, and nothing else."""
    schemas, wrong, seen = Schemas.load(data_folder("schemas")), 0, 0
    for place in (folder / ".deedbook/sessions").iterdir():
        file = place / ".events.jsonl"
        texts = [event.payload["args"]["text"] for event in read(file) if event.type == "tool.call"]
        batches = (alone // _ACTIONS + 1) if len(texts) > _BATCHES * _ACTIONS else _BATCHES
        wrong += texts != _asked(place.name, range(batches))
        wrong += not verify_file(file, schemas=schemas).sound
        seen += 1
    return wrong + abs(sessions + 1 - seen)


def _asked(session: str, numbers: Sequence[int]) -> list[str]:
    return [each["args"]["text"] for number in numbers for each in actions(session, number)]
