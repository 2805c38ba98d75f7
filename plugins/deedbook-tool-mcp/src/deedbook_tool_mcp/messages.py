"""Parse messages of the protocol with the kernel's intake.

The SDK's own reader accepts an object with a key twice; a policy would then judge other arguments than the client sent.
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


class RefusedMessage(Exception):  # noqa: N818 - it says what became of a message
    """Bytes that are not a message: *error* is the reply to the other side.

    *id* is the id of the request or of the answered request, if it is clear; *is_answer* says whether the bytes were an
    answer.
    """

    def __init__(self, error: ErrorData, ident: str | int | None = None, answers: bool = False) -> None:
        super().__init__(error.message)
        self.error, self.id, self.is_answer = error, ident, answers

    def build_reply(self) -> JSONRPCError:
        """Return the error message that answers the bytes."""
        return JSONRPCError(jsonrpc="2.0", id=self.id, error=self.error)


def parse_message(raw: bytes) -> Any:
    """Return the value of a message's JSON; raises `RefusedMessage`.

    Large integers stay: an ability may accept them as text, and refuses them otherwise.
    """
    try:
        return parse(raw, big_integers="keep")
    except IntakeError as problem:
        raise build_refusal(str(problem), *_read_outline(raw)) from None


def read_message(raw: bytes) -> JSONRPCMessage:
    """Return the message in *raw*; raises `RefusedMessage`."""
    value = parse_message(raw)
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        raise RefusedMessage(ErrorData(code=INVALID_REQUEST, message="no JSON-RPC message")) from None


def build_refusal(
    why: str, ident: str | int | None = None, answers: bool = False, *, code: str = _INTAKE
) -> RefusedMessage:
    """Return the refusal of a message; *code* is the stable code."""
    return RefusedMessage(ErrorData(code=PARSE_ERROR, message=why, data={"code": code, "message": why}), ident, answers)


def find_id(raw: bytes) -> str | int | None:
    """Return the id of a message that names exactly one."""
    return _read_outline(raw)[0]


def find_refusal_code(problem: BaseException) -> str | None:
    """Return the stable code if *problem* is the error that replaced a refused answer."""
    data = problem.error.data if isinstance(problem, MCPError) else None
    code = data.get("code") if isinstance(data, Mapping) else None
    return code if isinstance(code, str) and code in _CODES else None


def _read_outline(raw: bytes) -> tuple[str | int | None, bool]:
    """Return the id of a refused message if it names exactly one, and whether it answers a request."""
    try:
        parsed = json.loads(raw.decode("utf-8", "replace"), object_pairs_hook=tuple, parse_int=_parse_small)
    except (ValueError, RecursionError):
        return None, False
    pairs: tuple[tuple[str, Any], ...] = parsed if isinstance(parsed, tuple) else ()
    ids = [value for key, value in pairs if key == "id"]
    is_clear = len(ids) == 1 and (type(ids[0]) is int or (isinstance(ids[0], str) and ids[0].isprintable()))
    return ids[0] if is_clear else None, any(key in ("result", "error") for key, _ in pairs)


def _parse_small(digits: str) -> int | None:
    return int(digits) if len(digits) < _DIGITS else None
