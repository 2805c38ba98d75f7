"""What a role has been told and what it has done so far, read from a request's messages."""

from typing import Any, Final

import attrs

from deedbook import Failed, IntakeError, Json, Object, parse

_WANTED: Final = 'the user message is not a JSON object with a text "request"'


@attrs.frozen
class Done:
    """A tool call that was answered: its id, the ability, and the *result* or the *error* ``{code, message}``."""

    id: str
    ability: str
    result: Json = None
    error: Object | None = None


@attrs.frozen
class Conversation:
    """The *brief* (the last user message), what was *done* about it, and how many calls were answered in *total*.

    A user message that repeats the brief with a ``violation`` is no new task: what was done stays done.
    """

    brief: dict[str, Any]
    done: tuple[Done, ...]
    total: int

    @classmethod
    def of(cls, request: Object) -> "Conversation":
        """Read *request*; messages that do not keep to the protocol raise `Failed` with ``PROVIDER_ERROR``."""
        messages = request["messages"]
        briefs = [(at, _brief(message["content"])) for at, message in enumerate(messages) if message["role"] == "user"]
        if not briefs:
            raise Failed("PROVIDER_ERROR", "the messages hold no user message")
        begin = max((at for at, brief in briefs if "violation" not in brief), default=0)
        done = tuple(_done(messages[begin:]))
        return cls(briefs[-1][1], done, sum(message["role"] == "tool" for message in messages))

    @property
    def request(self) -> str:
        """The user's request."""
        return str(self.brief["request"])

    def part(self, name: str, field: str) -> dict[str, Any]:
        """Return the hand-off *name*, which has to be an object with a list *field*."""
        found = self.brief.get(name)
        if not isinstance(found, dict) or not isinstance(found.get(field), list):
            raise Failed("PROVIDER_ERROR", f"the user message holds no {name} with {field}")
        return found


def _brief(content: str) -> dict[str, Any]:
    try:
        brief = parse(content)
    except IntakeError as problem:
        raise Failed(problem.error.code, f"{_WANTED}: {problem}") from None
    if not isinstance(brief, dict) or not isinstance(brief.get("request"), str):
        raise Failed("PROVIDER_ERROR", _WANTED)
    return brief


def _done(messages: list[Any]) -> list[Done]:
    names = {call["id"]: call["name"] for message in messages for call in message.get("tool_calls", ())}
    return [_read_result(message, names) for message in messages if message["role"] == "tool"]


def _read_result(message: Object, names: dict[str, str]) -> Done:
    call = message.get("tool_call_id")
    if call not in names:
        raise Failed("PROVIDER_ERROR", f"a tool message answers {call!r}, which was not called")
    try:
        told = parse(message["content"])
    except IntakeError as problem:
        raise Failed(problem.error.code, f"the answer to {call} is refused: {problem}") from None
    if _is_error(told):
        return Done(call, names[call], error=told["error"])
    return Done(call, names[call], told)


def _is_error(told: Json) -> bool:
    """Say whether *told* is ``{"error": {"code", "message"}}`` and nothing else."""
    if not isinstance(told, dict) or set(told) != {"error"}:
        return False
    error = told["error"]
    return isinstance(error, dict) and {"code", "message"} <= set(error)
