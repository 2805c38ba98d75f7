"""What the ledger says about a task: one typed record, folded from the events of its session; pure.

Rewards, metrics, evidence and renderings are functions of this record. What a model said about its own work is no part
of it: `PhaseRun.facts` are those that tools reported, and denials come from the door.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

import attrs

from deedbook import Object
from deedbook.contract import Event

from . import events as names

_NO_FACTS: Final[Object] = MappingProxyType({})
_OUTSIDE: Final = frozenset({"TOOL_NOT_ALLOWED", "PATH_REFUSED"})
"""The codes of calls that leave what the caller may use or reach."""


@attrs.frozen(kw_only=True)
class ModelChoice:
    """The tier that was chosen for a run of a phase, by which rule."""

    unit: str | None
    tier: str
    rule: str


@attrs.frozen(kw_only=True)
class ContextSize:
    """The size of a prompt in tokens, *counted* by the ``provider`` or as an ``estimate``, and its *budget*."""

    tokens: int
    budget: int
    counted: str


@attrs.frozen(kw_only=True)
class Block:
    """What blocked a run of a phase (`events.PHASE_BLOCKED`)."""

    phase: str
    iteration: int
    unit: str | None
    by: str
    rule: str | None
    severity: str | None
    issue: str
    reason: str
    missing: tuple[str, ...]

    @property
    def is_verified(self) -> bool:
        """Whether a rule, a schema or the door found it, and not only a model or a person."""
        return self.by in ("input", "rule", "denied")


@attrs.frozen(kw_only=True)
class Rollback:
    """A move back to an earlier phase; *cascade* continues a move through a phase that cannot mend the issue."""

    from_phase: str
    to_phase: str
    issue: str
    reason: str
    cascade: bool


@attrs.define(kw_only=True)
class PhaseRun:
    """One run of a phase, with all of its units.

    *facts* are those of all units together. *calls* are the calls that the door let pass, *outside* those that it
    refused because they leave what the contract allows. *read* and *written* are the tokens that providers counted.
    *faulty* has the units whose outputs were sent back; ``None`` in it is the whole run.
    """

    phase: str
    iteration: int
    agent: str
    units: list[str] = attrs.field(factory=list)
    models: list[ModelChoice] = attrs.field(factory=list)
    contexts: list[ContextSize] = attrs.field(factory=list)
    blocks: list[Block] = attrs.field(factory=list)
    calls: int = 0
    outside: int = 0
    read: int = 0
    written: int = 0
    facts: Object = _NO_FACTS
    completed: str | None = None
    faulty: set[str | None] = attrs.field(factory=set)

    @property
    def was_rolled_back(self) -> bool:
        """Whether a later phase, or this one's gate, sent the task back to this run."""
        return bool(self.faulty)

    def is_faulty(self, choice: ModelChoice) -> bool:
        """Return whether the outputs for which a model was chosen were sent back."""
        return None in self.faulty or choice.unit in self.faulty


