"""What the peers share: the size of a batch, the text, and the two lines that some of them write for each call."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import orjson

from benchmarks.workspaces import ARGS

BATCH: Final = 20
TEXT: Final[str] = ARGS["text"]

Batch: TypeAlias = Callable[[], Awaitable[None]]


def process_cpu() -> int:
    """Return the CPU time of all threads, in nanoseconds: some peers run tools in threads of their own."""
    return time.process_time_ns()


@attrs.frozen
class Peer:
    """A peer: *opened* gives, in a folder, what makes `BATCH` calls; *least* and *aim* are ratios to ours.

    One that is *awaited* is called from a coroutine, and compared with `acall`; others with `call`.
    """

    name: str
    least: float
    aim: float
    opened: Callable[[Path], AbstractAsyncContextManager[Batch]]
    awaited: bool


class Record:
    """A file of JSON lines: what an application writes that is told of a call's beginning and end."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def __call__(self, event: str, value: object) -> None:
        """Write one line."""
        self._file.write(orjson.dumps({"event": event, "ts": time.time(), "value": value}) + b"\n")
