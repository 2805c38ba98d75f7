"""JSON-RPC 2.0, one object a line: from bytes to a request that fits its schema, and from what came of it to bytes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, IntakeError, fault
from deedbook.format.schema import Schemas, Violation, suggest

REQUEST: Final = "runtime_request_v1"
RESPONSE: Final = "runtime_response_v1"

_DOMAIN: Final = -32000
_ROOM: Final = (canonical.PAYLOAD_DEPTH + 16, 10**9)
"""How deep and how large an answer may be: what is in it was bounded when it came about."""
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
"""What JSON-RPC has a number of its own for; everything else is -32000, and its stable code is in ``data``."""


@attrs.frozen
class Request:
    """One request that fits its schema."""

    id: str | int
    method: str
    params: Mapping[str, Any]


class RefusedError(Exception):
    """A message that is no request: its *id*, where that could be read, why, and all that is wrong with it.

    *params* are those of a message that is a request but for them.
    """

    def __init__(
        self, ident: str | int | None, error: DomainError, violations: Sequence[Violation] = (), params: Any = None
    ) -> None:
        super().__init__(str(error))
        self.id, self.error, self.violations, self.params = ident, error, violations, params


class Wire:
    """Reads requests and writes answers, as the kernel's *schemas* have them."""

    def __init__(self, schemas: Schemas) -> None:
        self._fits = schemas.validator(REQUEST)
        document = schemas.document(REQUEST)
        self._methods: Sequence[str] = document["properties"]["method"]["enum"]
        self._actions: Sequence[str] = document["$defs"]["action"]["properties"]["action"]["enum"]

    def read(self, line: bytes) -> Request:
        """Return the request in *line*; raises `RefusedError`."""
        try:
            said = canonical.parse(line)
        except IntakeError as problem:
            raise RefusedError(None, problem.error) from None
        if not isinstance(said, dict):
            what = "several requests in an array are not taken; send each in a line" if isinstance(said, list) else ""
            raise RefusedError(None, fault("MESSAGE_INVALID", what or "a request is a JSON object"))
        ident = said.get("id")
        ident = ident if isinstance(ident, str | int) and not isinstance(ident, bool) else None
        self._check(said, ident)
        return Request(said["id"], said["method"], said.get("params", {}))

    def _check(self, said: Mapping[str, Any], ident: str | int | None) -> None:
        if self._fits.valid(said):
            return
        method = said.get("method")
        if ident is None or said.get("jsonrpc") != "2.0" or not isinstance(method, str):
            why = 'a request has "jsonrpc": "2.0", an "id" (text or a whole number) and a "method"'
            raise RefusedError(ident, fault("MESSAGE_INVALID", why))
        if method not in self._methods:
            why = f"there is no method {method[:80]!r}{suggest(method[:80], self._methods)}"
            raise RefusedError(ident, fault("METHOD_UNKNOWN", why))
        unknown = self._unknown(said.get("params"))
        if unknown is not None:
            raise RefusedError(ident, unknown, (), said.get("params"))
        found = self._fits.violations(said)
        why, place = (found[0].message, found[0].path) if found else ("does not fit its schema", None)
        raise RefusedError(ident, fault("SCHEMA_VIOLATION", why, place=place), found, said.get("params"))

    def _unknown(self, params: Any) -> DomainError | None:
        """Say which of the actions of a request there is none of."""
        asked = params.get("actions") if isinstance(params, dict) else None
        for index, said in enumerate(asked if isinstance(asked, list) else ()):
            name = said.get("action") if isinstance(said, dict) else None
            if isinstance(name, str) and name not in self._actions:
                why = f"there is no action {name[:80]!r}{suggest(name[:80], self._actions)}"
                return fault("ACTION_UNKNOWN", why, place=f"$.params.actions[{index}].action")
        return None


def answered(ident: str | int, result: Object) -> bytes:
    """Return the line that answers a request; raises `IntakeError` for what no line can carry."""
    return canonical.encode({"id": ident, "jsonrpc": "2.0", "result": dict(result)}, *_ROOM) + b"\n"


def refused(ident: str | int | None, error: DomainError, violations: Sequence[Violation] = ()) -> bytes:
    """Return the line that says why a request came to nothing."""
    data = {**told(error), "kind": error.kind, "retryable": error.retryable}
    if violations:
        data["violations"] = [{"path": each.path, "message": each.message} for each in violations]
    body = {"code": _NUMBERS.get(error.code, _DOMAIN), "message": str(error), "data": data}
    return canonical.encode({"id": ident, "jsonrpc": "2.0", "error": body}) + b"\n"


def told(error: DomainError) -> dict[str, Any]:
    """Return *error* as answers have it."""
    place = {"place": error.place} if error.place else {}
    return {"code": error.code, "message": error.message, **place}


def failure(problem: BaseException) -> DomainError:
    """Return what an exception means for who asked."""
    if isinstance(problem, DeedbookError):
        return problem.error
    if isinstance(problem, OSError):
        return fault("FAILED", f"the system refused something: {problem.strerror or problem}")
    return fault("FAILED", f"there is a fault in Deedbook itself: {type(problem).__name__}; please report it")
