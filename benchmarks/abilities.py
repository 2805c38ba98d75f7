"""What a start costs with ten thousand abilities, beside reading the one file that it needs (T9)."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, Final

import orjson

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Figure, Plan
from deedbook import open_kernel
from deedbook.plugins.plugins import Catalogue, discover
from deedbook_testing.lab import OfferedDistribution

_MANY: Final = 10_000
_FEW: Final = 1_000
_ROUNDS: Final = 9


class InstalledDistribution(OfferedDistribution):
    """A distribution whose code has a digest, as one has that pip installed from a wheel."""

    def read_text(self, filename: str) -> str | None:
        return "module.py,,\n" if filename == "RECORD" else super().read_text(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(__file__)


def run(plan: Plan) -> Iterator[Line]:
    """Start a workspace cold, then warm, again and again, in turns with reading its charter as JSON."""
    many, few = plan.size(_MANY, 40), plan.size(_FEW, 4)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        root, catalogue = _workspace(Path(folder) / "many", many), _catalogue()
        cold = measure_cpu(lambda: start_kernel(root, catalogue))
        charter = next(root.glob(".deedbook/charters/*/charter.json"))
        rounds = [
            (
                measure_cpu(lambda: start_kernel(root, catalogue)),
                measure_cpu(lambda: orjson.loads(charter.read_bytes())),
            )
            for _ in range(plan.size(_ROUNDS, 1))
        ]
        small = _workspace(Path(folder) / "few", few)
        linear = cold / (measure_cpu(lambda: start_kernel(small, catalogue)) * many / few)
    ratio = Figure.of([warm / reading for warm, reading in rounds])
    yield Measure(f"{many:,} abilities: warm start to reading the charter as JSON", "at most", 3, ratio)
    yield Measure(f"{many:,} abilities: cold start to ten times that of {few:,}", "at most", 1.3, linear)
    times_warm = Figure.of([cold / warm for warm, _ in rounds])
    yield Value(f"{many:,} abilities: cold start to warm start", times_warm)


def start_kernel(root: Path, catalogue: Catalogue) -> None:
    """Open the kernel of a workspace, and close it."""
    open_kernel(root, catalogue=catalogue).close()


def measure_cpu(work: Callable[[], object]) -> float:
    """Return the CPU time of *work* in seconds."""
    begun = process_time()
    work()
    return process_time() - begun


def _catalogue() -> Catalogue:
    points = [
        ("deedbook.tools", "echo", "deedbook_tool_standard.echo:Echo"),
        ("deedbook.policy_kinds", "rules", "deedbook_policy_standard.rules:Rules"),
    ]
    return discover([InstalledDistribution("benchmarks", points)])


def _workspace(root: Path, abilities: int) -> Path:
    """Write that many abilities, a file each, with schemas that differ."""
    folder = root / ".system" / "registry" / "low-level"
    folder.mkdir(parents=True)
    rules = [{"match": {"effects": ["none", "read"]}, "then": "allow"}]
    settings = {"schema_version": "v1", "policies": {"baseline": {"kind": "rules", "rules": rules}}}
    (root / ".system" / "deedbook.yaml").write_bytes(orjson.dumps(settings))
    for number in range(abilities):
        (folder / f"a{number:05}.yaml").write_text(
            f"schema_version: v1\nid: area/a{number:05}\nsummary: Echo a text back, as number {number} does.\n"
            f"handler: {{tool: echo}}\ntags: [group-{number % 50}]\ntimeout_ms: 5000\n"
            f"routing_hints: {{intents: [word{number}, other{number % 100}], scopes: [text]}}\n"
            f"schema_in: {{type: object, properties: {{text: {{type: string, maxLength: {number % 500 + 1}}}}}}}\n"
        )
    return root
