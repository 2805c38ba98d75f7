"""Run the benchmarks named on the command line, or all: ``python -m benchmarks [name …]``."""

import argparse
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final

from benchmarks.measures import Line, Measure, table

NAMES: Final = (
    "hashing", "calls", "dispatch", "policies", "durable", "verifying", "rejudging", "starting", "abilities", "workers",
    "routing", "bridge", "mcp", "serve", "million", "counting", "checkpoints", "costs", "peers",
)  # fmt: skip


def main() -> int:
    """Print the table; return 1 if a figure is worse than its target by more than runs differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run; all of {', '.join(NAMES)} by default")
    names = parser.parse_args().names or NAMES
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    lines: list[Line] = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        run: Callable[[], Iterable[Line]] = import_module(f"benchmarks.{name}").run
        lines.extend(run())
    print("\n".join(table(lines)))
    failed = [line for line in lines if isinstance(line, Measure) and line.failed]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
