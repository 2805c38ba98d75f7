"""The agent of a phase: what the runner asks it, and the implementation that talks to its model in this process."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import attrs

from deedbook import Failed, Json, Object, Run
from deedbook.contract import Agent

ANSWER: Final = "phase_answer_v1"
"""The schema of an agent's answer."""
MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
TURNS_SPENT: Final = "TURNS_SPENT"
AGENT_FAULTS: Final = frozenset({MALFORMED, TURNS_SPENT})
"""The codes of failures that are the agent's own: they block its phase, and do not end the task."""
DENIALS: Final = frozenset({"TOOL_NOT_ALLOWED", "GATE_DENIED", "PATH_REFUSED", "TOOL_DENIED"})
"""The codes with which the door and the host deny a call."""
_ENDS_WORK: Final = frozenset({"APPROVAL_REFUSED", "NEEDS_HUMAN", "CANCELLED", "LEDGER_BROKEN"})


@attrs.frozen(kw_only=True)
class Prompt:
    """What an agent is asked: the *text*, which goes to a model of *tier*. *role* is the agent inside its branch."""

    role: Agent
    text: str
    tier: str


@attrs.frozen(kw_only=True)
class Denial:
    """A call of an agent that was denied: the *ability*, the *code* and the *reason*."""

    ability: str
    code: str
    reason: str


@attrs.frozen(kw_only=True)
class AgentAnswer:
    """An answer: its *value* fits `ANSWER`. *denials* are the calls that were denied on the way."""

    value: Mapping[str, Any]
    denials: tuple[Denial, ...] = ()


class AgentFault(Exception):  # noqa: N818 - it names what happened
    """An agent that gave no valid answer: why, and the calls that were denied on the way."""

    def __init__(self, code: str, reason: str, denials: tuple[Denial, ...] = ()) -> None:
        super().__init__(reason)
        self.code, self.denials = code, denials


class PhaseAgent(Protocol):
    """Answers the prompt of a phase inside its branch, whose limits hold for all that it does."""

    def work(self, run: Run, prompt: Prompt, check: Callable[[Object], str]) -> AgentAnswer:
        """Return the answer to *prompt*; *check* says what is wrong with an answer that fits its schema, or ``""``.

        Raises `AgentFault` if there is no valid answer, and `Failed` if the model or the door fails.
        """


@attrs.frozen
class ModelAgent:
    """Asks the model of the role in this process, and performs the calls of tools that the model asks for."""

    max_turns: int = 12
    max_malformed: int = 1

    def work(self, run: Run, prompt: Prompt, check: Callable[[Object], str]) -> AgentAnswer:  # noqa: ARG002
        """Return the answer of the model."""
        return _Talk(self, prompt).go(check)


def build_messages(role: Agent, text: str) -> list[dict[str, Any]]:
    """Return the first messages to the model of *role*: its persona, and the prompt."""
    return [{"role": "system", "content": role.instructions}, {"role": "user", "content": text}]


class _Talk:
    """One conversation."""

    def __init__(self, limits: ModelAgent, prompt: Prompt) -> None:
        self._limits, self._prompt = limits, prompt
        self._agent = prompt.role
        self._tools = self._agent.tools()
        self._turns = 0
        self._denials: list[Denial] = []
        self._messages = build_messages(prompt.role, prompt.text)

    def go(self, check: Callable[[Object], str]) -> AgentAnswer:
        for left in range(self._limits.max_malformed, -1, -1):
            response = self._settle()
            wrong, value = self._read(response, check)
            if not wrong:
                return AgentAnswer(value=value, denials=tuple(self._denials))
            if not left:
                raise AgentFault(MALFORMED, wrong, tuple(self._denials))
            self._say("assistant", response["text"])
            self._say("user", f"{self._prompt.text}\n\nYour last answer was refused: {wrong}")
        raise AssertionError

    def _read(self, response: Object, check: Callable[[Object], str]) -> tuple[str, dict[str, Any]]:
        try:
            value = self._agent.message(ANSWER, response)
        except Failed as failure:
            if failure.code != MALFORMED:
                raise
            return str(failure), {}
        return check(value), value

    def _settle(self) -> dict[str, Any]:
        """Ask the model until it wants no more tools; return its last response."""
        while True:
            response = self._complete()
            if not (self._tools and response["finish_reason"] == "tool_use" and response["tool_calls"]):
                return response
            self._say("assistant", response["text"], tool_calls=response["tool_calls"])
            for call in response["tool_calls"]:
                self._say("tool", json.dumps(self._use(call), ensure_ascii=False), tool_call_id=call["id"])

    def _complete(self) -> dict[str, Any]:
        if self._turns >= self._limits.max_turns:
            why = f"the {self._agent.role} was not done after {self._turns} turns, which is the limit"
            raise AgentFault(TURNS_SPENT, why, tuple(self._denials))
        self._turns += 1
        request: dict[str, Any] = {"messages": list(self._messages), "response_schema": ANSWER}
        if self._tools:
            request["tools"] = self._tools
        return self._agent.complete(request, tier=self._prompt.tier)

    def _use(self, call: Object) -> Json:
        try:
            return self._agent.use(call)
        except Failed as failure:
            if failure.lost or failure.code in _ENDS_WORK:
                raise
            if failure.code in DENIALS:
                self._denials.append(Denial(ability=str(call["name"]), code=failure.code, reason=str(failure)))
            return {"error": {"code": failure.code, "message": str(failure)}}

    def _say(self, role: str, content: str, **more: Any) -> None:
        self._messages.append({"role": role, "content": content, **more})
