"""The completeness that an audit needs of a session beside its tree, as far as a ledger alone shows it.

Seed 000 lists it: every request to a model and every call of a tool with its answer, every hand-over to a role, every
decision of a hook, every violation of a schema, and the end. `Structure` checks that answers hang under calls; the
schemas of payloads check that decisions have an outcome; only the charter shows whether a gate was skipped.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.format.families import OUTCOMES

ABOUT: Final = frozenset({"agent.transition", "schema.violation", "tool.denied", *OUTCOMES["flow.call"]})
"""The event types that these rules check."""
_NOBODY: Final[frozenset[str | None]] = frozenset({None})


class CompletenessRules:
    """The completeness of one session: call `check` for every event of `ABOUT` in order; it yields what is missing.

    Memory grows with the roles of running flows.
    """

    def __init__(self) -> None:
        self._roles: dict[bytes, set[str | None]] = {}
        self._violated: tuple[int, bytes | None] = (0, None)

    def check(self, line: int, kind: str, parent: bytes | None, payload: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is missing before the event on *line*."""
        if kind == "agent.transition":
            yield from self._check_handover(parent or b"", payload)
        elif kind == "schema.violation":
            self._violated = line, parent
        elif kind == "tool.denied":
            if payload["code"] == "SCHEMA_VIOLATION" and self._violated != (line - 1, parent):
                yield "a refusal for arguments that violate a schema, without the schema.violation right before it"
        else:
            self._roles.pop(parent or b"", None)

    def _check_handover(self, flow: bytes, payload: Mapping[str, Any]) -> Iterator[str]:
        """Check that the role that hands over has been handed over to before."""
        before, to = payload["from"], payload["to"]
        roles = self._roles.setdefault(flow, {*_NOBODY})
        if isinstance(before, str | None) and before not in roles:
            yield f"a hand-over from {before!r}, which had no hand-over before"
        if isinstance(to, str):
            roles.add(to)
