"""Card numbers, secrets, addresses and patterns leave a request before it is sent to a model."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import re2

from deedbook import IntakeError, Json, parse
from deedbook.contract import Call, Decision, GateSpec, Host, Object, allow, hookimpl, transform
from deedbook.format.detectors import KEY, NAMES, TOKENS, Detectors, find_any

from .redaction import redact

EMAIL: Final = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)+"
DETECTORS: Final = ("card", "email", "secret")
"""The detectors: those that ``seal:`` has, and addresses of e-mail."""

_PRIVATE_KEY: Final = r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)"
_REST: Final = "[A-Za-z0-9._~+/=-]*"
"""What may follow the beginning of a secret and belongs to it."""
_MARK: Final = "[REDACTED]"
_KEY_MARK: Final = "[REDACTED-SECRET]"


class RedactRequests:
    """Replaces what its detectors and patterns find in the messages and tools of a request to a model."""

    spec: ClassVar[GateSpec] = GateSpec(
        settings={
            "type": "object",
            "properties": {
                "detect": {
                    "description": "What is replaced; card and secret unless named",
                    "type": "array",
                    "items": {"enum": list(DETECTORS)},
                    "uniqueItems": True,
                    "default": ["card", "secret"],
                },
                "patterns": {
                    "description": "Regular expressions (RE2) of what is replaced, too",
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": 1000},
                },
            },
            "additionalProperties": False,
        },
        pure=True,
        rewrites=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._redactor = Redactor(settings.get("detect", ["card", "secret"]), settings.get("patterns", []))

    @hookimpl
    def pre_tool_use(self, call: Call) -> Decision:
        """Allow a request without a match, and every call that is no request; otherwise go on with what is left."""
        if call.kind != "model":
            return allow()
        left = redact_request(call.args, self._redactor.redact)
        return allow() if left == call.args else transform(left, "redacted what must not be sent to a model")


def redact_request(request: Object, redact_text: Callable[[str], str]) -> dict[str, Any]:
    """Return *request* with redacted contents, arguments of calls and descriptions of tools.

    Ids and names stay, since calls and results are paired by them. The front matter of the skill stays: it is the
    workspace's own text, and no provider for an endpoint sends it.
    """

    def walk(value: Json) -> Any:
        return _walk(value, redact_text)

    def message(each: Object) -> dict[str, Any]:
        made = {**each, "content": walk(each.get("content", ""))}
        if "tool_calls" in each:
            made["tool_calls"] = [{**asked, "args": walk(asked["args"])} for asked in each["tool_calls"]]
        return made

    def tool(each: Object) -> dict[str, Any]:
        return {name: value if name == "name" else walk(value) for name, value in each.items()}

    made = {**request, "messages": [message(each) for each in request["messages"]]}
    return {**made, "tools": [tool(each) for each in request["tools"]]} if "tools" in request else made


class Redactor:
    """Finds what the detectors *names* and the *patterns* describe, and puts a mark in its place."""

    def __init__(self, names: Sequence[str], patterns: Sequence[str]) -> None:
        own = [*([EMAIL] if "email" in names else []), *patterns]
        self._cards = "card" in names
        self._marks = [(_compile(each), mark) for each, mark in (_secrets() if "secret" in names else [])]
        self._marks += [(_compile(each), _MARK) for each in own]
        if own:
            find_any(*own)  # raises for a pattern that only one of the two engines takes
        self._detectors = Detectors(NAMES.intersection(names), own)

    def redact(self, text: str) -> str:
        """Return *text* with a mark for each match.

        The whole text is replaced if it still has a match.
        """
        if not self._detectors.fires(text):
            return text
        left = redact(text) if self._cards else text
        for pattern, mark in self._marks:
            left = pattern.sub(mark, left)
        return _MARK if self._detectors.fires(left) else left


def _secrets() -> list[tuple[str, str]]:
    """Return the patterns of whole secrets, and their replacements."""
    tokens = [(f"(?:{each}){_REST}", _KEY_MARK) for each in TOKENS]
    return [(_PRIVATE_KEY, _KEY_MARK), *tokens, (f"{KEY}{_REST}", rf"\1{_KEY_MARK}")]


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0].decode(errors="replace") if problem.args else "unknown"
        raise ValueError(f"{pattern!r} is not RE2 (https://github.com/google/re2/wiki/Syntax): {reason}") from None


def _walk(value: Json, redact_text: Callable[[str], str]) -> Any:
    """Redact every text, number and key; a text that is JSON stays JSON."""
    if isinstance(value, str):
        return _text(value, redact_text)
    if isinstance(value, Mapping):
        return _members(value, redact_text)
    if isinstance(value, list | tuple):
        return [_walk(item, redact_text) for item in value]
    if type(value) is int:
        left = redact_text(str(value))
        return value if left == str(value) else left
    return value


def _members(value: Object, redact_text: Callable[[str], str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = redact_text(key)
        while name in made:
            name += "'"
        made[name] = _walk(item, redact_text)
    return made


def _text(text: str, redact_text: Callable[[str], str]) -> str:
    if not text.startswith(("{", "[", '"')):
        return redact_text(text)
    try:
        value = parse(text)
    except IntakeError:
        return redact_text(text)
    left = _walk(value, redact_text)
    return text if left == value else json.dumps(left, ensure_ascii=False, separators=(",", ":"))
