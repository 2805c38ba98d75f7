"""The agent of a phase: what the runner asks it, and how the runner performs its steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs

from deedbook import Failed, Object, Run
from deedbook.contract import Agent
from deedbook_flow_runcontext.conversation import NO_MESSAGE
from deedbook_flow_swe.services.steps import AgentTask, Step, next_step

NextStep: TypeAlias = Callable[[AgentTask, Sequence[Object]], Step]
"""Returns the step that follows a transcript."""

ANSWER: Final = "phase_answer_v1"
"""The schema of an agent's answer."""
MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
TURNS_SPENT: Final = "TURNS_SPENT"
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
    """An answer: its *value* fits `ANSWER`. *denials* are the calls that were denied on the way.

    *read* and *written* are the tokens that the provider states for all requests on the way; 0 if it counted none.
    """

    value: Mapping[str, Any]
    denials: tuple[Denial, ...] = ()
    read: int = 0
    written: int = 0


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
    """Performs the steps of an agent: requests to its model, and the calls of tools that the model asks for.

    *next_step* decides the steps. The default decides them in this process; `ask_process` asks the agent's own.
    """

    max_turns: int = 12
    max_malformed: int = 1
    next_step: NextStep = next_step

    def work(self, run: Run, prompt: Prompt, check: Callable[[Object], str]) -> AgentAnswer:  # noqa: ARG002
        """Return the answer of the model."""
        return _Talk(self, prompt, check).go()


def ask_process(run: Run, ability: str) -> NextStep:
    """Return a function that asks the process of an agent for its next step, with the tool of *ability*."""

    def ask(task: AgentTask, transcript: Sequence[Object]) -> Step:
        found: Any = run.call(ability, {"task": task.as_json(), "transcript": list(transcript)})
        return Step(**found)

    return ask


def build_messages(role: Agent, text: str) -> list[dict[str, Any]]:
    """Return the first messages to the model of *role*: its persona, and the prompt."""
    return [{"role": "system", "content": role.instructions}, {"role": "user", "content": text}]


class _Talk:
    """One conversation: each step is performed, and its reply added to the transcript."""

    def __init__(self, settings: ModelAgent, prompt: Prompt, check: Callable[[Object], str]) -> None:
        self._settings, self._prompt, self._check = settings, prompt, check
        self._agent = prompt.role
        self._turns = 0
        self._refused = 0
        self._unfinished = ""
        self._denials: list[Denial] = []
        self._read_tokens = self._written_tokens = 0

    def go(self) -> AgentAnswer:
        task = AgentTask(
            agent=self._agent.role,
            messages=build_messages(self._agent, self._prompt.text),
            tools=self._agent.tools(),
            response_schema=ANSWER,
        )
        transcript: list[dict[str, Any]] = []
        while True:
            step = self._settings.next_step(task, transcript)
            if step.kind == "answer":
                wrong, value = self._read(step.value)
                if not wrong:
                    return AgentAnswer(
                        value=value,
                        denials=tuple(self._denials),
                        read=self._read_tokens,
                        written=self._written_tokens,
                    )
                reply = self._refuse(wrong)
            else:
                reply = self._complete(step.value) if step.kind == "complete" else self._use(step.value)
            transcript.append({"step": step.as_json(), "reply": reply})

    def _read(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return what is wrong with the answer *text*, and its value."""
        if self._unfinished:
            return self._unfinished, {}
        try:
            value = self._agent.message(ANSWER, {"text": text})
        except Failed as failure:
            if failure.code != MALFORMED:
                raise
            return str(failure), {}
        return self._check(value), value

    def _refuse(self, wrong: str) -> dict[str, Any]:
        if self._refused >= self._settings.max_malformed:
            raise AgentFault(MALFORMED, wrong, tuple(self._denials))
        self._refused += 1
        return {"violation": wrong}

    def _complete(self, request: Object) -> dict[str, Any]:
        if self._turns >= self._settings.max_turns:
            why = f"the {self._agent.role} was not done after {self._turns} turns, which is the limit"
            raise AgentFault(TURNS_SPENT, why, tuple(self._denials))
        self._turns += 1
        try:
            response = self._agent.complete(request, tier=self._prompt.tier)
        except Failed as failure:
            if failure.code != MALFORMED:
                raise
            return self._refuse(str(failure))
        self._unfinished = NO_MESSAGE.get(response["finish_reason"], "")
        usage = response.get("usage") or {}
        self._read_tokens += usage.get("input_tokens", 0)
        self._written_tokens += usage.get("output_tokens", 0)
        return response

    def _use(self, call: Object) -> dict[str, Any]:
        try:
            return {"result": self._agent.use(call)}
        except Failed as failure:
            if failure.lost or failure.code in _ENDS_WORK:
                raise
            if failure.code in DENIALS:
                self._denials.append(Denial(ability=str(call["name"]), code=failure.code, reason=str(failure)))
            return {"error": {"code": failure.code, "message": str(failure)}}
