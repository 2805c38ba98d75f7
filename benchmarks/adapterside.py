"""One framework for `benchmarks.adapters`, in its adapter's environment: ``python -m benchmarks.adapterside NAME``.

Prints figures as JSON: what the adapter adds to a run, beside the bare calls of the session.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.rounds import Plan, Work
from deedbook import Ok, Outcome, guard
from deedbook_guard import Conversation, Guard

CALLS: Final = 20
"""How many tools the model asks for in its first answer; its second one ends the run."""
_ROUNDS: Final = 15
_BATCH_NS: Final = 100_000_000
_SETTINGS: Final = """\
schema_version: v1
profiles: {local: {durability: os}}
agents:
  shop:
    kind: program
    unknown_tools: deny
    tools:
      send:
        effects: write
        schema_in: {type: object, required: [text], properties: {text: {type: string}}, additionalProperties: false}
policies:
  baseline:
    kind: rules
    match: {kind: [tool, model]}
    rules: [{match: {effects: [read]}, then: allow}]
    default: allow
"""


def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def pydantic_ai(governed: Guard | None) -> Work:
    """Return a run of an agent of Pydantic AI."""
    from deedbook_adapter_pydantic_ai import govern
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: list[Any], _info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("send", {"text": str(number)}) for number in range(CALLS)])

    agent = Agent(FunctionModel(answer), tools=[send], capabilities=[govern(governed)] if governed else [])
    loop = asyncio.new_event_loop()
    return lambda: loop.run_until_complete(agent.run("go"))


def langchain(governed: Guard | None) -> Work:
    """Return a run of an agent of LangChain."""
    from deedbook_adapter_langchain import govern
    from langchain.agents import create_agent
    from langchain.messages import AIMessage
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Model(BaseChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        @property
        def _llm_type(self) -> str:
            return "prepared"

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            calls = [{"name": "send", "args": {"text": str(number)}, "id": f"c{number}"} for number in range(CALLS)]
            answer = AIMessage("done") if len(messages) > 1 else AIMessage("", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=answer)])

    agent = create_agent(Model(), [send], middleware=[govern(governed)] if governed else [])
    return lambda: agent.invoke({"messages": [("user", "go")]})


FRAMEWORKS: Final[dict[str, Callable[[Guard | None], Work]]] = {"pydantic-ai": pydantic_ai, "langchain": langchain}


def bare(conversation: Conversation, requests: list[dict[str, Any]], answers: list[Any]) -> Work:
    """Return the calls of one run, by `Session.before` and `after` alone."""
    session = conversation.session
    calls = [("shop/send", {"text": str(number)}, f"sent {number}") for number in range(CALLS)]
    asked = [(conversation.model, request, answer) for request, answer in zip(requests, answers, strict=True)]

    def run() -> None:
        for ability, args, result in [*asked[:1], *calls, *asked[1:]]:
            permitted = session.before(ability, args)
            assert isinstance(permitted, Ok), permitted
            session.after(permitted.value, Outcome("result", result))

    return run


def main(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one framework; return the figures by name, times in microseconds."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        (Path(folder) / ".system").mkdir()
        (Path(folder) / ".system/deedbook.yaml").write_text(_SETTINGS)
        with guard("shop", workspace=folder) as governed:
            with_adapter, without = FRAMEWORKS[name](governed), FRAMEWORKS[name](None)
            alone = bare(governed.current, *_asked(with_adapter, governed))
            works = {"adapter": with_adapter, "framework": without, "bare": alone}
            works["both"] = lambda: (without(), alone())
            times = Plan(quick=quick).take_turns(works, clock=time.process_time_ns, rounds=_ROUNDS, batch_ns=_BATCH_NS)
    figures = {
        "ratio": times.less("framework").ratio("adapter", "both"),
        "added": times.added("adapter", "framework", CALLS + 2),
        "bare": times.micros("bare", CALLS + 2),
        "framework": times.micros("framework", CALLS + 2),
    }
    return {each: attrs.asdict(figure) for each, figure in figures.items()}


def _asked(run: Work, governed: Guard) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the requests of a run to its model, and the answers as they are recorded."""
    from deedbook.format.reader import read

    run()
    session = governed.current.id
    events = list(read(governed.workspace / ".deedbook/sessions" / session / ".events.jsonl"))
    requests = [dict(event.payload["request"]) for event in events if event.type == "llm.request"]
    return requests, [event.payload["response"] for event in events if event.type == "llm.response"]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], quick="--quick" in sys.argv)))
