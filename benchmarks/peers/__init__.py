"""Other projects at the same work, in one process and in turn with ours: `echo` with one text, called in batches.

Ours does all of it: schemas in and out, a hook before and one after, a chained record on a real file. What each peer
does, and leaves out, is said in its module. Their versions are pinned in ``requirements-peers.txt``.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.measures import Line, Measure, Note
from benchmarks.peers.work import BATCH, Batch, Peer, process_cpu
from benchmarks.workspaces import ARGS, session

_MODULES: Final = ("cpex", "langchain_core", "mcp", "pydantic_ai", "langgraph")
_ROUNDS: Final = 15
_SECONDS: Final = 0.02


def run() -> Iterator[Line]:
    """Measure every peer that is installed."""
    peers: list[Peer] = []
    for name in _MODULES:
        try:
            peers.extend(import_module(f"benchmarks.peers.through_{name}").PEERS)
        except ImportError as missing:
            yield Note(f"peer {name}: skipped, {missing}; pip install -r benchmarks/requirements-peers.txt")
    if peers:
        yield from asyncio.run(_measured(peers))


async def _measured(peers: list[Peer]) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="deedbook-peers-") as folder, session(observers=1, policy=False) as made:

        async def ours() -> None:
            for _ in range(BATCH):
                made.call("echo", ARGS)

        async with AsyncExitStack() as stack:
            batches = {peer.name: await stack.enter_async_context(peer.opened(Path(folder))) for peer in peers}
            times = await _in_turn({"ours": ours, **batches})
    lines: list[Line] = [
        Note(f"peers: one call of ours takes {median(times['ours']) * 1e6:.0f} µs of CPU here and now")
    ]
    for peer in peers:
        ratio = median(a / b for a, b in zip(times[peer.name], times["ours"], strict=True))
        lines.append(Measure(f"peer {peer.name}: CPU per call to ours", "at least", peer.least, ratio, peer.aim))
    return lines


async def _in_turn(batches: dict[str, Batch]) -> dict[str, list[float]]:
    """Return seconds of CPU (of all threads) for each call: one figure a round."""
    repeats = {name: max(1, round(_SECONDS / await _timed(batch, 2))) for name, batch in batches.items()}
    found: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for name, batch in batches.items():
            found[name].append(await _timed(batch, repeats[name]) / BATCH)
    return found


async def _timed(batch: Batch, times: int) -> float:
    begun = process_cpu()
    for _ in range(times):
        await batch()
    return (process_cpu() - begun) / times
