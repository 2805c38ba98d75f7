"""Parsing an agent's hook input, and rendering an answer in the agent's own form; pure.

The agent's table says where fields are in its input, and how each kind of answer is written at each event. If an agent
has no form for a part of an answer, the answer becomes a denial, and `RenderedAnswer` lists the missing kinds so that
they are recorded.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import attrs
import orjson

from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, fault
from deedbook.format.pointers import find_value
from deedbook_serve.agents import GATES, TOOL_MOMENTS, CodingAgent, Event, Form, Kind, Moment

_MAX_NAME: Final = 256
_LOST: Final = "\0lost"
_MAX_ANSWER: Final = 8000
"""The largest number of characters of an answer's reason or context; agents cut longer texts."""
EXIT_BLOCK: Final = 2
"""The exit status that blocks the event, even if an agent does not understand the answer."""


def _nothing() -> None:
    """Do nothing."""


class Reply(NamedTuple):
    """The output of the agent's hook on both streams, and its exit status; *undo* cancels an undelivered reply."""

    status: int
    out: bytes = b""
    err: bytes = b""
    undo: Callable[[], None] = _nothing


@attrs.frozen(kw_only=True)
class HookEvent:
    """An agent's event; *input* is the whole input, fields that the agent's table does not name are empty.

    *call* is the agent's id of a tool call; *again*: a hook has already made the agent go on.
    """

    moment: Moment
    name: str
    session: str
    tool: str = ""
    args: Object = attrs.field(factory=dict)
    call: str = ""
    result: Json = None
    error: str = ""
    interrupted: bool = False
    prompt: str = ""
    again: bool = False
    input: Object = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Answer:
    """An answer to an event. ``pass``: no opinion; ``go_on``: an agent that wants to stop has more to do.

    *args* is the changed input, *result* the changed result of a tool, *context* additional text for the model. *undo*
    cancels the permission of an answer that does not reach the agent.
    """

    outcome: Literal["pass", "allow", "ask", "deny", "go_on"] = "pass"
    reason: str = ""
    args: Object | None = None
    result: tuple[Json] | None = None
    context: str = ""
    undo: Callable[[], None] = attrs.field(default=_nothing, eq=False)


PASS: Final = Answer()


def parse_event(agent: CodingAgent, event: str, body: bytes) -> HookEvent:
    """Return the event in a hook's input; raises `IntakeError` for input that the agent does not send.

    An event that no table lists is only recorded, because the effect of an answer to it is unknown.
    """
    spec = agent.events.get(event, Event(name=event, moment="told"))
    fields = {**agent.fields, **spec.fields}
    hook_input = _parse_input(fields, spec.moment, body)
    if not isinstance(hook_input, dict):
        raise _input_error("the input is no object")
    members = _InputFields(hook_input, fields)
    if members.text("event") not in ("", event):
        raise _input_error(f"the input is of {members.text('event')!r}, and the hook was called for {event!r}")
    session = members.text("session")
    if not session:
        raise _input_error("the input names no session")
    tool, args = members.text("tool"), members.value("input", {})
    if spec.moment in TOOL_MOMENTS and not tool:
        raise _input_error("the input names no tool")
    if not isinstance(args, dict):
        raise _input_error("the tool's input is no object")
    failed = members.text("error", limit=None) if spec.moment == "failed" else ""
    return HookEvent(
        moment=spec.moment, name=event, session=session, tool=tool, args=args, call=members.text("call"),
        result=members.value("result", None), error=hook_input.get(_LOST, "") or failed,
        interrupted=members.value("interrupted", 0) is True,
        prompt=members.text("prompt", limit=None), again=members.value("repeated", 0) is True, input=hook_input,
    )  # fmt: skip


