"""One framework for `benchmarks.adapters`, in its adapter's environment: ``python -m benchmarks.adapterside NAME``.

Prints figures as JSON: what the hooks of the adapter cost, beside the bare calls of the session.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.rounds import Plan, Work
from deedbook import Ok, Outcome, Session, guard
from deedbook_guard import Guard

CALLS: Final = 20
"""How many calls a batch has."""
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


@attrs.frozen
class Case:
    """The hooks of an adapter, called with what the framework gives them and with a handler that does nothing.

    *tool* and *model* make one call each; coroutines run in the same loop as the bare calls.
    """

    tool: Callable[[], Any]
    model: Callable[[], Any]
    asynchronous: bool


def pydantic_ai(governed: Guard) -> Case:
    """Return the hooks for Pydantic AI, with the arguments of a real run."""
    from deedbook_adapter_pydantic_ai import govern
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    usage = RequestUsage(input_tokens=7, output_tokens=3)
    asking = ModelResponse(parts=[ToolCallPart("send", {"text": "a"})], model_name="prepared", usage=usage)

    def answer(messages: list[Any], _info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart("done")]) if len(messages) > 1 else asking

    async def perform(_args: Any) -> str:
        return "sent a"

    async def ask(_context: Any) -> ModelResponse:
        return asking

    capability = govern(governed)
    agent = Agent(FunctionModel(answer), tools=[send], capabilities=[capability])
    with _recorded(type(capability), "wrap_tool_execute", "wrap_model_request") as given:
        agent.run_sync("go")
    tool, model = given["wrap_tool_execute"], given["wrap_model_request"]
    return Case(
        lambda: capability.wrap_tool_execute(*tool.args, **{**tool.named, "handler": perform}),
        lambda: capability.wrap_model_request(*model.args, **{**model.named, "handler": ask}),
        asynchronous=True,
    )


def langchain(governed: Guard) -> Case:
    """Return the hooks for LangChain, with the arguments of a real run."""
    from deedbook_adapter_langchain import govern
    from langchain.agents import create_agent
    from langchain.agents.middleware import ModelResponse
    from langchain.messages import AIMessage, ToolMessage
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    usage: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    asking = AIMessage("", tool_calls=[{"name": "send", "args": {"text": "a"}, "id": "c1"}], usage_metadata=usage)
    sent, asked = ToolMessage("sent a", tool_call_id="c1"), ModelResponse(result=[asking])
    middleware = govern(governed)
    with _recorded(type(middleware), "wrap_tool_call", "wrap_model_call") as given:
        agent = create_agent(Model(messages=iter([asking, AIMessage("done")])), [send], middleware=[middleware])
        agent.invoke({"messages": [("user", "go")]})
    tool, model = given["wrap_tool_call"].args[0], given["wrap_model_call"].args[0]
    return Case(
        lambda: middleware.wrap_tool_call(tool, lambda _: sent),
        lambda: middleware.wrap_model_call(model, lambda _: asked),
        asynchronous=False,
    )


FRAMEWORKS: Final[dict[str, Callable[[Guard], Case]]] = {"pydantic-ai": pydantic_ai, "langchain": langchain}


@attrs.frozen
class Given:
    """The arguments of a call."""

    args: tuple[Any, ...]
    named: dict[str, Any]


@contextmanager
def _recorded(owner: type[Any], *names: str) -> Iterator[dict[str, Given]]:
    """Record the arguments of the first call of each method."""
    originals = {name: getattr(owner, name) for name in names}
    given: dict[str, Given] = {}

    def record(name: str) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **named: Any) -> Any:
            given.setdefault(name, Given(args, named))
            return originals[name](self, *args, **named)

        return called

    try:
        for name in names:
            setattr(owner, name, record(name))
        yield given
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)


def bare(session: Session, ability: str, args: Any, result: Any, *, asynchronous: bool) -> Callable[[], Any]:
    """Return one bare call of the session: `before` and `after`, or their coroutine forms."""
    outcome = Outcome("result", result)

    def call() -> None:
        opened = session.before(ability, args)
        assert isinstance(opened, Ok), opened
        session.after(opened.value, outcome)

    async def acall() -> None:
        opened = await session.abefore(ability, args)
        assert isinstance(opened, Ok), opened
        await session.aafter(opened.value, outcome)

    return acall if asynchronous else call


def main(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one framework; return the figures by name, times in microseconds."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        (Path(folder) / ".system").mkdir()
        (Path(folder) / ".system/deedbook.yaml").write_text(_SETTINGS)
        with guard("shop", workspace=folder) as governed:
            case = FRAMEWORKS[name](governed)
            request, answer = _asked(governed)
            session = governed.current.session
            works = {
                "tool": case.tool,
                "model": case.model,
                "bare tool": bare(session, "shop/send", {"text": "a"}, "sent a", asynchronous=case.asynchronous),
                "bare model": bare(session, "shop/model", request, answer, asynchronous=case.asynchronous),
            }
            loop = asyncio.new_event_loop()
            batches = {each: _batch(work, loop if case.asynchronous else None) for each, work in works.items()}
            times = Plan(quick=quick).take_turns(batches, clock=time.process_time_ns)
            loop.close()
    figures = {each: times.ratio(each, f"bare {each}") for each in ("tool", "model")}
    figures |= {f"bare {each}": times.micros(f"bare {each}", CALLS) for each in ("tool", "model")}
    return {each: attrs.asdict(figure) for each, figure in figures.items()}


def _batch(work: Callable[[], Any], loop: asyncio.AbstractEventLoop | None) -> Work:
    """Return a batch of calls, one after the other; coroutines in *loop*."""

    async def all_of_them() -> None:
        for _ in range(CALLS):
            await work()

    def each_of_them() -> None:
        for _ in range(CALLS):
            work()

    return each_of_them if loop is None else lambda: loop.run_until_complete(all_of_them())


def _asked(governed: Guard) -> tuple[Any, Any]:
    """Return the first request of the run to its model, and the answer, as they are recorded."""
    from deedbook.format.reader import read

    events = list(read(governed.workspace / ".deedbook/sessions" / governed.current.id / ".events.jsonl"))
    requests = [event.payload["request"] for event in events if event.type == "llm.request"]
    answers = [event.payload["response"] for event in events if event.type == "llm.response"]
    return requests[0], answers[0]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], quick="--quick" in sys.argv)))
