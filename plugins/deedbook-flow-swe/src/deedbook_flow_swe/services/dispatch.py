"""``tool: swe-dispatch``: ask the process of an agent for its next step, through the agent's inbox."""

import time
from hashlib import sha256
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook.format.canonical import encode

from .inbox import MAX_BYTES, REPLY, REQUEST, read_reply
from .places import INBOX
from .steps import STEP_SCHEMA, TASK_SCHEMA, TRANSCRIPT_SCHEMA

_PAUSE: Final = 0.02
"""Seconds between two looks for the reply."""
_TAKES: Final[Object] = {
    "type": "object",
    "required": ["task", "transcript"],
    "properties": {"task": TASK_SCHEMA, "transcript": TRANSCRIPT_SCHEMA},
    "additionalProperties": False,
}
_SETTINGS: Final[Object] = {
    "type": "object",
    "properties": {
        "folder": {"type": "string", "minLength": 1, "description": "The folder of all inboxes", "default": INBOX},
        "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "default": 60},
    },
    "additionalProperties": False,
}


class Dispatch:
    """Ask an agent for its next step: ``{task, transcript}`` to ``{kind, value}`` (`steps.Step`).

    A step depends on the arguments alone. So the request's name is their digest, and a call whose outcome was lost can
    be repeated.
    """

    spec = HandlerSpec(
        settings=_SETTINGS, takes=_TAKES, gives=STEP_SCHEMA, effects="write", reconciles=True, files="host"
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._host = host
        self._folder = settings.get("folder", INBOX)
        self._seconds = settings.get("seconds", 60)

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Wait for the step; ``AGENT_TIMEOUT``, ``AGENT_MESSAGE_REFUSED``, and what the host raises."""
        return self._ask(args, min(ctx.remaining(), self._seconds))

    def reconcile(self, args: Object, idempotency_key: str) -> Json | None:  # noqa: ARG002 - the digest is the key
        """Ask again: nothing but the inbox was changed."""
        return self._ask(args, self._seconds)

    def _ask(self, args: Object, seconds: float) -> Json:
        name = sha256(encode(args)).hexdigest()
        place = f"{self._folder}/{args['task']['agent']}/{name}"
        self._send(f"{place}{REQUEST}", {"id": name, **args, "schema_version": "v1"})
        end = time.monotonic() + seconds
        while (raw := self._read(f"{place}{REPLY}")) is None:
            if time.monotonic() >= end:
                why = f"did not answer within {seconds:g} s; start it with: deedbook swe agent {args['task']['agent']}"
                raise Failed("AGENT_TIMEOUT", f"the agent {args['task']['agent']} {why}", retryable=True)
            time.sleep(_PAUSE)
        reply = read_reply(raw)
        if reply["id"] != name:
            raise Failed("AGENT_MESSAGE_REFUSED", f"{place}{REPLY}: the reply is to another request")
        step: Json = reply["step"]
        return step

    def _send(self, path: str, request: dict[str, Any]) -> None:
        raw = encode(request)
        there = self._read(path)
        if there != raw:
            self._host.replace(path, raw, expected="" if there is None else sha256(there).hexdigest())

    def _read(self, path: str) -> bytes | None:
        try:
            with self._host.open(path) as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
