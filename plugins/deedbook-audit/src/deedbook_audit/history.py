"""Calls that waited for a person, as a ledger holds them: what was asked, answered and recorded meanwhile."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

JUDGED: Final = frozenset({"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED", "SCHEMA_VIOLATION", "GATE_DENIED", "INTAKE_REFUSED"})
"""What a judge refuses with; any other code of a denial says how waiting for a person ended."""


@attrs.frozen(eq=False)
class Request:
    """A call that a person was asked about: when, because of what, the payload, and the minutes before it."""

    ts: str
    cause: bytes
    said: Mapping[str, Any]
    fired: bytes | None
    checked: bytes | None


class Requests:
    """The requests of a session that have come to nothing yet, by span, and the grants that were not used yet."""

    def __init__(self) -> None:
        self._open: dict[bytes, Request] = {}
        self._granted: dict[bytes, Request] = {}
        self._deferred: dict[bytes, Request] = {}

    def add(self, span: bytes, request: Request) -> None:
        """Take a request in."""
        self._open[span] = request

    def grant(self, span: bytes, grant: bytes) -> None:
        """Take in that the request *span* was approved."""
        request = self._open.pop(span, None)
        if request is not None:
            self._granted[grant] = request

    def defer(self, span: bytes, request: Request) -> None:
        """Take in that it was left to whoever has the effect to ask a person; the call comes next."""
        self._deferred[span] = request

    def left(self, cause: bytes) -> Request | None:
        """Return what was left so, if a call has that cause; once."""
        return self._deferred.pop(cause, None)

    def used(self, cause: bytes) -> Request | None:
        """Return the approved request that a call with that cause goes back to, if it does; once."""
        return self._granted.pop(cause, None)

    def ended(self, cause: bytes, ability: str, args: Any) -> Request | None:
        """Return the request that a denial ends, which bears no id: the first about the same call; once."""
        for span, request in self._open.items():
            said = request.said
            if (request.cause, said["name"], said["args"]) == (cause, ability, args):
                return self._open.pop(span)
        return None
