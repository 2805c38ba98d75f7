"""What a cycle costs beside the bare passes of its personas: branches, findings, policies, signals, the record."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.measures import Line, Measure
from benchmarks.rounds import Plan
from deedbook import Run
from deedbook_testing.lab import Lab

_PHASES: Final = 8
_PERSONAS: Final = 3
_ROUNDS: Final = 9
_FINDING: Final = {
    "id": "f1", "reviewer": "tool", "severity": "P2", "autofix_class": "manual", "confidence": 50,
    "title": "A title", "file": "a.py", "line": 1, "schema_version": "v1",
}  # fmt: skip


def run(plan: Plan) -> Iterator[Line]:
    """Run a cycle, and the same passes in a row in one run; a pass makes three calls and reports a finding."""
    phases = plan.size(_PHASES, 2)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        lab = _lab(Path(folder), phases)
        with lab.session("run") as made:
            works = {
                "cycle": lambda: made.call("workflow/bench", {"request": "look"}),
                "bare": lambda: made.run("bare passes"),
            }
            times = plan.once_each(works, rounds=_ROUNDS, clock=time.process_time_ns)
        assert lab.all("workflow.completed")[-1].payload["verdict"] == "done"
    what = f"a cycle of {phases} phases and {phases * _PERSONAS} passes: to its bare passes, CPU of the process"
    yield Measure(what, "at most", 3, times.ratio("cycle", "bare"))


def _lab(folder: Path, phases: int) -> Lab:
    lab = Lab(folder)
    lab.tool("echo", lambda args, ctx: args, effects="none")

    def examine(args: Any, run: Run) -> str:
        for number in range(3):
            run.call("echo", {"number": number})
        return json.dumps({"findings": [_FINDING]})

    def bare(args: Any, run: Run) -> str:
        for _ in range(phases * _PERSONAS):
            run.read_context(run.call("examine", {"prompt": "look"}))
        return "done"

    lab.flow("examine", examine)
    lab.flow("bare", bare)
    lab.skill("bare", allows="echo examine")
    names = [f"p{number}" for number in range(phases)]
    personas = [f"r{number}" for number in range(_PERSONAS)]
    _write(lab, "cycles/bench", id="bench", phases=names, entry_phase=names[0], policies=["sure"])
    rule = {"match": {"confidence": [50, 75, 100]}, "then": "allow"}
    _write(lab, "policies/sure", id="sure", kind="confidence-gating", rules=[rule])
    for name in names:
        asked = [f"reviewer/{each}" for each in personas]
        signal = "review_aggregate.p0_unresolved == 0"
        _write(lab, f"phases/{name}", id=name, advance_signal=signal, agents_invoked=asked, flow="examine")
    for name in personas:
        more = {"name": name, "description": "Looks.", "allowed-tools": ["echo"]}
        _write(lab, f"personas/reviewer/{name}", **more)
    return lab


def _write(lab: Lab, path: str, /, **front: Any) -> None:
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in {"schema_version": "v1", **front}.items())
    lab.write(f"workflows/{path}.md", f"---\n{lines}---\nLook.\n")
