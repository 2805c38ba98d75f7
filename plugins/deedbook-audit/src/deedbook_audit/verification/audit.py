"""What an audit wants of a session beside its tree, as far as a ledger alone can tell: that nothing is left out.

Seed 000 lists it: every request to a model and every call of a tool with its answer, every hand-over to a role, every
decision of a hook, every violation of a schema, and the end. That answers stand under calls is checked by `Structure`,
that decisions have an outcome by their payloads' schema; whether a gate was passed over only its charter can tell.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.format.families import OUTCOMES

ABOUT: Final = frozenset({"agent.transition", "schema.violation", "tool.denied", *OUTCOMES["flow.call"]})
"""The events that are looked at."""
_NOBODY: Final[frozenset[str | None]] = frozenset({None})


class Audit:
    """The completeness of one session: `check` every event of `ABOUT` in order, and be told what is missing.

    Memory grows with the roles of flows that are at work.
    """

    def __init__(self) -> None:
        self._handed: dict[bytes, set[str | None]] = {}
        self._violated: tuple[int, bytes | None] = (0, None)

    def check(self, line: int, kind: str, parent: bytes | None, payload: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is missing before the event on *line*."""
        if kind == "agent.transition":
            yield from self._handed_over(parent or b"", payload)
        elif kind == "schema.violation":
            self._violated = line, parent
        elif kind == "tool.denied":
            if payload["code"] == "SCHEMA_VIOLATION" and self._violated != (line - 1, parent):
                yield "a refusal for arguments that violate a schema, without the schema.violation right before it"
        else:
            self._handed.pop(parent or b"", None)

    def _handed_over(self, flow: bytes, payload: Mapping[str, Any]) -> Iterator[str]:
        """Look at a hand-over: who hands over in a flow was handed over to before."""
        before, to = payload["from"], payload["to"]
        roles = self._handed.setdefault(flow, {*_NOBODY})
        if isinstance(before, str | None) and before not in roles:
            yield f"a hand-over from {before!r}, to whom nobody handed over"
        if isinstance(to, str):
            roles.add(to)
