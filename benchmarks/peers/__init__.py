"""Other projects at the same work, in one process and in turn with ours: `echo` with one text, called in batches.

Ours does all of it: schemas in and out, a hook before and one after, a chained record on a real file. What each peer
does, and leaves out, is said in its module. A peer that is awaited is compared with `acall`, another with `call`. The
versions are pinned in ``requirements-peers.txt``.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.measures import Line, Measure, Skip, Value
from benchmarks.peers.work import BATCH, Batch, Peer, process_cpu
from benchmarks.rounds import Plan, Times
from benchmarks.workspaces import ARGS, session

_MODULES: Final = ("cpex", "langchain_core", "mcp", "pydantic_ai", "langgraph")
_ROUNDS: Final = 15
_NANOSECONDS: Final = 20_000_000


def run(plan: Plan) -> Iterator[Line]:
    """Measure every peer that is installed."""
    peers: list[Peer] = []
    lacking = []
    for name in _MODULES:
        try:
            peers.extend(import_module(f"benchmarks.peers.through_{name}").PEERS)
        except ImportError as problem:
            lacking.append(f"{name} ({problem})")
    if lacking:
        why = f"{', '.join(lacking)}; pip install -r benchmarks/requirements-peers.txt"
        yield Skip(f"peers: skipped, cannot be imported: {why}")
    yield from asyncio.run(_measured(plan, peers))


async def _measured(plan: Plan, peers: list[Peer]) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="deedbook-peers-") as folder, session(observers=1, policy=False) as made:

        async def call() -> None:
            for _ in range(BATCH):
                made.call("echo", ARGS)

        async def acall() -> None:
            for _ in range(BATCH):
                await made.acall("echo", ARGS)

        async with AsyncExitStack() as stack:
            batches = {peer.name: await stack.enter_async_context(peer.opened(Path(folder))) for peer in peers}
            times = await _in_turns(plan, {"call": call, "acall": acall, **batches})
    lines: list[Line] = [
        Value("peers: one `call` of ours, with a hook after it: CPU", times.micros("call"), "µs"),
        Value("peers: one `acall` of ours: to `call`, CPU", times.ratio("acall", "call")),
    ]
    for peer in peers:
        ours = "acall" if peer.awaited else "call"
        what = f"peer {peer.name}: to `{ours}`, CPU"
        lines.append(Measure(what, "at least", peer.least, times.ratio(peer.name, ours), peer.aim))
    return lines


async def _in_turns(plan: Plan, batches: dict[str, Batch]) -> Times:
    """Return the CPU time (of all threads) of one call, in batches that take turns, every other round backwards."""
    wanted, rounds = plan.size(_NANOSECONDS, 1), plan.size(_ROUNDS, 2)
    repeats = {name: max(1, round(wanted / await _timed(batch, 2))) for name, batch in batches.items()}
    found: dict[str, list[float]] = {name: [] for name in batches}
    for turn in range(rounds):
        for name in list(batches) if turn % 2 == 0 else reversed(list(batches)):
            found[name].append(await _timed(batches[name], repeats[name]) / BATCH)
    return Times(found)


async def _timed(batch: Batch, times: int) -> float:
    begun = process_cpu()
    for _ in range(times):
        await batch()
    return (process_cpu() - begun) / times
