"""The process of an agent: it reads requests from its inbox and writes the agent's next step.

It has no ledger, no key and no network of its own. It sees what the runner sends, and the runner performs what it asks
for.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deedbook import Failed
from deedbook.format.canonical import encode

from .inbox import MAX_BYTES, REPLY, REQUEST, read_request
from .steps import AgentTask, next_step

_PAUSE: Final = 0.02
"""Seconds between two looks into the inbox."""


class AgentWorker:
    """Answers the requests of one inbox: *folder* is the agent's, *report* gets a line about each refused request."""

    def __init__(self, agent: str, folder: Path, report: Callable[[str], None]) -> None:
        self._agent = agent
        self._folder = folder
        self._report = report
        self._refused: set[str] = set()

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Answer requests until *stopped* returns true."""
        self._folder.mkdir(parents=True, exist_ok=True)
        while not stopped():
            if not self.answer_all():
                time.sleep(_PAUSE)

    def answer_all(self) -> int:
        """Answer the requests that have no reply yet, and return their number."""
        return sum(self._answer(path) for path in sorted(self._folder.glob(f"*{REQUEST}")))

    def _answer(self, path: Path) -> bool:
        name = path.name.removesuffix(REQUEST)
        reply = path.with_name(f"{name}{REPLY}")
        if name in self._refused or reply.exists():
            return False
        try:
            with path.open("rb") as file:
                request = read_request(file.read(MAX_BYTES + 1))
        except (Failed, OSError) as problem:
            return self._refuse(name, str(problem))
        task = AgentTask.parse(request["task"])
        if task.agent != self._agent or request["id"] != name:
            return self._refuse(name, f"it is a request {request['id']} to {task.agent}")
        step = next_step(task, request["transcript"])
        _write_whole(reply, encode({"id": name, "step": step.as_json(), "schema_version": "v1"}))
        return True

    def _refuse(self, name: str, why: str) -> bool:
        self._refused.add(name)
        self._report(f"{name}{REQUEST}: {why}")
        return False


def _write_whole(path: Path, data: bytes) -> None:
    """Write *path* such that a reader finds nothing or all of it."""
    beside = path.with_suffix(f".{os.getpid()}.new")
    beside.write_bytes(data)
    beside.replace(path)
