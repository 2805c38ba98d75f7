"""A program in the sandbox, beside the same program under the supervisor alone (tool `process`)."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import WALL, Plan
from deedbook import Ok, open_kernel
from deedbook.sessions.session import Session

_TRUE: Final = ["true"]
_SOCKET: Final = "executor"
_CODE: Final = 100
"""How many files of 1 KiB the row with code copies."""


def run(plan: Plan) -> Iterator[Line]:
    """Let governed calls of `true` take turns: supervised, sandboxed, and sandboxed with files; elapsed time counts."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        _write_workspace(Path(folder))
        with _executor(folder), open_kernel(folder) as kernel, kernel.session("call") as session:
            names = ("supervised", "sandboxed", "copied", "executed")
            times = plan.take_turns(
                {name: lambda name=name: _call(session, name) for name in names}, clock=WALL, batch_ns=100_000_000
            )
        first = plan.once_each(
            {
                "opened": lambda: _open(folder),
                "supervised": lambda: _open(folder, "supervised"),
                "sandboxed": lambda: _open(folder, "sandboxed"),
            },
            clock=WALL,
            rounds=15,
        ).less("opened")
    yield Measure("sandboxed `true`: to supervised `true`", "at most", 5.0, times.ratio("sandboxed", "supervised"))
    yield Measure(
        "`true` sandboxed by an executor: to supervised", "at most", 5.0, times.ratio("executed", "supervised")
    )
    yield Value(f"sandboxed `true` with {_CODE} files: to supervised `true`", times.ratio("copied", "supervised"))
    yield Value("the first call of each in a workspace", first.ratio("sandboxed", "supervised"))
    yield Value("supervised `true`", times.micros("supervised"), "µs")


@contextmanager
def _executor(folder: str) -> Iterator[None]:
    """Run an executor as a process, at a socket in *folder*."""
    command = [sys.executable, "-m", "deedbook_tool_sandbox.executor", f"{folder}/{_SOCKET}"]
    with subprocess.Popen(command) as process:
        while not (Path(folder) / _SOCKET).exists():
            assert process.poll() is None
            time.sleep(0.01)
        yield
        process.terminate()


def _open(folder: str, *names: str) -> None:
    """Open the workspace and make the first call of each of *names*."""
    with open_kernel(folder) as kernel, kernel.session("call") as session:
        for name in names:
            _call(session, name)


def _call(session: Session, name: str) -> None:
    ran = session.call(name, {})
    assert isinstance(ran, Ok), ran


def _write_workspace(folder: Path) -> None:
    for number in range(_CODE):
        file = folder / "src" / f"{number % 10}" / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x" * 1024, encoding="utf-8")
    abilities = {
        "supervised": _ability("process"),
        "sandboxed": _ability("sandbox"),
        "copied": _ability("sandbox", code="src"),
        "executed": _ability("sandbox", executor=f"{folder}/{_SOCKET}"),
    }
    settings = {
        "schema_version": "v1",
        "profile": "bench",
        "profiles": {"bench": {"durability": "os"}},
        "abilities": abilities,
    }
    (folder / ".system").mkdir()
    (folder / ".system" / "deedbook.yaml").write_bytes(orjson.dumps(settings))


def _ability(tool: str, **settings: str) -> dict[str, Any]:
    return {
        "summary": "Run true.",
        "handler": {"tool": tool},
        "effects": "read",
        "with": {"argv": _TRUE, **settings},
        "schema_in": {"type": "object", "additionalProperties": False},
        "schema_out": True,
    }
