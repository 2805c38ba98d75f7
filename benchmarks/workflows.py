"""What a start costs with 500 workflow files, beside reading what it needs: the charter, and the bytes of all files."""

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from benchmarks.abilities import InstalledDistribution, measure_cpu, start_kernel
from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Figure, Plan
from deedbook.plugins.plugins import Catalogue, discover

_CYCLES: Final = 50
_ROUNDS: Final = 9
_PER_CYCLE: Final = 10
"""A cycle, four phases, three personas and two artifacts."""
_POLICIES: Final = 10
"""One policy is for so many cycles."""


def run(plan: Plan) -> Iterator[Line]:
    """Start a workspace cold, then warm, again and again, in turns with reading its charter as JSON."""
    cycles = plan.size(_CYCLES, 2)
    files = f"{cycles * _PER_CYCLE:,} workflow files"
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        root, bare, catalogue = Path(folder) / "many", Path(folder) / "none", _catalogue()
        _write_workspace(root, cycles)
        _write_workspace(bare, 0)
        cold, _ = measure_cpu(lambda: start_kernel(root, catalogue)), start_kernel(bare, catalogue)
        charter = next(root.glob(".deedbook/charters/*/charter.json"))
        sources = sorted((root / ".system").rglob("*.md"))
        works: tuple[Callable[[], object], ...] = (
            lambda: start_kernel(root, catalogue),
            lambda: start_kernel(bare, catalogue),
            lambda: orjson.loads(charter.read_bytes()),
            lambda: [sha256(path.read_bytes()).digest() for path in sources],
        )
        rounds = [tuple(map(measure_cpu, works)) for _ in range(plan.size(_ROUNDS, 1))]
    least = Figure.of([warm / (empty + reading + hashing) for warm, empty, reading, hashing in rounds])
    what = "a start without, reading the charter and hashing the files"
    yield Measure(f"{files}: warm start to {what}", "at most", 2, least)
    index = Figure.of([warm / (empty + reading) for warm, empty, reading, _ in rounds])
    yield Value(f"{files}: warm start to a start without and reading the charter", index)
    yield Value(f"{files}: cold start to warm start", Figure.of([cold / warm for warm, *_ in rounds]))


def _catalogue() -> Catalogue:
    points = [
        ("deedbook.features", "workflows", "deedbook_flow_workflow.feature:WorkflowFeature"),
        ("deedbook.flows", "review", "deedbook_flow_review:Review"),
        ("deedbook.flows", "workflow", "deedbook_flow_workflow.flow:Workflow"),
        ("deedbook.flows", "workflow-artifact", "deedbook_flow_workflow.running.artifact_flow:WriteArtifact"),
        ("deedbook.policy_kinds", "rules", "deedbook_policy_standard.rules:Rules"),
        ("deedbook.tools", "echo", "deedbook_tool_standard.echo:Echo"),
        ("deedbook.tools", "file-write", "deedbook_tool_standard.writing:FileWrite"),
    ]
    return discover([InstalledDistribution("deedbook-flow-workflow", points)])


def _write_workspace(root: Path, cycles: int) -> None:
    """Write a workspace with that many cycles, each with files of its own."""
    abilities = {
        "echo": {"summary": "Echo a text back.", "handler": {"tool": "echo"}},
        "file-write": {"summary": "Write a file.", "handler": {"tool": "file-write"}},
        "review": {"summary": "Review.", "handler": {"flow": "review"}},
    }
    (root / ".system").mkdir(parents=True)
    (root / ".system" / "deedbook.yaml").write_bytes(orjson.dumps({"schema_version": "v1", "abilities": abilities}))
    for number in range(cycles):
        for path, text in _files(f"c{number:03}", f"g{number // _POLICIES:02}"):
            place = root / ".system" / "workflows" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"---\n{text}\n---\nWhat cycle {number} does.\n")


def _files(name: str, policy: str) -> Iterator[tuple[str, str]]:
    phases = [f"{name}-p{number}" for number in range(4)]
    head = "schema_version: v1\nid: "
    yield f"cycles/{name}.md", f"{head}{name}\nphases: [{', '.join(phases)}]\nentry_phase: {phases[0]}"
    rules = "kind: rules\nrules:\n  - {match: {effects: [none, read]}, then: allow}"
    yield f"policies/{policy}.md", f"{head}{policy}\n{rules}"
    for kind, schema in (("lesson", "learning_v1"), ("solution", "solution_v1")):
        more = f'pattern: "{{slug}}.md"\nfolder: out\nschema: {schema}'
        yield f"artifacts/{name}-{kind}-template.md", f"{head}{name}-{kind}\n{more}"
    for number, phase in enumerate(phases):
        signal = "advance_signal: review_aggregate.p0_unresolved == 0"
        who = f"agents_invoked: [reviewer/{name}-r{number % 3}]\npolicies: [{policy}]"
        writes = f"\nartifact: {name}-{('lesson', 'solution')[number % 2]}"
        yield f"phases/{phase}.md", f"{head}{phase}\n{signal}\n{who}{writes}"
    for persona in (f"{name}-r{number}" for number in range(3)):
        yield f"personas/reviewer/{persona}.md", f"name: {persona}\ndescription: Looks.\nallowed-tools: [echo]"
