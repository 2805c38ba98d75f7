"""What agents say and hear: a hook's input taken apart, and an answer in the agent's own form; pure.

The table of the agent says where things stand in its input. Answers are built here, one family of forms each; an agent
that cannot be told something is told no.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import attrs
import orjson

from deedbook import canonical
from deedbook.contracts import Json, Object
from deedbook.errors import IntakeError, fault

from .agents import Known, Moment

_LONGEST: Final = 256
_LOST: Final = "\0lost"
_LONGEST_ANSWER: Final = 8000
"""Characters of an answer's text; agents cut longer ones."""
_STOPPABLE: Final[tuple[Moment, ...]] = ("before", "prompt", "compact")
_REFUSABLE: Final[tuple[Moment, ...]] = (*_STOPPABLE, "begin", "dialogue", "after")
"""The moments at which a denial can be said; at an agent's ``stop`` it would make it go on."""
BLOCKED: Final = 2
"""The exit status that stops what was about to happen, whatever an agent makes of the answer."""


def _nothing() -> None:
    """Undo nothing."""


class Reply(NamedTuple):
    """What the agent's hook prints on both streams, and its exit status; *undo* is for one that reaches nobody."""

    status: int
    out: bytes = b""
    err: bytes = b""
    undo: Callable[[], None] = _nothing


@attrs.frozen(kw_only=True)
class Heard:
    """An agent's event. *said* is all of it; what its table does not name is empty.

    *call* is the agent's id of a tool call, *again*: a hook has made it go on already.
    """

    moment: Moment
    event: str
    session: str
    tool: str = ""
    args: Object = attrs.field(factory=dict)
    call: str = ""
    result: Json = None
    error: str = ""
    interrupted: bool = False
    prompt: str = ""
    again: bool = False
    said: Object = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Answer:
    """What is answered. ``pass``: nothing is said; ``go_on``: an agent that wants to stop has more to do.

    *args* is the changed input, *result* what is left of a tool's result, *context* what the model is told beside.
    *undo* takes back what the answer allows, where it does not reach the agent.
    """

    outcome: Literal["pass", "allow", "ask", "deny", "go_on"] = "pass"
    reason: str = ""
    args: Object | None = None
    result: tuple[Json] | None = None
    context: str = ""
    undo: Callable[[], None] = attrs.field(default=_nothing, eq=False)


PASS: Final = Answer()


def hear(known: Known, event: str, body: bytes) -> Heard:
    """Take the input of a hook for *event* apart; raises `IntakeError` for what the agent does not send."""
    moment = known.events.get(event)
    said = _parsed(known, moment, body)
    if not isinstance(said, dict):
        raise _unheard("the input is no object")
    if moment is None:
        raise _unheard(f"{event!r} is no event of {known.title} that is known here")
    at = _Reading(said, known.fields)
    if at.text("event") not in ("", event):
        raise _unheard(f"the input is of {at.text('event')!r}, and the hook was called for {event!r}")
    session = at.text("session")
    if not session:
        raise _unheard("the input names no session")
    tool, args = at.text("tool"), at.value("input", {})
    if moment in ("before", "dialogue", "after", "failed", "refused") and not tool:
        raise _unheard("the input names no tool")
    if not isinstance(args, dict):
        raise _unheard("the tool's input is no object")
    failed = at.text("error", limit=None) if moment == "failed" else ""
    return Heard(
        moment=moment, event=event, session=session, tool=tool, args=args, call=at.text("call"),
        result=at.value("result", None), error=said.get(_LOST, "") or failed,
        interrupted=at.value("interrupted", 0) is True,
        prompt=at.text("prompt", limit=None), again=at.value("repeated", 0) is True, said=said,
    )  # fmt: skip


def _parsed(known: Known, moment: Moment | None, body: bytes) -> Any:
    """Return the JSON of an input; of a use of a tool that is over, what can be recorded of it.

    It cannot be stopped any more, and shall not stay open because what came of it cannot be recorded exactly.
    """
    try:
        return canonical.parse(body)
    except IntakeError as problem:
        if moment != "after":
            raise
        names = [known.fields[name] for name in ("session", "event", "tool", "call") if known.fields[name]]
        try:
            said = orjson.loads(body)
            ambiguous = not _stand_once(names, body)
        except (ValueError, RecursionError):
            raise problem from None
        if ambiguous:
            raise
        kept = {name: said[name] for name in names if name in said} if isinstance(said, dict) else {}
        given = said.get(known.fields["input"]) if isinstance(said, dict) else None
        try:
            return canonical.parse(orjson.dumps({**kept, known.fields["input"]: given})) | {_LOST: str(problem)}
        except (IntakeError, orjson.JSONEncodeError):
            raise problem from None


