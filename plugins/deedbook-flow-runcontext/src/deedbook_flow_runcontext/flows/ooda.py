"""The OODA loop: observe, orient, decide, act, reflect, until the reflection says that it is done.

Each phase is an ability, called with ``{goal, cycle, phases, reflections}``: the results of the earlier phases of this
cycle, and the reflections of the earlier cycles. The reflection is an object: ``done``, and as it likes ``score`` (a
number, more is better) and ``fingerprints`` (texts that name the state that was reached, such as failing tests).

The loop halts after ``max_generations`` cycles (GENERATIONS), if a set of fingerprints that was seen before returns
(OSCILLATION), and if a score is below the best so far (REGRESSION). Without fingerprints, the digest of the decision
and the result counts.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook import Failed, HandlerSpec, Host, Object, Run

from .modes import (
    PROMPT,
    ContextRecords,
    Records,
    ResultRecords,
    build_chain,
    build_clarification,
    build_report,
    describe_value,
)

NOTE: Final = "ooda_cycle"
"""The type of the record of one cycle."""
PHASES: Final = ("observe", "orient", "decide", "act", "reflect")

_SETTINGS: Final = {
    "type": "object",
    "required": ["act", "reflect"],
    "properties": {
        **{name: {"type": "string", "minLength": 1, "description": f"The ability for {name}."} for name in PHASES},
        "max_generations": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["state", "reason", "cycles"],
    "properties": {
        "state": {"enum": ["COMPLETED", "HALTED"]},
        "reason": {"type": "string"},
        "cycles": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}


@attrs.frozen
class OodaLoop:
    """The loop: the ability of each phase, and the most cycles. All state stands in the records."""

    abilities: Mapping[str, str]
    max_generations: int = 10

    def run(self, run: Run, goal: str, records: Records) -> str:
        """Run cycles until one is done; return why the loop halts, or nothing."""
        while True:
            earlier = records.read(NOTE)
            cycle = self._run_cycle(run, goal, earlier)
            records.write(NOTE, cycle)
            if cycle["done"]:
                return ""
            if halt := find_halt([*earlier, cycle], self.max_generations):
                return halt

    def _run_cycle(self, run: Run, goal: str, earlier: Sequence[Object]) -> dict[str, Any]:
        """Return the record of one cycle."""
        told = {"goal": goal, "cycle": len(earlier) + 1, "reflections": [each["reflect"] for each in earlier]}
        phases: dict[str, Any] = {}
        for phase, ability in self.abilities.items():
            phases[phase] = run.call(ability, {**told, "phases": dict(phases)})
        reflection = phases["reflect"]
        if not isinstance(reflection, dict) or not isinstance(reflection.get("done"), bool):
            raise Failed("REFLECTION_INVALID", f"{self.abilities['reflect']} gave no object with done, true or false")
        return {
            "cycle": told["cycle"],
            **phases,
            "done": reflection["done"],
            "score": _read_score(reflection),
            "fingerprints": _read_fingerprints(reflection, phases),
        }


def find_halt(cycles: Sequence[Object], most: int) -> str:
    """Return why the loop must halt after *cycles*, of which the last one is new; empty if it may go on."""
    *earlier, last = cycles
    scores = [each["score"] for each in earlier if each["score"] is not None]
    if last["score"] is not None and scores and last["score"] < max(scores):
        return f"REGRESSION: cycle {last['cycle']} has the score {last['score']}, below the best, {max(scores)}"
    same = [each["cycle"] for each in earlier if each["fingerprints"] == last["fingerprints"]]
    if same:
        return f"OSCILLATION: cycle {last['cycle']} came back to what cycle {same[0]} had reached"
    if len(cycles) >= most:
        return f"GENERATIONS: {len(cycles)} cycles were not enough; the most are {most}"
    return ""


def _read_score(reflection: Object) -> float | None:
    score = reflection.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise Failed("REFLECTION_INVALID", f"the score {score!r} is no number")
    return score


def _read_fingerprints(reflection: Object, phases: Object) -> list[str]:
    given = reflection.get("fingerprints")
    if given is None:
        reached = json.dumps([phases.get("decide"), phases["act"]], sort_keys=True).encode()
        return [sha256(reached).hexdigest()]
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise Failed("REFLECTION_INVALID", "fingerprints is no list of texts")
    return sorted({*given})


class _Ooda:
    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        abilities = {name: settings[name] for name in PHASES if name in settings}
        self._loop = OodaLoop(abilities, settings.get("max_generations", 10))


class Ooda(_Ooda):
    """The flow ``ooda``: COMPLETED if a cycle is done, HALTED with the reason; each cycle is a note ``ooda_cycle``."""

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> None:
        """Run the loop in the context."""
        context = run.context
        context.clarify(build_clarification(args["prompt"]))
        context.plan(build_chain(self._loop.abilities))
        context.begin_execution()
        records = ContextRecords(run)
        halt = self._loop.run(run, args["prompt"], records)
        if halt:
            context.halt(halt)
            return
        cycles = records.read(NOTE)
        calls = [f"{ability}:{each['cycle']}" for each in cycles for ability in self._loop.abilities.values()]
        output = describe_value(cycles[-1]["act"])
        context.verify(build_report(output, completed=list(self._loop.abilities), calls=calls))
        context.complete({"verdict": "pass", "cycles": len(cycles), "schema_version": "v1"})


class OodaResult(_Ooda):
    """The flow ``ooda-result``: returns ``{state, reason, cycles}`` and has no context."""

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, gives=_GIVES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Return the cycles, and why they ended."""
        records = ResultRecords()
        halt = self._loop.run(run, args["prompt"], records)
        return {"state": "HALTED" if halt else "COMPLETED", "reason": halt, "cycles": records.read(NOTE)}
