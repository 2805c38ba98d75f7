"""JSON-RPC 2.0, one object per line: parses and validates requests, and encodes answers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, IntakeError, fault
from deedbook.format.schema import Schemas, Violation, suggest

REQUEST: Final = "runtime_request_v2"
RESPONSE: Final = "runtime_response_v2"

_DOMAIN: Final = -32000
_LIMITS: Final = (canonical.PAYLOAD_DEPTH + 16, 10**9)
"""The depth and size limits of an answer; its parts were already bounded when they were made."""
_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "INTAKE_REFUSED": -32700,
        "MESSAGE_INVALID": -32600,
        "METHOD_UNKNOWN": -32601,
        "SCHEMA_VIOLATION": -32602,
        "ACTION_UNKNOWN": -32602,
        "FAILED": -32603,
    }
)
"""The codes that JSON-RPC has a number for; every other is -32000, with its stable code in ``data``."""


@attrs.frozen
class Request:
    """One request that matches its schema."""

    id: str | int
    method: str
    params: Mapping[str, Any]


class RefusedError(Exception):
    """An invalid message: its *id* if that could be read, the error, and its violations.

    *params* are those of a message that is a valid request except for them.
    """

    def __init__(
        self, ident: str | int | None, error: DomainError, violations: Sequence[Violation] = (), params: Any = None
    ) -> None:
        super().__init__(str(error))
        self.id, self.error, self.violations, self.params = ident, error, violations, params


class Wire:
    """Reads requests and checks them against the kernel's *schemas*."""

    def __init__(self, schemas: Schemas) -> None:
        self._validator = schemas.validator(REQUEST)
        document = schemas.document(REQUEST)
        self._methods: Sequence[str] = document["properties"]["method"]["enum"]
        self._actions: Sequence[str] = document["$defs"]["action"]["properties"]["action"]["enum"]

    def read(self, line: bytes) -> Request:
        """Return the request in *line*; raises `RefusedError`."""
        try:
            message = canonical.parse(line)
        except IntakeError as problem:
            raise RefusedError(None, problem.error) from None
        if not isinstance(message, dict):
            what = (
                "several requests in an array are not taken; send each in a line" if isinstance(message, list) else ""
            )
            raise RefusedError(None, fault("MESSAGE_INVALID", what or "a request is a JSON object"))
        ident = message.get("id")
        ident = ident if isinstance(ident, str | int) and not isinstance(ident, bool) else None
        self._check(message, ident)
        return Request(message["id"], message["method"], message.get("params", {}))

    def _check(self, message: Mapping[str, Any], ident: str | int | None) -> None:
        if self._validator.valid(message):
            return
        method = message.get("method")
        if ident is None or message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            why = 'a request has "jsonrpc": "2.0", an "id" (text or a whole number) and a "method"'
            raise RefusedError(ident, fault("MESSAGE_INVALID", why))
        if method not in self._methods:
            why = f"there is no method {method[:80]!r}{suggest(method[:80], self._methods)}"
            raise RefusedError(ident, fault("METHOD_UNKNOWN", why))
        unknown = self._find_unknown_action(message.get("params"))
        if unknown is not None:
            raise RefusedError(ident, unknown, (), message.get("params"))
        found = self._validator.violations(message)
        why, place = (found[0].message, found[0].path) if found else ("does not fit its schema", None)
        raise RefusedError(ident, fault("SCHEMA_VIOLATION", why, place=place), found, message.get("params"))

    def _find_unknown_action(self, params: Any) -> DomainError | None:
        """Return the error for the first action of a request whose name is unknown."""
        actions = params.get("actions") if isinstance(params, dict) else None
        for index, message in enumerate(actions if isinstance(actions, list) else ()):
            name = message.get("action") if isinstance(message, dict) else None
            if isinstance(name, str) and name not in self._actions:
                why = f"there is no action {name[:80]!r}{suggest(name[:80], self._actions)}"
                return fault("ACTION_UNKNOWN", why, place=f"$.params.actions[{index}].action")
        return None


def encode_result(ident: str | int, result: Object) -> bytes:
    """Return the line that answers a request; raises `IntakeError` for a result that no line can hold."""
    return canonical.encode({"id": ident, "jsonrpc": "2.0", "result": dict(result)}, *_LIMITS) + b"\n"


def encode_error(ident: str | int | None, error: DomainError, violations: Sequence[Violation] = ()) -> bytes:
    """Return the line that answers a request with an error."""
    data = {**describe_error(error), "kind": error.kind, "retryable": error.retryable}
    if violations:
        data["violations"] = [{"path": each.path, "message": each.message} for each in violations]
    body = {"code": _NUMBERS.get(error.code, _DOMAIN), "message": str(error), "data": data}
    return canonical.encode({"id": ident, "jsonrpc": "2.0", "error": body}) + b"\n"


def describe_error(error: DomainError) -> dict[str, Any]:
    """Return *error* in the form of answers."""
    place = {"place": error.place} if error.place else {}
    return {"code": error.code, "message": error.message, **place}


def to_error(problem: BaseException) -> DomainError:
    """Return the error that an exception means for the client."""
    if isinstance(problem, DeedbookError):
        return problem.error
    if isinstance(problem, OSError):
        return fault("FAILED", f"the system refused something: {problem.strerror or problem}")
    return fault("FAILED", f"there is a fault in Deedbook itself: {type(problem).__name__}; please report it")