def _parse_input(fields: Mapping[str, str], moment: Moment, body: bytes) -> Any:
    """Return the JSON of an input; after a use of a tool, at least the parts that can be recorded.

    Such a call cannot be stopped any more. It must not stay open because its result cannot be recorded exactly.
    """
    try:
        return canonical.parse(body)
    except IntakeError as problem:
        if moment != "after":
            raise
        names = [fields[name] for name in ("session", "event", "tool", "call") if fields[name]]
        try:
            hook_input = orjson.loads(body)
            ambiguous = not _are_unique(names, body)
        except (ValueError, RecursionError):
            raise problem from None
        if ambiguous:
            raise
        members = (
            {name: hook_input[name] for name in names if name in hook_input} if isinstance(hook_input, dict) else {}
        )
        tool_input = hook_input.get(fields["input"]) if isinstance(hook_input, dict) else None
        try:
            return canonical.parse(orjson.dumps({**members, fields["input"]: tool_input})) | {_LOST: str(problem)}
        except (IntakeError, orjson.JSONEncodeError):
            raise problem from None


def _are_unique(names: Sequence[str], body: bytes) -> bool:
    """Return whether none of *names* occurs twice in the outermost object of *body*, which would be ambiguous."""
    pairs = json.loads(body, object_pairs_hook=tuple, parse_int=str)
    found = [pair[0] for pair in pairs] if isinstance(pairs, tuple) else []
    return all(found.count(name) <= 1 for name in names)


class _InputFields:
    """The members of an input under our names for them."""

    def __init__(self, hook_input: Mapping[str, Any], fields: Mapping[str, str]) -> None:
        self._input, self._fields = hook_input, fields

    def value(self, name: str, default: Any) -> Any:
        return self._input.get(self._fields[name], default) if self._fields.get(name) else default

    def text(self, name: str, *, limit: int | None = _MAX_NAME) -> str:
        value = self.value(name, "")
        if type(value) is not str or (limit is not None and len(value) > limit):
            raise _input_error(f"{self._fields[name]} is no text of at most {limit} characters")
        return value


def _input_error(why: str) -> IntakeError:
    return IntakeError(fault("BRIDGE_INPUT", why))


# --- answers --------------------------------------------------------------------------------------------------------


class RenderedAnswer(NamedTuple):
    """An answer in the agent's form; *lost* lists the kinds of answer the agent has no form for, *why* the reasons."""

    reply: Reply
    lost: tuple[Kind, ...] = ()
    why: str = ""


def render_answer(agent: CodingAgent, hook_event: HookEvent, answer: Answer) -> RenderedAnswer:
    """Return *answer* in the agent's form; parts without a form become a denial and are listed as *lost*."""
    event = agent.events.get(hook_event.name, Event(name=hook_event.name, moment="told"))
    builder = _AnswerBuilder(agent, event, hook_event)
    builder.add(answer)
    return RenderedAnswer(builder.reply(answer), tuple(builder.lost), "; ".join(builder.why))


def build_refusal(agent: CodingAgent | None, event: str, reason: str) -> Reply:
    """Return a refusal of input that cannot be judged; an unknown agent gets at least the exit status."""
    about = agent.events.get(event) if agent else None
    err = f"Deedbook: {reason}\n".encode("utf-8", "backslashreplace")
    if agent is None:
        return Reply(EXIT_BLOCK, err=err)
    if about is None or about.moment not in GATES or "deny" not in about.answers:
        return Reply(1, err=err)
    return render_answer(
        agent, HookEvent(moment=about.moment, name=event, session=""), Answer(outcome="deny", reason=reason)
    ).reply


