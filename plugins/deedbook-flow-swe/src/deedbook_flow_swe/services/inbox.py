"""Messages between the runner and the processes of agents: one folder for each agent, one file for each message.

The runner writes ``<id>.request.json``, the agent ``<id>.reply.json`` beside it. A file appears whole: it is written
under another name first. A message is one JSON object.
"""

from functools import cache
from typing import Any, Final

from deedbook import Failed, Object, parse
from deedbook.format.errors import IntakeError
from deedbook.format.schema import Validator, foreign

from .steps import STEP_SCHEMA, TASK_SCHEMA, TRANSCRIPT_SCHEMA

REQUEST: Final = ".request.json"
REPLY: Final = ".reply.json"
MAX_BYTES: Final = 8 << 20

_ID: Final[Object] = {"type": "string", "pattern": "^[0-9a-f]{16,64}$"}


def _message(**members: Object) -> Object:
    properties = {"id": _ID, **members, "schema_version": {"const": "v1"}}
    return {"type": "object", "required": [*properties], "properties": properties, "additionalProperties": False}


REQUEST_SCHEMA: Final = _message(task=TASK_SCHEMA, transcript=TRANSCRIPT_SCHEMA)
REPLY_SCHEMA: Final = _message(step=STEP_SCHEMA)


def read_request(raw: bytes) -> dict[str, Any]:
    """Return a request; raises `Failed` (``AGENT_MESSAGE_REFUSED``) for anything else."""
    return _read(raw, "request")


def read_reply(raw: bytes) -> dict[str, Any]:
    """Return a reply; raises `Failed` (``AGENT_MESSAGE_REFUSED``) for anything else."""
    return _read(raw, "reply")


def _read(raw: bytes, kind: str) -> dict[str, Any]:
    if len(raw) > MAX_BYTES:
        raise Failed("AGENT_MESSAGE_REFUSED", f"the {kind} has more than {MAX_BYTES} bytes")
    try:
        value = parse(raw)
    except IntakeError as problem:
        raise Failed("AGENT_MESSAGE_REFUSED", f"the {kind} is not acceptable JSON: {problem}") from None
    violations = _validator(kind).violations(value)
    if violations:
        raise Failed("AGENT_MESSAGE_REFUSED", f"the {kind}: {violations[0].path}: {violations[0].message}")
    return dict(value)


@cache
def _validator(kind: str) -> Validator:
    return foreign(REQUEST_SCHEMA if kind == "request" else REPLY_SCHEMA, place=f"the {kind} of an agent's inbox")
