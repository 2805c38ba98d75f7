"""What agents say and hear: a hook's input taken apart, and an answer in the agent's own form; pure.

The agent's table says where fields are in its input, and how each kind of answer is written at each event. If an agent
cannot be told something, the answer is a denial, and `Said` lists what it could not be told, so that it is recorded.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import attrs
import orjson

from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, fault
from deedbook_serve.agents import GATES, OF_A_TOOL, Event, Form, Kind, Known, Moment

_LONGEST: Final = 256
_LOST: Final = "\0lost"
_LONGEST_ANSWER: Final = 8000
"""Characters of an answer's reason or context; agents cut longer ones."""
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
    """Take the input of a hook for *event* apart; raises `IntakeError` for what the agent does not send.

    Of an event that is in no table, nobody here knows what an answer would do: it is only recorded.
    """
    about = known.events.get(event, Event(name=event, moment="told"))
    fields = {**known.fields, **about.fields}
    said = _parsed(fields, about.moment, body)
    if not isinstance(said, dict):
        raise _unheard("the input is no object")
    at = _Reading(said, fields)
    if at.text("event") not in ("", event):
        raise _unheard(f"the input is of {at.text('event')!r}, and the hook was called for {event!r}")
    session = at.text("session")
    if not session:
        raise _unheard("the input names no session")
    tool, args = at.text("tool"), at.value("input", {})
    if about.moment in OF_A_TOOL and not tool:
        raise _unheard("the input names no tool")
    if not isinstance(args, dict):
        raise _unheard("the tool's input is no object")
    failed = at.text("error", limit=None) if about.moment == "failed" else ""
    return Heard(
        moment=about.moment, event=event, session=session, tool=tool, args=args, call=at.text("call"),
        result=at.value("result", None), error=said.get(_LOST, "") or failed,
        interrupted=at.value("interrupted", 0) is True,
        prompt=at.text("prompt", limit=None), again=at.value("repeated", 0) is True, said=said,
    )  # fmt: skip


def _parsed(fields: Mapping[str, str], moment: Moment, body: bytes) -> Any:
    """Return the JSON of an input; of a use of a tool that is over, what can be recorded of it.

    It cannot be stopped any more, and shall not stay open because what came of it cannot be recorded exactly.
    """
    try:
        return canonical.parse(body)
    except IntakeError as problem:
        if moment != "after":
            raise
        names = [fields[name] for name in ("session", "event", "tool", "call") if fields[name]]
        try:
            said = orjson.loads(body)
            ambiguous = not _stand_once(names, body)
        except (ValueError, RecursionError):
            raise problem from None
        if ambiguous:
            raise
        kept = {name: said[name] for name in names if name in said} if isinstance(said, dict) else {}
        given = said.get(fields["input"]) if isinstance(said, dict) else None
        try:
            return canonical.parse(orjson.dumps({**kept, fields["input"]: given})) | {_LOST: str(problem)}
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


class Said(NamedTuple):
    """An answer as the agent hears it; *lost* are the kinds of answer that it could not be given, and *why*."""

    reply: Reply
    lost: tuple[Kind, ...] = ()
    why: str = ""


def say(known: Known, heard: Heard, answer: Answer) -> Said:
    """Return *answer* in the form of the agent; what this has no form for becomes a denial, and is *lost*."""
    event = known.events.get(heard.event, Event(name=heard.event, moment="told"))
    spoken = _Spoken(known, event, heard)
    spoken.say(answer)
    return Said(spoken.reply(answer), tuple(spoken.lost), "; ".join(spoken.why))


def refusing(known: Known | None, event: str, reason: str) -> Reply:
    """Return a refusal of what cannot be judged; an agent that nobody knows hears the exit status at least."""
    about = known.events.get(event) if known else None
    err = f"Deedbook: {reason}\n".encode("utf-8", "backslashreplace")
    if known is None:
        return Reply(BLOCKED, err=err)
    if about is None or about.moment not in GATES or "deny" not in about.answers:
        return Reply(1, err=err)
    return say(known, Heard(moment=about.moment, event=event, session=""), Answer(outcome="deny", reason=reason)).reply