class _AnswerBuilder:
    """Builds an answer: it merges the forms of its parts."""

    def __init__(self, agent: CodingAgent, event: Event, hook_event: HookEvent) -> None:
        self._agent, self._event, self._hook_event = agent, event, hook_event
        self._of_mcp = agent.mcp is not None and agent.mcp.matches(hook_event.tool, hook_event.input)
        self.prints: dict[str, Any] = {}
        self.status, self.reason = 0, ""
        self.lost: list[Kind] = []
        self.why: list[str] = []

    def add(self, answer: Answer) -> None:
        """Add all parts of *answer*."""
        if answer.outcome == "deny":
            self._deny(answer.reason)
        elif answer.args is not None and not self._add_form("change", input=dict(answer.args)):
            self._deny(self._record_lost("change", "another input"))
        elif answer.outcome == "ask" and not self._add_form("ask", reason=answer.reason):
            self._deny(f"{answer.reason}; {self._record_lost('ask', 'a question to its person')}")
        elif answer.outcome == "go_on" and not self._add_form("go_on", reason=answer.reason):
            self._record_lost("go_on", "a reason to go on")
        elif answer.outcome == "allow" and answer.args is None:
            self._add_form("allow")
        elif answer.result is not None:
            self._replace(answer.result[0])
        if answer.context and not self._add_form("context", context=answer.context[:_MAX_ANSWER]):
            self._record_lost("context", "text for the model")

    def reply(self, answer: Answer) -> Reply:
        """Return the output of the hook, and its exit status."""
        out = canonical.encode(self.prints) if self.prints else b""
        err = f"Deedbook: {self.reason}\n".encode("utf-8", "backslashreplace") if self.status else b""
        return Reply(self.status, out, err, answer.undo)

    def _deny(self, reason: str) -> None:
        keeps = self._event.shaped and not self._of_mcp
        if self._event.shaped and self._of_mcp and self._add_form("result", result=reason, text=reason):
            return
        excepted = any(self._hook_event.input.get(name) in values for name, values in self._event.excepts.items())
        if not excepted and self._add_form("deny", reason=reason):
            if keeps:
                self.lost.append("deny")
                self.why.append(f"{self._agent.title} stops, and keeps the result in its conversation")
            return
        self._record_lost("deny", "a denial")
        self._add_form("notice", reason=reason)

    def _replace(self, result: Json) -> None:
        if self._event.shaped and not self._of_mcp and not _have_same_shape(self._hook_event.result, result):
            self.lost.append("result")
            self._deny("a hook changed the result to one of another shape, which the agent would not take")
        elif not self._add_form("result", result=result, text=_get_text(result, self._event.text)):
            self._deny(self._record_lost("result", "another result"))

    def _record_lost(self, kind: Kind, what: str) -> str:
        why = f"{self._agent.title} takes no {what.removeprefix('a ')} at {self._event.name}"
        self.lost.append(kind)
        self.why.append(why)
        return why

    def _add_form(self, kind: Kind, **values: Json) -> bool:
        """Merge the form of *kind* into the output; return whether the agent has such a form."""
        form: Form | None = self._event.answers.get(kind)
        if form is None:
            return False
        if "reason" in values:
            self.reason = str(values["reason"])[:_MAX_ANSWER]
            values["reason"] = self.reason
        self.prints = _merge(self.prints, _fill(form.prints, {**values, "event": self._event.name}))
        self.status = form.exit or self.status
        return True


def _fill(form: Any, values: Mapping[str, Json]) -> Any:
    """Return *form* with *values* in place of the texts ``$name``."""
    if isinstance(form, str) and form[:1] == "$":
        return values[form[1:]]
    return {name: _fill(each, values) for name, each in form.items()} if isinstance(form, Mapping) else form


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _merge(below[name], above[name]) for name in below if name in above and type(above[name]) is dict}
    return {**below, **above, **both}


def _get_text(result: Json, pointer: str) -> str:
    """Return the text of a result that a model sees: the text at *pointer*, else all of it."""
    seen = find_value(result, pointer, result)
    return seen if isinstance(seen, str) else canonical.encode(seen).decode()


def _have_same_shape(first: Json, other: Json) -> bool:
    """Return whether two results have the same members at every level, and values of the same types."""
    if isinstance(first, dict):
        return (
            isinstance(other, dict)
            and first.keys() == other.keys()
            and all(_have_same_shape(first[k], other[k]) for k in first)
        )
    if isinstance(first, list):
        return isinstance(other, list) and all(any(_have_same_shape(one, each) for one in first) for each in other)
    numbers = isinstance(first, int | float) and isinstance(other, int | float) and type(first) is not bool
    return type(first) is type(other) or (numbers and type(other) is not bool)
