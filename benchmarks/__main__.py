"""Run the benchmarks named on the command line, or all but those that are run only by name."""

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from benchmarks.measures import Line
    from benchmarks.rounds import Plan

BENCHMARKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hashing": "canonical bytes and SHA-256, beside orjson, json.dumps and rfc8785",
        "validation": "schema validation by fastjsonschema and jsonschema-rs, small and large, valid and invalid",
        "dispatch": "asking hooks, beside pluggy",
        "calls": "a governed call, beside the least that writes as much, structlog, and careless code",
        "policies": "policies about calls and findings, and signals, beside plain functions",
        "durable": "what one sync of the disk costs, and how threads share syncs",
        "verifying": "verification of a large ledger, beside parsing its lines",
        "rejudging": "judging recorded calls again, beside reading and parsing them",
        "starting": "importing Deedbook, in time and memory, beside its required packages and other projects",
        "commands": "the command line as whole processes, installed from wheels, beside the imports it needs",
        "abilities": "opening a workspace of 10,000 abilities, beside reading its charter",
        "workflows": "opening a workspace of 500 workflow files, beside reading its charter and its files",
        "cards": "opening a workspace of 500 agents with cards, beside one without, and finding agents by their cards",
        "cycles": "a cycle of 8 phases and 24 passes of personas, beside the bare passes",
        "workers": "programs asked while they are kept, or run once, beside starting them",
        "pipelines": "phases of a pipeline beside their calls alone, and with many files beside with few",
        "sandbox": "a program in the sandbox, beside the same program under the supervisor alone",
        "routing": "ranking 10,000 abilities for a prompt, beside one search of their texts",
        "compiling": "compiling a task against 1,000 skills, beside a choice among ten; validating 10,000 steps",
        "runs": "transitions, contexts, branches and resumed runs, beside appends, reading and plain calls",
        "bridge": "the client that a coding agent's hooks start, beside an empty Python",
        "adapters": "what adapters add to a call of their frameworks, beside bare `before` and `after`",
        "mcp": "a call over MCP, beside the same call through a bare proxy",
        "serve": "200 sessions at once in one runtime, beside one session alone",
        "counting": "`deedbook stats` over a large ledger, beside parsing its lines",
        "checkpoints": "what a signed log costs calls, and how its cost grows",
        "costs": "what each choice in YAML costs: the table of docs/costs.md",
        "peers": "other projects at the same work as a governed call",
        "models": "the model of the provider local, beside llama.cpp with the same weights",
        "million": "a ledger of a million events: verifying, appending, opening, proofs",
    }
)
"""Every benchmark, and what it measures."""
BY_NAME: Final = frozenset({"million"})
"""What is run only by name: it takes ten minutes, and keeps 660 MiB in the user's cache folder."""

_NEEDED: Final = ("deedbook", "deedbook_testing", "deedbook_tool_standard", "deedbook_hook_standard")
_COMPARED: Final = (
    "orjson", "fastjsonschema", "jsonschema-rs", "pluggy", "rfc8785", "structlog", "jsonschema", "cel-expr-python",
    "mcp", "cpex", "langchain-core", "pydantic-ai-slim", "langgraph", "langgraph-checkpoint-sqlite",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if a figure misses its target by more than runs differ, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; --list shows them")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and end")
    parser.add_argument("--quick", action="store_true", help="only show that they run: the figures mean nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results to FILE, too")
    asked = parser.parse_args(argv)
    if asked.list:
        print("\n".join(_listing()))
        return 0
    if unknown := [name for name in asked.names if name not in BENCHMARKS]:
        return _misused(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if lacking := [name for name in _NEEDED if find_spec(name) is None]:
        return _misused(f"{', '.join(lacking)} cannot be imported; run, in this folder: pip install . plugins/*")
    names = list(dict.fromkeys(asked.names)) or [name for name in BENCHMARKS if name not in BY_NAME]
    with ExitStack() as held:
        try:
            file = held.enter_context(asked.json.open("w", encoding="utf-8")) if asked.json else None
        except OSError as problem:
            return _misused(f"{asked.json} cannot be written: {problem.strerror}")
        return _run(names, file, quick=asked.quick)


def _listing() -> Iterable[str]:
    for name, what in BENCHMARKS.items():
        yield f"{name:12} {what}{' (only by name)' if name in BY_NAME else ''}"


def _misused(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 2


def _run(names: Sequence[str], file: TextIO | None, *, quick: bool) -> int:
    from benchmarks.measures import Measure, as_json
    from benchmarks.rounds import Plan

    before, rows, failed = os.getloadavg(), [], False
    if quick:
        print("Quick forms: they show that everything runs; their figures mean nothing.")
    for name in names:
        lines, broken = _lines(name, Plan(quick=quick))
        rows += [as_json(name, line) for line in lines]
        missed = any(line.failed for line in lines if isinstance(line, Measure))
        failed = failed or broken or (missed and not quick)
    if file is not None:
        results = {**_circumstances(quick, before), "rows": rows}
        json.dump(results, file, ensure_ascii=False, indent=1)
    return 1 if failed else 0


def _lines(name: str, plan: "Plan") -> "tuple[list[Line], bool]":
    """Run one benchmark and print its table; say whether it broke. What it found before that is kept."""
    from benchmarks.measures import Note, table

    print(f"{name} …", file=sys.stderr, flush=True)
    lines: list[Line] = []
    broken = False
    try:
        run: Callable[[Plan], Iterable[Line]] = import_module(f"benchmarks.{name}").run
        for line in run(plan):
            lines.append(line)  # noqa: PERF402 - what came before a failure is kept
    except Exception as problem:
        traceback.print_exc()
        lines.append(Note(f"{name}: FAILED, {type(problem).__name__}: {problem}"))
        broken = True
    print(f"\n## {name}: {BENCHMARKS[name]}\n")
    print("\n".join(table(lines, verdicts=not plan.quick)), flush=True)
    return lines, broken


def _circumstances(quick: bool, before: tuple[float, float, float]) -> dict[str, Any]:
    """Return what the figures depend on, without anything that names the machine."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": {"before": before, "after": os.getloadavg()},
        "packages": {name: version for name in _COMPARED if (version := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
