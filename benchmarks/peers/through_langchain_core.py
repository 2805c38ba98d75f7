"""langchain-core: a tool with an argument schema, and a callback that writes two lines; no hook can refuse."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import StructuredTool

from benchmarks.peers.work import BATCH, TEXT, Batch, Peer, Record


class Recorder(BaseCallbackHandler):
    """Writes a line when a tool begins and one when it ends."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        """Write the beginning."""
        self._record("tool.call", input_str)

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        """Write the end."""
        self._record("tool.result", output)


def echo(text: str) -> dict[str, str]:
    """Echo a text back."""
    return {"text": text}


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Batch]:
    tool = StructuredTool.from_function(echo)
    config: Any = {"callbacks": [Recorder(Record(folder / "langchain.jsonl"))]}

    async def batch() -> None:
        for _ in range(BATCH):
            assert tool.invoke({"text": TEXT}, config=config) == {"text": TEXT}

    yield batch


PEERS = (Peer("langchain-core", 6, 12, _opened, awaited=False),)
