"""What the adapter of an agent framework adds to a call of the framework, beside the bare calls of the session."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.adapterside import FRAMEWORKS
from benchmarks.measures import Line, Measure, Skip, Value
from benchmarks.rounds import Figure, Plan

_ROOT: Final = Path(__file__).parents[1]
_ENVIRONMENTS: Final = _ROOT / ".venv-adapters"
_SECONDS: Final = 600


def run(plan: Plan) -> Iterator[Line]:
    """Measure each framework in the environment that `adapters/run-tests` makes; skip one that has none."""
    for name in FRAMEWORKS:
        python = _ENVIRONMENTS / f"deedbook-adapter-{name}" / "bin/python"
        if not python.exists():
            yield Skip(f"adapters: {name}: skipped, it has no environment; run: adapters/run-tests {name}")
            continue
        figures = _measure(python, name, quick=plan.quick)
        what = f"adapters: {name}: its hook around a {{}}, to bare `before` and `after`"
        yield Measure(what.format("tool"), "at most", 1.5, figures["tool"])
        yield Value(what.format("model"), figures["model"])  # it also converts the whole request and answer
        for kind in ("tool", "model"):
            yield Value(f"adapters: {name}: bare `before` and `after` of a {kind}", figures[f"bare {kind}"], "µs")


def _measure(python: Path, name: str, *, quick: bool) -> dict[str, Figure]:
    """Return the figures of one framework, measured in its environment."""
    command = [str(python), "-m", "benchmarks.adapterside", name, *(["--quick"] if quick else [])]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, check=False, text=True, timeout=_SECONDS)
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr[-2000:]}")
    return {each: Figure(**figure) for each, figure in json.loads(ended.stdout.splitlines()[-1]).items()}
