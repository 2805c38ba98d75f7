"""Calls that waited for a person, as a ledger holds them: requests, answers and the records between them."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Principal

JUDGE_CODES: Final = frozenset(
    {"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED", "SCHEMA_VIOLATION", "GATE_DENIED", "INTAKE_REFUSED"}
)
"""The codes of a judge's refusals; any other code of a denial, but these, says how an approval request ended."""
PREVENTED: Final = frozenset({"FROZEN"})
"""The codes of denials by features in ledgers whose denials do not name the feature."""


@attrs.frozen(eq=False)
class SessionInfo:
    """The session of a call: its id, principal and mode, the charter (by its digest) and enforcement in force then."""

    id: str
    principal: Principal
    charter: str
    enforcement: str
    mode: str = "interactive"


@attrs.frozen(eq=False)
class Request:
    """An approval request for a call: its time, its cause, its payload, and the gate records before it.

    *session* has the charter under which it was made; a resumed session may go on under another one.
    """

    ts: str
    cause: bytes
    payload: Mapping[str, Any]
    fired: bytes | None
    checked: bytes | None
    session: SessionInfo | None = None


class Requests:
    """The open requests of a session by span, and the grants that were not used yet."""

    def __init__(self) -> None:
        self._open: dict[bytes, Request] = {}
        self._granted: dict[bytes, Request] = {}
        self._deferred: dict[bytes, Request] = {}

    def add(self, span: bytes, request: Request) -> None:
        """Add a request."""
        self._open[span] = request

    def grant(self, span: bytes, grant: bytes) -> None:
        """Record that the request *span* was approved."""
        request = self._open.pop(span, None)
        if request is not None:
            self._granted[grant] = request

    def defer(self, span: bytes, request: Request) -> None:
        """Record that the program that performs the call asks the person itself; the call comes next."""
        self._deferred[span] = request

    def take_deferred(self, cause: bytes) -> Request | None:
        """Return the deferred request of a call with that cause, if there is one; once."""
        return self._deferred.pop(cause, None)

    def take_granted(self, cause: bytes) -> Request | None:
        """Return the approved request of a call with that cause, if there is one; once."""
        return self._granted.pop(cause, None)

    def take_ended(self, cause: bytes, ability: str, args: Any) -> Request | None:
        """Return the request that a denial ends, the first for the same call, since a denial has no id; once."""
        for span, request in self._open.items():
            payload = request.payload
            if (request.cause, payload["name"], payload["args"]) == (cause, ability, args):
                return self._open.pop(span)
        return None