class _Spoken:
    """An answer that is put together: the forms of its parts are laid over each other."""

    def __init__(self, known: Known, event: Event, heard: Heard) -> None:
        self._known, self._event, self._heard = known, event, heard
        self._of_mcp = known.mcp is not None and known.mcp.holds(heard.tool, heard.said)
        self.prints: dict[str, Any] = {}
        self.status, self.heard_reason = 0, ""
        self.lost: list[Kind] = []
        self.why: list[str] = []

    def say(self, answer: Answer) -> None:
        """Put all parts of *answer* together."""
        if answer.outcome == "deny":
            self._deny(answer.reason)
        elif answer.args is not None and not self._part("change", input=dict(answer.args)):
            self._deny(self._cannot("change", "another input"))
        elif answer.outcome == "ask" and not self._part("ask", reason=answer.reason):
            self._deny(f"{answer.reason}; {self._cannot('ask', 'a question to its person')}")
        elif answer.outcome == "go_on" and not self._part("go_on", reason=answer.reason):
            self._cannot("go_on", "a reason to go on")
        elif answer.outcome == "allow" and answer.args is None:
            self._part("allow")
        elif answer.result is not None:
            self._replace(answer.result[0])
        if answer.context and not self._part("context", context=answer.context[:_LONGEST_ANSWER]):
            self._cannot("context", "text for the model")

    def reply(self, answer: Answer) -> Reply:
        """Return what the hook prints, and its exit status."""
        out = canonical.encode(self.prints) if self.prints else b""
        err = f"Deedbook: {self.heard_reason}\n".encode("utf-8", "backslashreplace") if self.status else b""
        return Reply(self.status, out, err, answer.undo)

    def _deny(self, reason: str) -> None:
        keeps = self._event.shaped and not self._of_mcp
        if self._event.shaped and self._of_mcp and self._part("result", result=reason, text=reason):
            return
        excepted = any(self._heard.said.get(name) in values for name, values in self._event.excepts.items())
        if not excepted and self._part("deny", reason=reason):
            if keeps:
                self.lost.append("deny")
                self.why.append(f"{self._known.title} stops, and keeps the result in its conversation")
            return
        self._cannot("deny", "a denial")
        self._part("notice", reason=reason)

    def _replace(self, result: Json) -> None:
        if self._event.shaped and not self._of_mcp and not _alike(self._heard.result, result):
            self.lost.append("result")
            self._deny("a hook changed the result to one of another shape, which the agent would not take")
        elif not self._part("result", result=result, text=_text(result, self._event.text)):
            self._deny(self._cannot("result", "another result"))

    def _cannot(self, kind: Kind, what: str) -> str:
        why = f"{self._known.title} takes no {what.removeprefix('a ')} at {self._event.name}"
        self.lost.append(kind)
        self.why.append(why)
        return why

    def _part(self, kind: Kind, **values: Json) -> bool:
        """Lay the form of *kind* over what there is; say whether the agent has one."""
        form: Form | None = self._event.answers.get(kind)
        if form is None:
            return False
        if "reason" in values:
            self.heard_reason = str(values["reason"])[:_LONGEST_ANSWER]
            values["reason"] = self.heard_reason
        self.prints = _laid(self.prints, _filled(form.prints, {**values, "event": self._event.name}))
        self.status = form.exit or self.status
        return True


def _filled(form: Any, values: Mapping[str, Json]) -> Any:
    """Return *form* with *values* in the places of the texts ``$name``."""
    if isinstance(form, str) and form[:1] == "$":
        return values[form[1:]]
    return {name: _filled(each, values) for name, each in form.items()} if isinstance(form, Mapping) else form


def _laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _laid(below[name], above[name]) for name in below if name in above and type(above[name]) is dict}
    return {**below, **above, **both}


def _text(result: Json, pointer: str) -> str:
    """Return what a model sees of a result: the text at *pointer*, else all of it."""
    seen = result.get(pointer[1:], result) if isinstance(result, dict) else result
    return seen if isinstance(seen, str) else canonical.encode(seen).decode()


def _alike(first: Json, other: Json) -> bool:
    """Say whether two results have the same members everywhere, and values of the same types."""
    if isinstance(first, dict):
        return (
            isinstance(other, dict) and first.keys() == other.keys() and all(_alike(first[k], other[k]) for k in first)
        )
    if isinstance(first, list):
        return isinstance(other, list) and all(any(_alike(one, each) for one in first) for each in other)
    numbers = isinstance(first, int | float) and isinstance(other, int | float) and type(first) is not bool
    return type(first) is type(other) or (numbers and type(other) is not bool)
