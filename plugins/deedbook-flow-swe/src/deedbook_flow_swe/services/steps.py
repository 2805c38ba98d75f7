"""What an agent does next, computed from its task and from what was answered so far.

An agent of a phase is a sequence of steps: it asks its model, uses the tools that the model asks for, and answers. The
same function decides the steps inside the runner and in an agent's own process. It has no effects: the runner performs
each step through the door and adds the reply to the transcript.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

import attrs

from deedbook import Object
from deedbook.contract.hidden import show_hidden_json

AGENT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The form of an agent's name, which is also that of its inbox."""
COMPLETE: Final = "complete"
USE: Final = "use"
ANSWER: Final = "answer"

TASK_SCHEMA: Final[Object] = {
    "type": "object",
    "required": ["agent", "messages", "tools", "response_schema"],
    "properties": {
        "agent": {"type": "string", "pattern": f"^{AGENT_NAME.pattern}$"},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "tools": {"type": "array", "items": {"type": "object"}},
        "response_schema": {"type": "string", "minLength": 1},
    },
    "additionalProperties": False,
}
STEP_SCHEMA: Final[Object] = {
    "type": "object",
    "required": ["kind", "value"],
    "properties": {"kind": {"enum": [COMPLETE, USE, ANSWER]}, "value": {"type": ["object", "string"]}},
    "additionalProperties": False,
}
TRANSCRIPT_SCHEMA: Final[Object] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["step", "reply"],
        "properties": {"step": STEP_SCHEMA, "reply": {"type": "object"}},
        "additionalProperties": False,
    },
}


@attrs.frozen(kw_only=True)
class AgentTask:
    """The task of an agent: the first *messages*, the *tools* that it may use, and the schema of its answer."""

    agent: str
    messages: Sequence[Object]
    tools: Sequence[Object] = ()
    response_schema: str

    @classmethod
    def parse(cls, value: Object) -> Self:
        """Return the task; *value* matches `TASK_SCHEMA`."""
        return cls(**value)

    def as_json(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        return {
            "agent": self.agent,
            "messages": list(self.messages),
            "tools": list(self.tools),
            "response_schema": self.response_schema,
        }


@attrs.frozen
class Step:
    """One step: a request to the model, a call of a tool that the model asked for, or the answer, which is a text."""

    kind: Literal["complete", "use", "answer"]
    value: Any

    def as_json(self) -> dict[str, Any]:
        """Return what `STEP_SCHEMA` describes."""
        return {"kind": self.kind, "value": self.value}


def next_step(task: AgentTask, transcript: Sequence[Object]) -> Step:
    """Return the next step.

    *transcript* has the steps so far, each with its reply: the model's response (``completion_response_v2``) to a
    request, ``{result}`` or ``{error}`` to a call, and ``{violation}`` to an answer that was refused, or to a request
    whose response could not be read.
    """
    conversation = _Conversation(task)
    for entry in transcript:
        conversation.add(entry["step"], entry["reply"])
    return conversation.decide()


class _Conversation:
    """The messages after a transcript, the calls that are still to be made, and the text of the last response."""

    def __init__(self, task: AgentTask) -> None:
        self._task = task
        self._messages: list[Object] = list(task.messages)
        self._calls: list[Object] = []
        self._text: str | None = None

    def add(self, step: Object, reply: Object) -> None:
        if step["kind"] == COMPLETE and "violation" not in reply:
            self._add_response(reply)
        elif step["kind"] == USE:
            self._calls.pop(0)
            self._say("tool", _compact(reply.get("result", reply)), tool_call_id=step["value"]["id"])
        else:
            self._text = None
            asked = self._task.messages[-1]["content"]
            self._say("user", f"{asked}\n\nYour last answer was refused: {reply['violation']}")

    def decide(self) -> Step:
        if self._calls:
            return Step("use", self._calls[0])
        if self._text is not None:
            return Step("answer", self._text)
        request: dict[str, Any] = {"messages": self._messages, "response_schema": self._task.response_schema}
        return Step("complete", {**request, "tools": list(self._task.tools)} if self._task.tools else request)

    def _add_response(self, response: Object) -> None:
        if self._task.tools and response["finish_reason"] == "tool_use" and response["tool_calls"]:
            self._calls = list(response["tool_calls"])
            self._say("assistant", response["text"], tool_calls=self._calls[:])
        else:
            self._text = response["text"]
            self._say("assistant", self._text)

    def _say(self, role: str, content: Any, **more: Any) -> None:
        self._messages.append({"role": role, "content": content, **more})


def _compact(value: Mapping[str, Any] | Any) -> str:
    return show_hidden_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
