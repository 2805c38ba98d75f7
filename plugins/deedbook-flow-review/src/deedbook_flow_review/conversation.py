"""One role at work on one hand-off: what it is told, the tools it uses, and the message that it has to give back."""

import json
from collections.abc import Sequence
from typing import Any, Final

import attrs

from deedbook import Failed, Json, Object, Run, Skill

MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
TURNS_SPENT: Final = "TURNS_SPENT"
"""This flow's own code: a role asked for tools more often than it may."""

_ENDS_WORK: Final = frozenset({"NEEDS_HUMAN", "CANCELLED", "LEDGER_BROKEN"})
"""What a role is not told, since it could do nothing about it."""
_NO_MESSAGE: Final = {
    "max_tokens": "the answer was cut off at the model's limit of tokens",
    "safety": "the model refused to answer",
}


@attrs.frozen
class Limits:
    """How often a run may rework, one role may ask its model, and one message may be malformed before it counts."""

    max_rework: int = 1
    max_turns: int = 12
    max_malformed: int = 1


class Conversation:
    """Hands *handoff* over to *role*, whose one `answer` is the message that its schema demands.

    A role that *acts* is offered the tools in scope; the calls that any other role asks for are not performed. One that
    *plans* is told what there is to act with.
    """

    def __init__(
        self, run: Run, role: str, handoff: Object, limits: Limits, *, acts: bool = False, plans: bool = False
    ) -> None:
        self.agent = run.agent(role)
        self._context = run.context
        self._handoff = {**handoff, "tools": _named(self.agent.tools())} if plans else handoff
        self._limits = limits
        self._acts = acts
        self._tools = self.agent.tools() if acts else []
        self._turns = 0
        self._made: list[tuple[str, str]] = []
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": _instructions(self.agent.instructions, run.skill)},
            {"role": "user", "content": _compact(self._handoff)},
        ]

    def answer(self, schema: str) -> dict[str, Any]:
        """Return the role's message.

        A malformed one is told to the role, which may answer again, at most `Limits.max_malformed` times. Raises
        `Failed`: ``MALFORMED_AGENT_MESSAGE`` after that, `TURNS_SPENT`, or what the model or the door failed with.
        """
        patience = self._limits.max_malformed
        while True:
            response = self._settle(schema)
            try:
                return self._message(schema, response)
            except Failed as failure:
                if failure.code != MALFORMED or patience < 1:
                    raise
                self._object(response, schema, failure)
            patience -= 1

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
        request: dict[str, Any] = {"messages": list(self._messages), "response_schema": schema}
        return self.agent.complete({**request, "tools": self._tools} if self._tools else request)

    def _use(self, call: Object) -> Json:
        self._made.append((call["name"], call["id"]))
        try:
            return self.agent.use(call)
        except Failed as failure:
            if failure.code in _ENDS_WORK:
                raise
            return {"error": {"code": failure.code, "message": str(failure)}}

    def _message(self, schema: str, response: Object) -> dict[str, Any]:
        try:
            message = self.agent.message(schema, response)
        except Failed as failure:
            raise _explained(failure, response) from None
        if self._acts:
            self._check_calls(message.get("tool_calls_made", []))
        return message

    def _check_calls(self, claimed: Sequence[str]) -> None:
        """Refuse a message that claims a call nobody asked for; a call is named ``name:id``, or by its name alone."""
        made = [f"{name}:{call_id}" for name, call_id in self._made]
        known = {*made, *(name for name, _ in self._made)}
        invented = [call for call in claimed if call not in known]
        if invented:
            self._context.note("calls.invented", {"role": self.agent.role, "invented": invented, "made": made})
            raise Failed(
                MALFORMED,
                f"tool_calls_made names {', '.join(invented)}; the calls made are: {', '.join(made) or 'none'}",
            )

    def _object(self, response: Object, schema: str, failure: Failed) -> None:
        """Tell the role what is wrong, with the hand-off again: the last user message is always the whole task."""
        self._say("assistant", response["text"])
        violation = f"your last message was refused; it has to be one JSON object that fits {schema}: {failure}"
        self._say("user", _compact({**self._handoff, "violation": violation}))

    def _say(self, role: str, content: str, **more: Any) -> None:
        self._messages.append({"role": role, "content": content, **more})


def _instructions(instructions: str, skill: Skill | None) -> str:
    if skill is None:
        return instructions
    return f"{instructions.rstrip()}\n\n# Skill: {skill.name}\n\n{skill.body.strip()}\n"


def _explained(failure: Failed, response: Object) -> Failed:
    """Say why there is no whole message, where the model's answer says so itself."""
    why = _NO_MESSAGE.get(response["finish_reason"])
    return Failed(failure.code, f"{why}: {failure}", retryable=failure.retryable) if why else failure


def _named(tools: Sequence[Object]) -> list[dict[str, Any]]:
    return [{"name": tool["name"], "description": tool.get("description", "")} for tool in tools]


def _compact(value: Json | Object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
