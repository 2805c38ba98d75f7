"""pydantic-ai: a turn of `BATCH` tool calls of a model that is a function; hooks before and after write two lines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.peers.work import BATCH, TEXT, Batch, Peer, Record


async def echo(text: str) -> dict[str, str]:
    """Echo a text back."""
    return {"text": text}


def _answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("echo", {"text": TEXT}) for _ in range(BATCH)])


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Batch]:
    record = Record(folder / "pydantic-ai.jsonl")

    async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        record("tool.call", args)
        return args

    async def after(ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
        record("tool.result", result)
        return result

    hooks = Hooks(before_tool_execute=before, after_tool_execute=after)
    agent = Agent(FunctionModel(_answer), tools=[echo], capabilities=[hooks])

    async def batch() -> None:
        assert (await agent.run("Echo it.")).output == "done"

    yield batch


PEERS = (Peer("pydantic-ai, calls of one turn", 12, 24, _opened, awaited=True),)