def _stand_once(names: Sequence[str], body: bytes) -> bool:
    """Say whether none of *names* stands twice in the outermost object of *body*; if one does, it is ambiguous."""
    pairs = json.loads(body, object_pairs_hook=tuple, parse_int=str)
    found = [pair[0] for pair in pairs] if isinstance(pairs, tuple) else []
    return all(found.count(name) <= 1 for name in names)


class _Reading:
    """The members of an input under our names for them."""

    def __init__(self, said: Mapping[str, Any], fields: Mapping[str, str]) -> None:
        self._said, self._fields = said, fields

    def value(self, name: str, default: Any) -> Any:
        return self._said.get(self._fields[name], default) if self._fields.get(name) else default

    def text(self, name: str, *, limit: int | None = _LONGEST) -> str:
        value = self.value(name, "")
        if type(value) is not str or (limit is not None and len(value) > limit):
            raise _unheard(f"{self._fields[name]} is no text of at most {limit} characters")
        return value


def _unheard(why: str) -> IntakeError:
    return IntakeError(fault("BRIDGE_INPUT", why))


# --- answers ----------------------------------------------------------------------------------------------------------


def say(known: Known, moment: Moment, event: str, answer: Answer) -> Reply:
    """Return *answer* in the form of the agent."""
    told = attrs.evolve(answer, reason=answer.reason[:_LONGEST_ANSWER], context=answer.context[:_LONGEST_ANSWER])
    if told.outcome == "deny" and moment not in _REFUSABLE:
        return Reply(0)
    made = _FORMS[known.dialect](moment, event, told)
    out = canonical.encode(made) if made else b""
    if told.outcome == "deny" and moment in _STOPPABLE:
        return Reply(BLOCKED, out, f"Deedbook: {told.reason}\n".encode("utf-8", "backslashreplace"))
    return Reply(0, out, undo=told.undo)


def refusing(known: Known | None, moment: Moment | None, event: str, reason: str) -> Reply:
    """Return a refusal of what cannot be judged; an agent that nobody knows hears the exit status at least."""
    if known is None or moment is None:
        return Reply(BLOCKED, err=f"Deedbook: {reason}\n".encode("utf-8", "backslashreplace"))
    if moment in (*_STOPPABLE, "dialogue"):
        return say(known, moment, event, Answer(outcome="deny", reason=reason))
    return Reply(1, err=f"Deedbook: {reason}\n".encode("utf-8", "backslashreplace"))


def _claude(moment: Moment, event: str, answer: Answer) -> dict[str, Any]:
    if moment == "before":
        return _claude_tool(event, answer)
    if answer.outcome == "deny" and moment == "begin":
        return {"continue": False, "stopReason": answer.reason, "systemMessage": answer.reason}
    if answer.outcome == "deny" and moment == "dialogue":
        return _own(event, decision={"behavior": "deny", "message": answer.reason})
    if answer.outcome in ("deny", "go_on"):
        return {"decision": "block", "reason": answer.reason}
    if answer.result is not None:
        return _own(event, updatedToolOutput=answer.result[0])
    return _own(event, additionalContext=answer.context) if answer.context else {}


def _claude_tool(event: str, answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = {} if answer.outcome == "pass" else {"permissionDecision": answer.outcome}
    if answer.reason:
        told["permissionDecisionReason"] = answer.reason
    if answer.args is not None and answer.outcome != "deny":
        told["updatedInput"] = dict(answer.args)
    if answer.context:
        told["additionalContext"] = answer.context
    return _own(event, **told) if told else {}


def _gemini(moment: Moment, event: str, answer: Answer) -> dict[str, Any]:
    if answer.outcome == "deny" and moment == "begin":
        return {"systemMessage": answer.reason}
    if answer.outcome in ("deny", "ask", "go_on"):
        return {"decision": "deny", "reason": answer.reason}
    if answer.args is not None:
        return _own(event, tool_input=dict(answer.args))
    if answer.result is not None:
        return {"decision": "deny", "reason": canonical.encode(answer.result[0]).decode()[:_LONGEST_ANSWER]}
    return _own(event, additionalContext=answer.context) if answer.context else {}


def _copilot(moment: Moment, event: str, answer: Answer) -> dict[str, Any]:
    made = _claude(moment, event, answer)
    own = made.get("hookSpecificOutput", {})
    if moment == "before":
        names = ("permissionDecision", "permissionDecisionReason", "additionalContext")
        changed = {"modifiedArgs": own["updatedInput"]} if "updatedInput" in own else {}
        return {**{name: own[name] for name in names if name in own}, **changed}
    return {"additionalContext": own["additionalContext"]} if "additionalContext" in own else made


def _own(event: str, **members: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


_FORMS: Final[Mapping[str, Callable[[Moment, str, Answer], dict[str, Any]]]] = MappingProxyType(
    {"claude": _claude, "copilot": _copilot, "gemini": _gemini}
)
