"""A conversation with one role: its hand-off, the tools that it uses, and the message that it must return."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import attrs

from deedbook import Failed, Json, Object, Run, Skill
from deedbook.contract import TokenCount
from deedbook.contract.hidden import show_hidden_json

from .images import find_images
from .prompt_budget import PROMPT_TOO_LONG, SHORTENED, LeftOut, find_removed, leave_out, measure

MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
TURNS_SPENT: Final = "TURNS_SPENT"
"""The code if a role asked for tools more often than it may."""

_ENDS_WORK: Final = frozenset({"APPROVAL_REFUSED", "NEEDS_HUMAN", "CANCELLED", "LEDGER_BROKEN"})
"""Failures that a role is not told: it could do nothing about them."""
_LONGEST: Final = 2000
NO_MESSAGE: Final[Mapping[str, str]] = {
    "max_tokens": "the answer was cut off at the limit of tokens (max_output_tokens, or the model's own)",
    "safety": "the model refused to answer",
}
"""What an answer that ended for this reason is; its text does not count, whatever it says."""


LIMIT_SETTINGS: Final[Mapping[str, Any]] = {
    "max_turns": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 12},
    "max_malformed": {"type": "integer", "minimum": 0, "maximum": 20, "default": 1},
    "max_prompt_tokens": {"type": "integer", "minimum": 1, "maximum": 100_000_000},
}
"""The properties of a flow's settings from which `Limits` are made."""


@attrs.frozen
class Limits:
    """How often a role may ask its model in one stage, and how often one of its messages may be malformed.

    *max_prompt_tokens* limits what the model reads at once; ``None`` is no limit.
    """

    max_turns: int = 12
    max_malformed: int = 1
    max_prompt_tokens: int | None = None

    @classmethod
    def parse(cls, settings: Object) -> Self:
        """Return the limits in a flow's settings, which match `LIMIT_SETTINGS`."""
        return cls(**{name: settings[name] for name in LIMIT_SETTINGS if name in settings})


