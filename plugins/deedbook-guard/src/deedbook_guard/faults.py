"""Say on standard error why calls cannot be governed: a framework may swallow the exception."""

import sys
from threading import Lock
from types import TracebackType
from typing import Final, Self

from deedbook.format.errors import DeedbookError, describe

_FAULTS: Final = frozenset({"binding", "ledger", "lock", "source"})
"""The kinds of errors that are no decision about a call."""


class FaultReport:
    """Writes each fault of the program *agent* once; use it as a context manager around what may raise one.

    A denied call is no fault: its caller gets the reason.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._said: set[tuple[str, str]] = set()
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        if not isinstance(problem, Exception):
            return
        if not isinstance(problem, DeedbookError):
            self._say(type(problem).__name__, describe(problem), describe(problem))
        elif problem.error.kind in _FAULTS:
            self._say(problem.error.code, problem.error.message, f"{problem.error.code}: {problem.error}")

    def _say(self, code: str, message: str, reason: str) -> None:
        with self._lock:
            if (code, message) in self._said:
                return
            self._said.add((code, message))
        sys.stderr.write(f"deedbook: calls of {self._agent!r} cannot be governed, so they fail. {reason}\n")
