"""The run of a cycle: one phase after the other, until a signal, a bound, a hook or the last phase ends it.

1. Hooks of ``WorkflowStart`` are asked; ``workflow.started`` is recorded, or ``workflow.aborted`` if they refuse.
2. A phase runs: its personas side by side, their findings are merged, policies decide in order.
3. ``halt_signal`` aborts; ``exit_conditions.done`` ends; with ``advance_signal`` the cycle goes on: hooks of
   ``PhaseAdvance`` are asked, ``workflow.phase_advanced`` is recorded, and the next phase runs.
4. Without ``advance_signal`` the phase runs again, as long as the bounds and the policies about generations allow it.
5. The verdict is recorded, ``workflow.completed`` (done, halted) or ``workflow.aborted``, and ``WorkflowComplete``
   is fired.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from deedbook import Failed, Object, Run
from deedbook.format.schema import foreign
from deedbook_flow_workflow.aggregate import fingerprint, grade
from deedbook_flow_workflow.artifacts import make_slug
from deedbook_flow_workflow.definition import GENERATION, NOTE, Definition, Phase

from .events import ABORT, ABORTED, ADVANCED, COMPLETED, DONE, HALTED, STARTED
from .judgement import Judgement
from .phase_run import Material, PhaseOutcome, PhaseRun
from .signal_set import SignalSet

_LONGEST: Final = 2000


@attrs.frozen
class Ending:
    """How a cycle ends: its *verdict*, and the *reason*."""

    verdict: str
    reason: str


@attrs.define
class Progress:
    """Where a cycle stands. *generation* counts the runs of the *phase* in a row, *phase_runs* those of all phases."""

    phase: str
    generation: int = 1
    phase_runs: int = 1
    given: Object | None = None
    authors: frozenset[str] = frozenset()
    earlier: Object | None = None
    history: list[dict[str, Any]] = attrs.field(factory=list)
    visited: list[str] = attrs.field(factory=list)
    written: dict[str, str] = attrs.field(factory=dict)
    blocked: str = ""

    def move(self, phase: str) -> None:
        """Go on to *phase*."""
        self.phase, self.generation, self.earlier, self.history, self.blocked = phase, 1, None, [], ""


class CycleRun:
    """Runs a cycle once; all that lasts is recorded by *run*."""

    def __init__(self, run: Run, definition: Definition, signals: SignalSet) -> None:
        self._run, self._definition, self._signals = run, definition, signals
        self._cycle = definition.cycle
        self._progress = Progress(self._cycle.entry_phase)
        self._request = ""
        self._started = ""

    def go(self, request: str) -> None:
        """Take *request* through the phases."""
        self._request = self._begin(self._ask_to_start(request))
        try:
            ending = self._run_phases()
        except Failed as failure:
            if failure.code != "LEDGER_BROKEN":
                self._record_end(Ending(ABORT, f"{failure.code}: {failure}"))
            raise
        self._record_end(ending)
        self._end_context(ending)

    # --- begin and end ------------------------------------------------------------------------------------------------

    def _ask_to_start(self, request: str) -> str:
        """Return the request as hooks left it; a refusal is recorded, and raised as `Failed`."""
        try:
            return self._fire_start(request)
        except Failed as failure:
            if failure.code in ("GATE_DENIED", "SCHEMA_VIOLATION"):
                reason = f"{failure.code}: {failure}"[:_LONGEST]
                self._run.record(ABORTED, {"cycle_id": self._cycle.id, "reason": reason})
            raise

    def _fire_start(self, request: str) -> str:
        run, cycle = self._run, self._cycle
        subject = {"cycle_id": cycle.id, "session_id": run.session, "mode": run.mode, "request": request}
        left = run.fire("WorkflowStart", subject)
        changed = sorted(key for key in {*left, *subject} if key != "request" and left.get(key) != subject.get(key))
        if changed or not isinstance(left["request"], str) or not left["request"]:
            what = ", ".join(changed) or "request, to something that is no text"
            raise Failed(
                "SCHEMA_VIOLATION", f"a hook of WorkflowStart changed {what}; it may change the text of request"
            )
        return str(left["request"])

    def _begin(self, request: str) -> str:
        run, cycle = self._run, self._cycle
        context = run.context
        context.clarify({"intent": request, "cycle_id": cycle.id, "schema_version": "v1"})
        steps = [self._describe(self._definition.phases[name]) for name in cycle.phases]
        context.plan({"steps": steps, "risks": [], "needs_advisor": False, "schema_version": "v1"})
        context.begin_execution()
        self._started = run.now()
        run.record(STARTED, {"cycle_id": cycle.id, "session_id": run.session, "entry_phase": cycle.entry_phase})
        return request

    def _record_end(self, ending: Ending) -> None:
        cycle = self._cycle.id
        if ending.verdict == ABORT:
            self._run.record(ABORTED, {"cycle_id": cycle, "reason": ending.reason[:_LONGEST]})
        else:
            self._run.record(COMPLETED, {"cycle_id": cycle, "verdict": ending.verdict})
        subject = {"cycle_id": cycle, "verdict": ending.verdict, "reason": ending.reason[:_LONGEST]}
        self._run.fire("WorkflowComplete", subject)

    def _end_context(self, ending: Ending) -> None:
        context, visited = self._run.context, self._progress.visited
        if ending.verdict == DONE:
            text = f"{self._cycle.title}: done. {ending.reason}"
            done = list(dict.fromkeys(visited))
            report = {"output": text, "steps_completed": done, "tool_calls_made": [], "schema_version": "v1"}
            context.verify(report)
            context.complete({"verdict": "pass", "reason": ending.reason, "schema_version": "v1"})
        elif ending.verdict == HALTED:
            context.halt(f"halted: {ending.reason}"[:_LONGEST])
        else:
            context.fail(f"aborted: {ending.reason}"[:_LONGEST])

    # --- phases -------------------------------------------------------------------------------------------------------

    def _run_phases(self) -> Ending:
        ending = None
        while ending is None:
            phase = self._definition.phases[self._progress.phase]
            ending = self._find_bound() or self._run_phase(phase)
        return ending

    def _find_bound(self) -> Ending | None:
        """Return the ending if another run of a phase would exceed a bound of the cycle."""
        now, cycle = self._progress, self._cycle
        if now.generation > cycle.max_generations:
            why = f"{now.phase} ran {cycle.max_generations} times in a row, the most that max_generations allows"
        elif now.phase_runs > cycle.max_phase_runs:
            why = f"{cycle.max_phase_runs} phases ran, the most that max_phase_runs allows"
        else:
            return None
        return Ending(HALTED, self._with_block(why))

    def _with_block(self, why: str) -> str:
        """Return *why* the cycle is halted, and what kept its last run from going on."""
        blocked = self._progress.blocked
        return f"{why}; the last run: {blocked}" if blocked else why

    def _run_phase(self, phase: Phase) -> Ending | None:
        """Run *phase* once; return the ending, or ``None`` if the cycle goes on."""
        judgement = Judgement(self._run, self._definition, phase)
        material = self._prepare(phase)
        outcome = PhaseRun(self._run, self._definition, phase, judgement, material).go()
        self._keep(phase, outcome)
        said = self._signals.read(phase, self._values(outcome))
        if said.halt:
            return Ending(ABORT, f"the halt_signal of {phase.id} is true: {phase.halt_signal}")
        if said.done and not outcome.blocked:
            return Ending(DONE, "exit_conditions.done is true")
        if said.advance and not outcome.blocked:
            return self._advance(phase, outcome)
        return self._repeat(phase, outcome, judgement)

    def _advance(self, phase: Phase, outcome: PhaseOutcome) -> Ending | None:
        if phase.next is None:
            return Ending(DONE, f"{phase.id} was the last phase")
        cycle = self._cycle.id
        subject = {"cycle_id": cycle, "from_phase": phase.id, "to_phase": phase.next}
        told = {**subject, "verdict": outcome.aggregate["verdict"]}
        try:
            left = self._run.fire("PhaseAdvance", told)
        except Failed as failure:
            if failure.code != "GATE_DENIED":
                raise
            return Ending(ABORT, str(failure))
        to = left["to_phase"]
        if {**left, "to_phase": phase.next} != told or to not in self._definition.phases:
            why = f"a hook may change to_phase, to one of {', '.join(self._cycle.phases)}"
            return Ending(ABORT, f"PhaseAdvance: {why}")
        self._run.record(ADVANCED, {**subject, "to_phase": to})
        if outcome.output is not None:
            self._progress.given, self._progress.authors = outcome.output, outcome.authors
        self._progress.move(to)
        return None

    def _repeat(self, phase: Phase, outcome: PhaseOutcome, judgement: Judgement) -> Ending | None:
        """Count one more generation of *phase*, unless a policy about generations denies it."""
        now = self._progress
        *earlier, last = now.history
        value = {"number": now.generation, "phase": phase.id, **last, "history": earlier}
        decision = judgement.decide(GENERATION, value)
        if decision.outcome == "deny":
            return Ending(HALTED, self._with_block(decision.reason))
        now.generation += 1
        now.earlier = outcome.aggregate
        return None

    # --- what is known ------------------------------------------------------------------------------------------------

    def _prepare(self, phase: Phase) -> Material:
        now = self._progress
        if phase.input_schema is not None:
            wanted = foreign(self._definition.schemas[phase.input_schema], place=f"schema {phase.input_schema}")
            violations = wanted.violations(now.given)
            if violations:
                why = f"{phase.id} takes {phase.input_schema}, which the earlier output does not fit: {violations[0]}"
                raise Failed("SCHEMA_VIOLATION", f"{phase.place}: {why}")
        return Material(
            request=self._request,
            given=now.given,
            authors=now.authors,
            earlier=now.earlier,
            generation=now.generation,
            fields=self._fields(phase),
            written=dict(now.written),
        )

    def _fields(self, phase: Phase) -> Mapping[str, str]:
        return {
            "cycle": self._cycle.id,
            "date": self._started[:10],
            "generation": str(self._progress.generation),
            "phase": phase.id,
            "session": self._run.session,
            "slug": make_slug(self._request),
            "time": self._started[11:19].replace(":", ""),
        }

    def _keep(self, phase: Phase, outcome: PhaseOutcome) -> None:
        """Record the run of a phase in the execution log, and count it."""
        now = self._progress
        now.visited.append(phase.id)
        if outcome.path:
            now.written[outcome.path] = outcome.digest
        aggregate = outcome.aggregate
        fingerprints = [":".join(map(str, fingerprint(each))) for each in aggregate["findings"]]
        now.history.append({"fingerprints": fingerprints, "grade": grade(aggregate)})
        now.blocked = outcome.blocked
        note = {
            "phase": phase.id,
            "generation": now.generation,
            "personas": [each.as_json() for each in outcome.answers],
            "aggregate": aggregate,
            "output": outcome.output,
            "path": outcome.path,
            "blocked": outcome.blocked,
        }
        self._run.context.note(NOTE, note)

    def _values(self, outcome: PhaseOutcome) -> dict[str, Any]:
        """Return what signals see after a run of the phase; from then on the run counts."""
        now = self._progress
        context = {
            "state": self._run.context.state,
            "generation": now.generation,
            "phase": now.phase,
            "phase_runs": now.phase_runs,
            "mode": self._run.mode,
        }
        now.phase_runs += 1
        return {
            "review_aggregate": outcome.aggregate,
            "artifact": outcome.output,
            "context": context,
            "request": self._request,
        }

    def _describe(self, phase: Phase) -> dict[str, Any]:
        depends = [each.id for each in self._definition.phases.values() if each.next == phase.id]
        asked = ", ".join(phase.personas) or "no persona"
        return {"id": phase.id, "description": f"{phase.flow} with {asked}", "depends_on": depends}