class Conversation:
    """Hands *handoff* over to *role*, whose `answer` is the message that its schema requires.

    A role that *acts* is offered the tools in scope; calls that another role asks for are not performed. A role that
    *plans* gets the names of the tools. *skill* is the one whose text the role gets, by default that of the run.
    *tier* is the one whose model is asked, by default that of the role.
    """

    def __init__(  # noqa: PLR0913 - what may be left out is named
        self,
        run: Run,
        role: str,
        handoff: Object,
        limits: Limits,
        *,
        acts: bool = False,
        plans: bool = False,
        skill: Skill | None = None,
        tier: str | None = None,
    ) -> None:
        self.agent = run.agent(role)
        self._tier = tier
        self._run = run
        self._context = run.context
        self._handoff = {**handoff, "tools": _list_tools(self.agent.tools())} if plans else handoff
        self._limits = limits
        self._acts = acts
        self._tools = self.agent.tools() if acts else []
        self._turns = 0
        self._made: list[tuple[str, str]] = []
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": _instructions(self.agent.instructions, skill or run.skill)},
            {"role": "user", "content": _content(self._handoff)},
        ]

    def answer(
        self,
        schema: str,
        *,
        check: "Callable[[Mapping[str, Any]], str] | None" = None,
        versions: Mapping[str, str] = {},
    ) -> dict[str, Any]:
        """Return the role's message, which fits *schema*; *versions* has other schemas by ``schema_version``.

        *check* returns what else is wrong with a message; empty if nothing is. A malformed message, such as a call
        whose arguments are no JSON, is told to the role, which may answer again, at most `Limits.max_malformed` times.
        Raises `Failed`: ``MALFORMED_AGENT_MESSAGE`` after that, `TURNS_SPENT`, or the failure of the model or the door.
        """
        patience = self._limits.max_malformed
        while True:
            response = None
            try:
                response = self._settle(schema)
                return self._message(versions.get(_version(response), schema), response, check)
            except Failed as failure:
                if failure.code != MALFORMED or patience < 1:
                    raise
                self._object(response, schema, failure)
            patience -= 1

    def count_tokens(self, schema: str) -> TokenCount:
        """Return how many tokens the model would read if it was asked for *schema* now."""
        return self.agent.count_tokens(self._request(schema), tier=self._tier)

    def _settle(self, schema: str) -> dict[str, Any]:
        """Ask the model until it wants no more tools; return its last response."""
        while True:
            response = self._complete(schema)
            if not (self._acts and response["finish_reason"] == "tool_use" and response["tool_calls"]):
                return response
            self._say("assistant", response["text"], tool_calls=response["tool_calls"])
            for call in response["tool_calls"]:
                self._say("tool", _compact(self._use(call)), tool_call_id=call["id"])

    def _complete(self, schema: str) -> dict[str, Any]:
        if self._turns >= self._limits.max_turns:
            raise Failed(
                TURNS_SPENT, f"the {self.agent.role} was not done after {self._turns} turns, which is the limit"
            )
        self._turns += 1
        self._fit(schema)
        return self.agent.complete(self._request(schema), tier=self._tier)

    def _fit(self, schema: str) -> None:
        """Leave out results of tools until the prompt fits; raises `Failed` if it does not, or if a hook refuses."""
        most = self._limits.max_prompt_tokens
        if most is None or (count := self.count_tokens(schema)).tokens <= most:
            return
        whole, first = self._messages, count
        self._messages = list(self._run.fire("PreCompact", {"messages": whole})["messages"])
        left = find_removed(whole, self._messages)
        while (count := self.count_tokens(schema)).tokens > most:
            self._messages, found = leave_out(self._messages, count.tokens - most)
            if not found:
                break
            left += found
        self._note_shortened(first, count, left)
        if count.tokens > most:
            why = f"the {self.agent.role}'s prompt has {count.tokens} tokens ({count.by}), {most} are allowed"
            sizes = ", ".join(f"{role} {size}" for role, size in measure(self._messages).items())
            raise Failed(PROMPT_TOO_LONG, f"{why}, and nothing more can be left out; bytes of the messages: {sizes}")

    def _note_shortened(self, first: TokenCount, last: TokenCount, left: Sequence[LeftOut]) -> None:
        if self._context is not None:  # a branch has none; the request holds what is left of each result
            tokens = {"before": first.tokens, "after": last.tokens, "by": last.by}
            rows = [each.to_json() for each in left]
            budget = self._limits.max_prompt_tokens
            self._context.note(
                SHORTENED, {"role": self.agent.role, "budget": budget, "tokens": tokens, "left_out": rows}
            )

    def _request(self, schema: str) -> dict[str, Any]:
        request: dict[str, Any] = {"messages": list(self._messages), "response_schema": schema}
        return {**request, "tools": self._tools} if self._tools else request

    def _use(self, call: Object) -> Json:
        self._made.append((call["name"], call["id"]))
        try:
            return self.agent.use(call)
        except Failed as failure:
            if failure.lost or failure.code in _ENDS_WORK:
                raise
            return {"error": {"code": failure.code, "message": str(failure)}}

    def _message(
        self, schema: str, response: Object, check: "Callable[[Mapping[str, Any]], str] | None"
    ) -> dict[str, Any]:
        try:
            message = self.agent.message(schema, response)
        except Failed as failure:
            raise _explain_failure(failure, response) from None
        if why := NO_MESSAGE.get(response["finish_reason"]):
            self._find("finish_reason", why, schema=schema)
            raise Failed(MALFORMED, f"{why}; its text does not count")
        if self._acts:
            self._check_calls(message.get("tool_calls_made", []))
        wrong = check(message) if check else ""
        if wrong:
            self._find("message", wrong, schema=schema)
            raise Failed(MALFORMED, f"the {self.agent.role}'s {schema}: {wrong}")
        return message

    def _check_calls(self, claimed: Sequence[str]) -> None:
        """Refuse a message that names a call that was not made; a call is ``name:id``, or its name alone."""
        made = [f"{name}:{call_id}" for name, call_id in self._made]
        known = {*made, *(name for name, _ in self._made)}
        invented = [call for call in claimed if call not in known]
        if invented:
            why = f"tool_calls_made names {', '.join(invented)}; the calls made are: {', '.join(made) or 'none'}"
            self._find("tool_calls_made", why, invented=invented, made=made)
            raise Failed(MALFORMED, why)

    def _find(self, check: str, message: str, **more: Json) -> None:
        """Record a finding about a message of the role."""
        if self._context is not None:  # a branch has none
            found = {"check": check, "level": "error", "message": message[:_LONGEST], "role": self.agent.role}
            self._context.add_finding({**found, **more})

    def _object(self, response: Object | None, schema: str, failure: Failed) -> None:
        """Tell the role what is wrong, with the hand-off: the last user message always has the whole task.

        There is no *response* if its calls could not be read.
        """
        if response is not None and response["text"]:
            self._say("assistant", response["text"])
        form = f"; it has to be one JSON object that fits {schema}" if response is not None else ""
        violation = f"your last message was refused{form}: {failure}"
        self._say("user", _compact({**self._handoff, "violation": violation}))

    def _say(self, role: str, content: str, **more: Any) -> None:
        self._messages.append({"role": role, "content": content, **more})


def _instructions(instructions: str, skill: Skill | None) -> str:
    if skill is None:
        return instructions
    return f"{instructions.rstrip()}\n\n# Skill: {skill.name}\n\n{skill.body.strip()}\n"


def _content(handoff: Object) -> "str | list[dict[str, Any]]":
    """Return the text of a hand-off, with the images that its request marks as further parts."""
    images = find_images(str(handoff.get("request", "")))
    text = _compact(handoff)
    return [{"type": "text", "text": text}, *images] if images else text


def _version(response: Object) -> str:
    """Return the ``schema_version`` that a response states; empty if it is no JSON object."""
    try:
        message = json.loads(response["text"])
    except (ValueError, RecursionError):
        return ""
    return str(message.get("schema_version", "")) if isinstance(message, dict) else ""


def _explain_failure(failure: Failed, response: Object) -> Failed:
    """Return *failure* with the reason for an incomplete message, if the model states one."""
    why = NO_MESSAGE.get(response["finish_reason"])
    return Failed(failure.code, f"{why}: {failure}", retryable=failure.retryable) if why else failure


def _list_tools(tools: Sequence[Object]) -> list[dict[str, Any]]:
    return [{"name": tool["name"], "description": tool.get("description", "")} for tool in tools]


def _compact(value: Json | Object) -> str:
    return show_hidden_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
