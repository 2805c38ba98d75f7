"""LangGraph: a graph of one tool node, run once a call, without a checkpointer and with one in SQLite; no hooks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from benchmarks.peers.through_langchain_core import echo
from benchmarks.peers.work import BATCH, TEXT, Batch, Peer

_MESSAGE = AIMessage("", tool_calls=[{"name": "echo", "args": {"text": TEXT}, "id": "1", "type": "tool_call"}])


def _graph(**options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([echo]))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(**options)


@asynccontextmanager
async def _plain(_folder: Path) -> AsyncIterator[Batch]:
    graph = _graph()

    async def batch() -> None:
        for _ in range(BATCH):
            assert TEXT in graph.invoke({"messages": [_MESSAGE]})["messages"][-1].content

    yield batch


@asynccontextmanager
async def _with_sqlite(folder: Path) -> AsyncIterator[Batch]:
    with SqliteSaver.from_conn_string(str(folder / "langgraph.sqlite")) as saver:
        graph, threads = _graph(checkpointer=saver), count()

        async def batch() -> None:
            for _ in range(BATCH):
                config = {"configurable": {"thread_id": str(next(threads))}}
                assert TEXT in graph.invoke({"messages": [_MESSAGE]}, config)["messages"][-1].content

        yield batch


PEERS = (
    Peer("langgraph", 40, 78, _plain, awaited=False),
    Peer("langgraph with SqliteSaver", 100, 200, _with_sqlite, awaited=False),
)