@attrs.define(kw_only=True)
class TaskRecord:
    """A task as its session's ledger records it. *generated* tasks exist to show something, and are no evidence."""

    task_id: str
    title: str
    tags: tuple[str, ...]
    pipeline: str
    routing: str
    generated: bool
    started: str
    session: str = ""
    runs: list[PhaseRun] = attrs.field(factory=list)
    rollbacks: list[Rollback] = attrs.field(factory=list)
    escalations: list[str] = attrs.field(factory=list)
    state: str | None = None
    ended: str | None = None
    commit: str | None = None
    reward: Object | None = None
    promoted: list[str] = attrs.field(factory=list)

    @classmethod
    def from_events(cls, events: Iterable[Event], task: str = "", session: str = "") -> Self:
        """Return the record of *task*, or of the only task, in the events of a session; raises `LookupError`."""
        found = [each for each in cls.all_from_events(events, session) if task in ("", each.task_id)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} tasks match {task!r}")
        return found[0]

    @classmethod
    def all_from_events(cls, events: Iterable[Event], session: str = "") -> list[Self]:
        """Return the records of all tasks in the events of a session, in the order in which they began."""
        found: dict[str, Self] = {}
        last: Self | None = None
        for event in events:
            if event.type in _TASK_EVENTS:
                last = cls._take(found, event, session) or last
            elif last is not None and last.ended is None:
                last._note_call(event)
        return list(found.values())

    # --- what is read -------------------------------------------------------------------------------------------------

    @property
    def phases(self) -> dict[str, list[PhaseRun]]:
        """The runs of each phase that has begun, in the order of the pipeline."""
        found: dict[str, list[PhaseRun]] = {}
        for run in self.runs:
            found.setdefault(run.phase, []).append(run)
        return found

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in order."""
        return [block for run in self.runs for block in run.blocks]

    def facts(self, phase: str) -> Object:
        """Return the facts of the last run of *phase*, empty if it is not complete."""
        runs = self.phases.get(phase)
        return runs[-1].facts if runs and runs[-1].completed else _NO_FACTS

    def reported(self, name: str) -> list[tuple[str, Any]]:
        """Return each phase whose last run reported the fact *name*, with the value."""
        values = ((phase, self.facts(phase)) for phase in self.phases)
        return [(phase, facts[name]) for phase, facts in values if name in facts]

    def sent_back_by(self, *phases: str) -> list[Rollback]:
        """Return the moves back that began in one of *phases*; moves that only continue another one are left out."""
        return [each for each in self.rollbacks if each.from_phase in phases and not each.cascade]

    # --- the fold -----------------------------------------------------------------------------------------------------

    @classmethod
    def _take(cls, found: dict[str, Self], event: Event, session: str) -> Self | None:
        """Apply an event of a task; one whose payload was removed, or whose task never began, says nothing."""
        payload = event.payload
        task = payload.get("task_id")
        if not isinstance(task, str):
            return None
        if event.type == names.TASK_STARTED:
            found[task] = cls(
                task_id=task,
                title=payload["title"],
                tags=tuple(payload["tags"]),
                pipeline=payload["pipeline"],
                routing=payload["routing"],
                generated=payload["generated"],
                started=event.ts,
                session=session,
            )
        elif task in found:
            _STEPS[event.type](found[task], payload, event)
        return found.get(task)

    def _note_call(self, event: Event) -> None:
        if not self.runs:
            return
        run, kind = self.runs[-1], event.type
        if kind in ("tool.call", "memory.call"):
            run.calls += 1
        elif kind in ("tool.denied", "tool.error") and event.payload.get("code") in _OUTSIDE:
            run.outside += 1
        elif kind == "llm.response":
            run.read += _usage(event.payload, "input_tokens")
            run.written += _usage(event.payload, "output_tokens")

    def _run_of(self, payload: Object) -> PhaseRun:
        """Return the run that an event names; an event before `events.PHASE_STARTED` begins it."""
        for run in reversed(self.runs):
            if (run.phase, run.iteration) == (payload["phase"], payload["iteration"]):
                return run
        self.runs.append(PhaseRun(phase=payload["phase"], iteration=payload["iteration"], agent=""))
        return self.runs[-1]

    def _start_phase(self, payload: Object, _: Event) -> None:
        run = self._run_of(payload)
        run.agent = payload["agent"]
        if payload["unit"] is not None and payload["unit"] not in run.units:
            run.units.append(payload["unit"])

    def _note_context(self, payload: Object, _: Event) -> None:
        size = ContextSize(tokens=payload["tokens"], budget=payload["budget"], counted=payload["counted"])
        self._run_of(payload).contexts.append(size)

    def _note_model(self, payload: Object, _: Event) -> None:
        choice = ModelChoice(unit=payload["unit"], tier=payload["tier"], rule=payload["rule"])
        self._run_of(payload).models.append(choice)

    def _block(self, payload: Object, _: Event) -> None:
        given = {each.name: payload[each.name] for each in attrs.fields(Block) if each.name != "missing"}
        self._run_of(payload).blocks.append(Block(**given, missing=tuple(payload["missing"])))

    def _roll_back(self, payload: Object, _: Event) -> None:
        move = Rollback(**{each.name: payload[each.name] for each in attrs.fields(Rollback)})
        if move.cascade and (passed := self._last_run(move.from_phase)) is not None:
            passed.faulty.clear()  # it cannot mend the issue, so it did not cause it
        self.rollbacks.append(move)
        target = self._last_run(move.to_phase)
        if target is not None:
            target.faulty.add(self._find_unit(move.issue, target))

    def _find_unit(self, issue: str, target: PhaseRun) -> str | None:
        """Return the unit of *target* that the block of *issue* names; ``None`` if it concerns the whole run."""
        blocks = (block for run in reversed(self.runs) for block in reversed(run.blocks) if block.issue == issue)
        unit = next((block.unit for block in blocks), None)
        return unit if unit in target.units else None

    def _last_run(self, phase: str) -> PhaseRun | None:
        return next((run for run in reversed(self.runs) if run.phase == phase), None)

    def _escalate(self, payload: Object, _: Event) -> None:
        self.escalations.append(payload["phase"])

    def _complete(self, payload: Object, event: Event) -> None:
        run = self._run_of(payload)
        run.completed = event.ts
        run.facts = MappingProxyType(dict(_merge(run.facts, payload["facts"])))

    def _end(self, payload: Object, event: Event) -> None:
        self.state, self.commit, self.ended = payload["state"], payload["commit"], event.ts

    def _reward(self, payload: Object, _: Event) -> None:
        self.reward = payload["reward"]

    def _promote(self, payload: Object, _: Event) -> None:
        self.promoted.append(payload["pattern"])

    def _ignore(self, _payload: Object, _event: Event) -> None:
        """Skip an event that adds nothing to the record."""


_STEPS: Final = MappingProxyType(
    {
        names.PHASE_STARTED: TaskRecord._start_phase,
        names.CONTEXT_ASSEMBLED: TaskRecord._note_context,
        names.MODEL_CHOSEN: TaskRecord._note_model,
        names.PHASE_BLOCKED: TaskRecord._block,
        names.ROLLED_BACK: TaskRecord._roll_back,
        names.ESCALATED: TaskRecord._escalate,
        names.ANSWERED: TaskRecord._ignore,
        names.PHASE_COMPLETED: TaskRecord._complete,
        names.TASK_ENDED: TaskRecord._end,
        names.REWARDED: TaskRecord._reward,
        names.PATTERN_PROMOTED: TaskRecord._promote,
    }
)
_TASK_EVENTS: Final = frozenset({names.TASK_STARTED, *_STEPS})


def _merge(old: Object, new: Object) -> Iterator[tuple[str, Any]]:
    """Yield the facts of two units together: counts and lists are added, and the lowest coverage counts."""
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            yield name, new.get(name, old.get(name))
        elif name in ("coverage", "coverage_delta"):
            yield name, min(old[name], new[name])
        elif isinstance(new[name], Mapping):
            yield name, {part: old[name].get(part, 0) + count for part, count in new[name].items()}
        else:
            yield name, old[name] + new[name]


def _usage(payload: Object, member: str) -> int:
    """Return the tokens that a provider counted; 0 where it says nothing, or the answer is sealed."""
    response = payload.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    spent = usage.get(member) if isinstance(usage, Mapping) else None
    return spent if isinstance(spent, int) and not isinstance(spent, bool) else 0
