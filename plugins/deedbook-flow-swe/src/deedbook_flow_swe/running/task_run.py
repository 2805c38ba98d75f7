"""The run of a task: one phase after the other, back after a block, and to a person where the state machine says so."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from deedbook import Branch, Failed, Object, Run
from deedbook_flow_swe.contract import Contract, fill
from deedbook_flow_swe.definition import Definition, find_criteria
from deedbook_flow_swe.events import (
    ANSWERED,
    CONFLICT,
    ESCALATED,
    PHASE_BLOCKED,
    PHASE_COMPLETED,
    REPOSITORY,
    ROLLED_BACK,
    TASK_ENDED,
    TASK_STARTED,
)
from deedbook_flow_swe.learning.policy_kinds import ROUTING, ROUTING_SUBJECT, name_policy
from deedbook_flow_swe.learning.routing import RoutingPolicy, digest_policy
from deedbook_flow_swe.learning.world import render_routing, routing_path

from .agents import ModelAgent, PhaseAgent, ask_process
from .blocks import INPUT, Block, Blocked
from .files import File, digest_text
from .gates import build_gate, build_signal, render_gate, render_review, render_signal
from .material import TaskMaterial
from .phase_run import CopyWork, PhaseOutcome, PhaseRun
from .publisher import Publisher
from .repository import MOVED, Update
from .review import REVIEWED, find_classes, find_review
from .rewarding import reward_task
from .state import DONE, FAILED, GO_ON, HALTED, STOP, PipelineState, Rollback
from .unit_run import UnitProgress, UnitRuns, order_units

MERGED: Final = "MERGED.md"
"""The gate of the phase after which the change is merged."""
_LONGEST: Final = 2000
_REFUSED: Final = "APPROVAL_REFUSED"
_MOST_CONFLICTS: Final = 10
"""How many files of a conflict its reason names."""


class TaskRun:
    """Takes *task* (``swe_task_v1``) through the phases of *definition*; all that lasts is recorded by *run*."""

    def __init__(self, run: Run, definition: Definition, task: Object, agent: PhaseAgent) -> None:
        self._run, self._definition = run, definition
        self._material = TaskMaterial(definition, task, agent, run)
        self._publisher = Publisher(run, self._material)
        self._waiting: dict[str, str] = {}
        self._units = UnitProgress()
        self._state = PipelineState.begin(
            tuple(each.phase for each in definition.phases),
            passes_on=frozenset(each.phase for each in definition.phases if each.on_rollback == "pass_on"),
            escalate_after=definition.escalate_after,
            most_escalations=definition.most_escalations,
        )
        self._returned: File | None = None
        self._superseded = 0
        self._head = ""
        self._commit: str | None = None

    def go(self) -> None:
        """Run the task from its first phase to its end."""
        self._open()
        try:
            if self._material.repository is not None:
                self._head = self._material.repository.open()
            while not self._state.has_ended:
                self._run_phase()
        except Failed as failure:
            if failure.code != "LEDGER_BROKEN":
                self._record(TASK_ENDED, {"state": "failed", "commit": self._commit})
            raise
        ends = {DONE: "done", HALTED: "halted"}
        self._record(TASK_ENDED, {"state": ends.get(self._state.state, "failed"), "commit": self._commit})
        reward_task(self._run, self._material)

    @property
    def state(self) -> str:
        """The present state of the task."""
        return self._state.state

    @property
    def failure(self) -> str:
        """Why the task failed; empty if it did not."""
        if self._state.state != FAILED:
            return ""
        limit = f"most_escalations of the pipeline {self._definition.id}"
        asked = f"a person was asked {self._state.escalations} times, which is the limit ({limit})"
        return f"{asked}; the next question was: {self._state.reason[:_LONGEST]}"

    @property
    def commit(self) -> str | None:
        """The commit with which the change was merged."""
        return self._commit

    def _open(self) -> None:
        """Write the task's page, which no other run may have written, and record that the task has begun."""
        task = self._material.task
        self._material.time = self._run.now()
        routing, revision = self._find_routing()
        self._material.routing = None if routing is None else RoutingPolicy.parse(routing)
        pages = {} if routing is None else {routing_path(routing["id"]): render_routing(routing, revision)}
        self._publisher.publish(self._state, {self._material.path(name): text for name, text in pages.items()})
        self._record(
            TASK_STARTED,
            {
                "title": task["title"],
                "digest": task["digest"],
                "tags": list(task["tags"]),
                "pipeline": self._definition.id,
                "routing": digest_policy(routing or {}),
                "generated": task["generated"],
            },
        )

    def _find_routing(self) -> tuple[Object | None, int | None]:
        """Return the routing policy in force, and the event that revised it; the task keeps it to its end."""
        if self._definition.routing is None:
            return None, None
        policy = name_policy(ROUTING, self._definition.id)
        decision = self._run.decide(policy, ROUTING_SUBJECT, {"task_id": self._material.id}).decision
        if decision.outcome not in ("allow", "advisory"):
            raise Failed("GATE_DENIED", f"{policy}: {decision.reason}")
        found: Any = decision.signals.get("policy", self._definition.routing)
        revision: Any = decision.signals.get("revision")
        return dict(found), revision

    # --- phases -------------------------------------------------------------------------------------------------------

    def _run_phase(self) -> None:
        """Run the present phase once, and move the state."""
        contract, material = self._definition.phase(self._state.phase), self._material
        self._supersede([contract.phase], leftovers=True)
        material.time = self._run.now()
        self._state = self._state.start(material.time)
        returned, self._returned = self._returned, None
        outcome = self._work(contract, returned)
        known = frozenset(material.findings)
        self._keep(contract, outcome)
        block = outcome.block or self._check_units(contract, outcome)
        if block is not None:
            self._block(contract, block)
            return
        if material.findings - known and self._needs_better_model(contract, outcome):
            return  # the same phase runs again
        reason = find_review(self._run, self._definition, contract, material, outcome)
        if reason:
            issue = f"{contract.phase}:{REVIEWED}:"
            self._state = self._state.review(issue, reason)
            if self._state.has_ended:
                self._publisher.publish(self._state, {})
                return
            if self._ask(contract, outcome.outputs) != GO_ON:
                return
        self._complete(contract, outcome)

    def _work(self, contract: Contract, returned: File | None) -> PhaseOutcome:
        iteration = self._state.iteration
        if self._definition.works_units(contract.phase):
            update = self._update_copy
            return UnitRuns(self._run, self._material, contract, iteration, self._units, returned, update).go()
        copy = CopyWork(prepare=self._update_copy) if contract.gate.passed == MERGED else CopyWork()
        return PhaseRun(self._run, self._material, contract, iteration, None, returned, copy).go()

    def _needs_better_model(self, contract: Contract, outcome: PhaseOutcome) -> bool:
        """Return whether the findings of a run demand a higher tier than the one that was asked."""
        routing = self._material.routing
        if routing is None or not outcome.tier:
            return False
        tier = self._material.choose_tier(self._run, contract, None, outcome.seen).tier
        return routing.is_above(tier, outcome.tier)

    def _keep(self, contract: Contract, outcome: PhaseOutcome) -> None:
        """Remember the files of a run of a phase, which a rollback supersedes."""
        mine = self._material.files.setdefault(contract.phase, {})
        mine.update({**outcome.checked, **outcome.outputs})
        self._material.outputs[contract.phase] = dict(outcome.values)
        self._material.findings |= find_classes(contract, outcome.values)
        criteria = [row for value in outcome.values.values() for row in find_criteria(value)]
        if criteria:
            self._material.criteria = criteria

    def _check_units(self, contract: Contract, outcome: PhaseOutcome) -> Block | None:
        """Put the units that *contract* lists in order; return the block if they have none."""
        units = self._definition.units
        if units is None or units.listed_by != contract.phase:
            return None
        try:
            self._material.units = order_units(outcome.values[units.output]["units"])
        except ValueError as problem:
            return Block(by="rule", rule="units", place=units.output, reason=str(problem))
        return None

    # --- passing ------------------------------------------------------------------------------------------------------

    def _complete(self, contract: Contract, outcome: PhaseOutcome, approved_by: str | None = None) -> None:
        """Write the gate, and go on to the next phase."""
        iteration, material = self._state.iteration, self._material
        block = self._merge(contract)
        if block is not None:
            self._block(contract, block)
            return
        now = material.time = self._run.now()
        outputs = {**outcome.checked, **outcome.outputs}
        gate = build_gate(
            contract, task=material.id, iteration=iteration, inputs=outcome.inputs, outputs=outputs, time=now,
            approved_by=approved_by,
        )  # fmt: skip
        completed = {
            "phase": contract.phase, "iteration": iteration, "unit": None, "gate": contract.gate.passed,
            "outputs": dict(outcome.outputs), "facts": dict(outcome.facts),
        }  # fmt: skip
        material.learn(PHASE_COMPLETED, completed)
        self._publisher.measure(contract.phase, iteration)
        path = f"{self._fill(contract.folder)}/{contract.gate.passed}"
        self._state = self._state.complete(now)
        if contract.gate.passed == MERGED and not self._state.has_ended:
            self._state = self._state.settle()
        written = self._publisher.publish(self._state, {path: render_gate(gate)})
        material.approved.update({**outputs, **written})
        material.files[contract.phase].update(written)
        material.note(self._run, PHASE_COMPLETED, completed, learned=True)

    def _update_copy(self) -> None:
        """Bring the task's copy to the last commit of the repository; raises `Blocked` if that is impossible."""
        repository = self._material.repository
        if repository is None:
            return
        try:
            found = repository.update()
        except Failed as failure:
            if failure.lost:
                raise
            raise Blocked(_block_merge(failure)) from None
        if not found.merged:
            raise Blocked(_block_conflict(found, repository.source))
        self._head = found.head

    def _merge(self, contract: Contract) -> Block | None:
        """Merge the change after the phase whose gate says so; return the block if that is impossible."""
        repository = self._material.repository
        if contract.gate.passed != MERGED or repository is None:
            return None
        task = self._material.task
        try:
            self._commit = repository.merge(self._head, f"merge: {task['title']}\n\nTask: {task['id']}\n")
        except Failed as failure:
            if failure.lost:
                raise
            return _block_merge(failure)
        return None

    # --- blocking -----------------------------------------------------------------------------------------------------

    def _block(self, contract: Contract, block: Block) -> None:
        """Record the block, and send the task back, or to a person."""
        if block.unit not in {str(each["id"]) for each in self._material.units}:
            block = attrs.evolve(block, unit=None)  # an agent's finding may name anything
        material, iteration = self._material, self._state.iteration
        event = block.as_event(material.id, contract.phase, iteration)
        self._record(PHASE_BLOCKED, event)
        self._publisher.measure(contract.phase, iteration)
        self._state, moves = self._state.block(
            event["issue"], event["reason"], needs_person=block.needs_person, own=block.own
        )
        to_phase = self._state.phase if moves else None
        signal = build_signal(block, task=material.id, phase=contract.phase, iteration=iteration, to_phase=to_phase)
        path, text = fill(contract.rollback.path, material.values(block.unit)), render_signal(signal)
        if moves:
            self._move_back(contract, moves, block.unit, {path: text})
        elif self._state.has_ended:
            self._publisher.publish(self._state, {path: text})
        else:
            self._waiting = {path: text}
            self._ask(contract, material.files.get(contract.phase, {}))

    def _move_back(
        self, contract: Contract, moves: Sequence[Rollback], unit: str | None, files: dict[str, str]
    ) -> None:
        """Supersede the outputs from the phase on to which the task goes back, and publish the signal."""
        for move in moves:
            self._record(ROLLED_BACK, attrs.asdict(move))
            way = f"{move.from_phase} → {move.to_phase} ({move.count})"
            self._publisher.rollbacks.append(f"{self._run.now()} {way}, {move.issue}: {move.reason[:300]}")
            self._material.rollbacks[move.to_phase] = self._material.rollbacks.get(move.to_phase, 0) + 1
        first = unit if self._definition.works_units(self._state.phase) else None
        self._supersede(self._state.phases_from(self._state.phase), first)
        written = self._publisher.publish(self._state, files)
        self._material.files.setdefault(contract.phase, {}).update(written)
        path, text = next(iter(files.items()))
        self._returned = File(path, text, digest_text(text))

    def _supersede(self, phases: Sequence[str], unit: str | None = None, *, leftovers: bool = False) -> None:
        """Move the files of *phases* away; of the phase that works on units, those from *unit* on.

        With *leftovers*, move only what an earlier run has left, such as its signal: units that are done stay so.
        """
        material = self._material
        moves: dict[str, str] = {}
        for phase in phases:
            if self._definition.works_units(phase) and not leftovers:
                self._undo_units(unit)
            gone = self._find_superseded(phase)
            if not gone:
                continue
            self._superseded += 1
            base = material.path(f"tasks/{material.id}")
            for path in gone:
                name = path.removeprefix(f"{base}/").removeprefix(f"{phase}/")
                moves[path] = f"{base}/superseded/{self._superseded}-{phase}/{name}"
                material.files[phase].pop(path)
                material.approved.pop(path, None)
        found: Any = self._run.call(material.ability("read"), {"paths": [], "optional": list(moves)}) if moves else None
        there = [each["path"] for each in found["files"]] if found else []  # a file may have been removed
        if there:
            self._run.call(material.ability("move"), {"paths": there, "to": [moves[path] for path in there]})

    def _undo_units(self, first: str | None) -> None:
        """Take back the units from *first* on, or all."""
        _, commit = self._units.undo([str(each["id"]) for each in self._material.units], first)
        if commit is not None and self._material.repository is not None:
            self._material.repository.reset(commit)

    def _find_superseded(self, phase: str) -> list[str]:
        """Return the files of *phase*, without those of units that are done."""
        mine = self._material.files.get(phase, {})
        if not self._definition.works_units(phase):
            return list(mine)
        kept = {path for outcome in self._units.outcomes.values() for path in (*outcome.outputs, *outcome.checked)}
        return [path for path in mine if path not in kept]

    # --- a person -----------------------------------------------------------------------------------------------------

    def _ask(self, contract: Contract, seen: Any) -> str:
        """Ask a person, and move the state as they decide; return the decision."""
        state, material = self._state, self._material
        self._record(ESCALATED, {"phase": state.phase, "issue": state.issue, "reason": state.reason[:_LONGEST]})
        self._publisher.waits.append(f"{state.phase}: {state.reason[:300]}")
        page = {
            "task": material.id, "phase": state.phase, "issue": state.issue, "reason": state.reason, "seen": seen,
        }  # fmt: skip
        files = dict(self._waiting)
        path = f"{self._fill(contract.folder)}/{contract.gate.human}" if contract.gate.human else ""
        if path:
            files[path] = render_review(**page, decision=None, note="")
        written = self._publisher.publish(state, files)
        material.files.setdefault(contract.phase, {}).update(written)
        signals, self._waiting = self._waiting, {}
        decision, note = self._call_person({**page, "reason": state.reason[:_LONGEST], "seen": {**seen, **written}})
        self._record(
            ANSWERED, {"phase": state.phase, "issue": state.issue, "decision": decision, "note": note[:_LONGEST]}
        )
        self._publisher.waits.pop()
        asked = state.asked
        self._state, moves = state.answer(decision)
        answer = render_review(**page, decision=decision, note=note)
        if moves:
            files = signals or {path or self._fill(contract.rollback.path): answer}
            self._move_back(contract, moves, None, files)
            self._returned = File(path or "human", answer, digest_text(answer))
        elif decision == STOP:
            self._publisher.publish(self._state, {path: answer} if path else {})
        elif asked == "block" or decision != GO_ON:
            self._returned = File(path or "human", answer, digest_text(answer))
        else:
            written = self._publisher.publish(self._state, {path: answer} if path else {})
            material.files[contract.phase].update(written)
        return decision

    def _call_person(self, page: Object) -> tuple[str, str]:
        """Return the decision and the note of a person; a refusal stops the task."""
        try:
            answer: Any = self._run.call(self._material.ability("ask_human"), page)
        except Failed as failure:
            if failure.code != _REFUSED:
                raise
            return STOP, str(failure)
        return str(answer["decision"]), str(answer.get("note", ""))

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _fill(self, path: str) -> str:
        return fill(path, self._material.values(None))

    def _record(self, event: str, payload: Any) -> None:
        self._material.note(self._run, event, payload)


