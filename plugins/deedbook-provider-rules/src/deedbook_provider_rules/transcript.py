"""The provider ``transcript``: plays responses from a file, in order for each role."""

from collections import deque
from threading import Lock
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, IntakeError, Object, parse

from .completion import REQUEST, RESPONSE, response

MAX_BYTES: Final = 16 * 1024 * 1024


class Transcript:
    """Plays the file under ``path``: JSON Lines, or one JSON array, of ``{"role": …, "response": {…}}``.

    Each entry serves the next request of its role; one without ``role`` serves the next request of any. A response may
    leave out all but its text or its tool calls. When nothing is left, `Failed` with ``PROVIDER_ERROR``; for a
    file that intake refuses, with ``INTAKE_REFUSED``.
    """

    spec = HandlerSpec(
        settings={
            "type": "object",
            "required": ["path"],
            "properties": {"path": {"type": "string", "minLength": 1}},
            "additionalProperties": False,
        },
        takes=REQUEST,
        gives=RESPONSE,
        effects="read",
        interruptible=False,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self.path: str = settings["path"]
        self._open = host.open
        self._lock = Lock()
        self._left: deque[dict[str, Any]] | None = None

    def __call__(self, request: Object, _ctx: Ctx) -> dict[str, Any]:
        """Return the next response of the file for the request's role."""
        role = request.get("role")
        with self._lock:
            played = self._next(role)
        told = played["response"]
        made = response(request, text=str(told.get("text", "")), tool_calls=told.get("tool_calls", []))
        return {**made, **told}

    def _next(self, role: object) -> dict[str, Any]:
        if self._left is None:
            self._left = deque(self._read())
        for entry in self._left:
            if entry.get("role", role) == role:
                self._left.remove(entry)
                return entry
        raise Failed("PROVIDER_ERROR", f"{self.path} has no response left for role {role!r}")

    def _read(self) -> list[dict[str, Any]]:
        try:
            with self._open(self.path) as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as problem:
            raise Failed("PROVIDER_ERROR", f"{self.path} cannot be read: {problem.strerror}") from None
        if len(raw) > MAX_BYTES:
            raise Failed("PROVIDER_ERROR", f"{self.path} is larger than {MAX_BYTES} bytes")
        entries = self._parse(raw)
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, dict) or not isinstance(entry.get("response"), dict):
                raise Failed("PROVIDER_ERROR", f'{self.path}: entry {number} has no object "response"')
        return entries

    def _parse(self, raw: bytes) -> list[Any]:
        lines = [line for line in raw.split(b"\n") if line.strip()]
        try:
            if raw.lstrip().startswith(b"["):
                return list(parse(raw))
            return [parse(line) for line in lines]
        except IntakeError as problem:
            raise Failed(problem.error.code, f"{self.path} is not JSON or JSON Lines: {problem}") from None
