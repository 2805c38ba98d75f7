"""What 500 cards of agents add to a start, beside a start without them and beside reading their bytes."""

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from benchmarks.abilities import InstalledDistribution, measure_cpu, start_kernel
from benchmarks.measures import Line, Measure, Value
from benchmarks.processes import in_turns, python
from benchmarks.rounds import Figure, Plan
from deedbook.contract import AgentInfo
from deedbook.plugins.plugins import Catalogue, discover
from deedbook_flow_runcontext.agent_choice import AgentQuery

_CARDS: Final = 500
_ROUNDS: Final = 9
_CAPABILITIES: Final = ("run_sql", "http_request", "read_file", "write_file", "send_mail")


def run(plan: Plan) -> Iterator[Line]:
    """Start workspaces with cards and one without, in turns, in this process and as processes of their own."""
    cards = plan.size(_CARDS, 4)
    what = f"{cards:,} cards"
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        places = {name: Path(folder) / name for name in ("none", "bare", "whole")}
        _write_workspace(places["none"], 0)
        _write_workspace(places["bare"], cards, whole=False)
        _write_workspace(places["whole"], cards)
        catalogue = _catalogue()
        cold = {name: measure_cpu(lambda place=place: start_kernel(place, catalogue)) for name, place in places.items()}
        sources = sorted(path for path in (places["whole"] / ".system" / "agents").rglob("*") if path.is_file())
        works: tuple[Callable[[], object], ...] = (
            lambda: start_kernel(places["whole"], catalogue),
            lambda: start_kernel(places["none"], catalogue),
            lambda: [sha256(path.read_bytes()).digest() for path in sources],
        )
        rounds = [tuple(map(measure_cpu, works)) for _ in range(plan.size(_ROUNDS, 1))]
        starts = {
            name: python("-c", f"from deedbook import open_kernel; open_kernel({str(place)!r}).close()")
            for name, place in places.items()
        }
        _, cpu = in_turns(starts, plan.size(_ROUNDS, 1))
    text = f"{what}, each with a file of skills: a start as a process to one without"
    yield Measure(text, "at most", 1.1, cpu.ratio("bare", "none"))
    yield Value(
        f"{what}, with persona, skills and goals: a start as a process to one without", cpu.ratio("whole", "none")
    )
    added = Figure.of([(warm - empty) / hashing for warm, empty, hashing in rounds])
    yield Measure(f"{what}, the same: what they add to a warm start, to hashing their files", "at most", 3, added)
    yield Value(f"{what}, the same: cold start to warm start", Figure.of([cold["whole"] / warm for warm, *_ in rounds]))
    agents = [_describe(number) for number in range(cards)]
    query = AgentQuery(("run_sql", "skill_7"), "area")
    finding = Figure.of([measure_cpu(lambda: query.find(agents)) * 1e3 for _ in range(plan.size(_ROUNDS, 1))])
    yield Value(f"{what}: finding agents by two capabilities and a domain", finding, "ms")


def _catalogue() -> Catalogue:
    return discover(
        [InstalledDistribution("benchmarks", [("deedbook.tools", "echo", "deedbook_tool_standard.echo:Echo")])]
    )


def _write_workspace(root: Path, cards: int, *, whole: bool = True) -> None:
    """Write a workspace with that many agents: a card of about 125 tokens and skills; if *whole*, persona and goals."""
    abilities = {name: {"summary": f"Does {name}.", "handler": {"tool": "echo"}} for name in _CAPABILITIES}
    (root / ".system").mkdir(parents=True)
    (root / ".system" / "deedbook.yaml").write_bytes(orjson.dumps({"schema_version": "v1", "abilities": abilities}))
    named = "".join(f"  - {name}\n" for name in _CAPABILITIES)
    state = "  skills: skills.md\n" + ("  goals: goals.md\n" if whole else "")
    for number in range(cards):
        place = root / ".system" / "agents" / f"agent-{number:03}"
        place.mkdir(parents=True)
        head = f"identity: agent-{number:03}\ndomain: area-{number % 20} engineering\n\ncapabilities:\n{named}\n"
        (place / ".agent").write_text(f"{head}state:\n{state}\nbudget:\n  max_skills: 20\n  max_goals: 5\n")
        (place / "skills.md").write_text("- one\n- two\n")
        if whole:
            (place / "persona.md").write_text(f"You are agent {number}.\n" + "You work with care.\n" * 100)
            (place / "goals.md").write_text("- one\n")


def _describe(number: int) -> AgentInfo:
    names = frozenset({*_CAPABILITIES, f"skill_{number % 50}"})
    return AgentInfo(name=f"agent-{number:03}", domain=f"area {number % 20}", capabilities=names, abilities=names)