def run_task(run: Run, definition: Definition, task: Object) -> None:
    """Take a task through its pipeline in a branch with the skill of the pipeline, and end the context of *run*."""
    context = run.context
    context.clarify({"intent": task["request"], "task_id": task["id"], "schema_version": "v1"})
    context.plan(
        {"steps": list(_describe_steps(definition)), "risks": [], "needs_advisor": False, "schema_version": "v1"}
    )
    context.begin_execution()
    made: list[TaskRun] = []

    def work(inner: Run) -> None:
        made.append(TaskRun(inner, definition, task, _find_agent(definition, inner)))
        made[0].go()

    run.parallel([Branch(str(task["id"]), work, skill=definition.skill)])
    state, commit, failure = made[0].state, made[0].commit, made[0].failure
    text = f"{task['id']}: {state}{f', merged as {commit}' if commit else ''}{f': {failure}' if failure else ''}"
    if state == DONE:
        steps = [each.phase for each in definition.phases]
        context.verify({"output": text, "steps_completed": steps, "tool_calls_made": [], "schema_version": "v1"})
        context.complete({"verdict": "pass", "reason": text, "schema_version": "v1"})
    elif state == HALTED:
        context.halt(text)
    else:
        context.fail(text)


def _block_merge(failure: Failed) -> Block:
    """Return the block by a repository that git does not accept; one that has only moved on is updated to again."""
    moved = failure.code == MOVED
    return Block(by=INPUT, rule=REPOSITORY, reason=f"{failure.code}: {failure}", own=moved, for_person=not moved)


def _block_conflict(update: Update, source: str) -> Block:
    """Return the block by commits of others with which the change is in conflict; it has to be built on them again."""
    place = update.conflicts[0] if update.conflicts else None
    files = ", ".join(update.conflicts[:_MOST_CONFLICTS])
    why = (
        f"others have committed changes of {files} to {source} since the task began, and git cannot merge them"
        if update.conflicts
        else f"{source} no longer has the commit with which the task began"
    )
    reason = f"{why}; build on its last commit {update.head[:12]}"
    return Block(by=INPUT, rule=CONFLICT, place=place, reason=reason)


def _find_agent(definition: Definition, run: Run) -> PhaseAgent:
    """Return what works as the agents: their own processes if the pipeline has an ability that asks them."""
    asking = definition.abilities.get("dispatch")
    return ModelAgent() if asking is None else ModelAgent(next_step=ask_process(run, asking))


def _describe_steps(definition: Definition) -> Iterator[dict[str, Any]]:
    names = [each.phase for each in definition.phases]
    for at, each in enumerate(definition.phases):
        yield {"id": each.phase, "description": each.objective, "depends_on": names[max(0, at - 1) : at]}
