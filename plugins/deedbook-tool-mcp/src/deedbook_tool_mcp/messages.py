"""Messages of the protocol from bytes, read by the kernel's intake.

The SDK's own reader takes an object in which a key stands twice, and what a policy judged would not be what was sent.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from mcp_types.jsonrpc import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from deedbook import IntakeError, parse

_INTAKE: Final = "INTAKE_REFUSED"
_CODES: Final = frozenset({_INTAKE, "OUTPUT_REFUSED", "OUTPUT_TOO_LARGE"})
_DIGITS: Final = 17


class Refused(Exception):  # noqa: N818 - it says what became of a message
    """Bytes that are no message: *error* is what the other side is told.

    *id* is that of the request, or of the request that is answered, where one is named clearly; *answers* says whether
    it was meant as an answer.
    """

    def __init__(self, error: ErrorData, ident: str | int | None = None, answers: bool = False) -> None:
        super().__init__(error.message)
        self.error, self.id, self.answers = error, ident, answers

    def reply(self) -> JSONRPCError:
        """Return the message that says so."""
        return JSONRPCError(jsonrpc="2.0", id=self.id, error=self.error)


def intake(raw: bytes) -> Any:
    """Return the value of a message's JSON; raises `Refused`.

    Large integers are left for the ability to refuse, which may take them as text.
    """
    try:
        return parse(raw, big_integers="keep")
    except IntakeError as problem:
        raise refusal(str(problem), *_outline(raw)) from None


def read(raw: bytes) -> JSONRPCMessage:
    """Return the message that *raw* is; raises `Refused`."""
    value = intake(raw)
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        raise Refused(ErrorData(code=INVALID_REQUEST, message="no JSON-RPC message")) from None


def refusal(why: str, ident: str | int | None = None, answers: bool = False, *, code: str = _INTAKE) -> Refused:
    """Return the refusal of a message that is not read; *code* is the stable one."""
    return Refused(ErrorData(code=PARSE_ERROR, message=why, data={"code": code, "message": why}), ident, answers)


def identity(raw: bytes) -> str | int | None:
    """Return the id that a message names once."""
    return _outline(raw)[0]


def refusal_code(problem: BaseException) -> str | None:
    """Return the stable code where *problem* is the error that stands for an answer which was refused here."""
    data = problem.error.data if isinstance(problem, MCPError) else None
    code = data.get("code") if isinstance(data, Mapping) else None
    return code if isinstance(code, str) and code in _CODES else None


def _outline(raw: bytes) -> tuple[str | int | None, bool]:
    """Return the id that a refused message names once, and whether it answers a request that waits."""
    try:
        told = json.loads(raw.decode("utf-8", "replace"), object_pairs_hook=tuple, parse_int=_small)
    except (ValueError, RecursionError):
        return None, False
    pairs: tuple[tuple[str, Any], ...] = told if isinstance(told, tuple) else ()
    named = [value for key, value in pairs if key == "id"]
    known = len(named) == 1 and (type(named[0]) is int or (isinstance(named[0], str) and named[0].isprintable()))
    return named[0] if known else None, any(key in ("result", "error") for key, _ in pairs)


def _small(digits: str) -> int | None:
    return int(digits) if len(digits) < _DIGITS else None
