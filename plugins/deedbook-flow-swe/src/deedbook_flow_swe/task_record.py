"""What the ledger says about a task: one typed record, folded from the events of its session; pure.

Rewards, metrics, evidence and renderings are functions of this record. What a model said about its own work is no part
of it: `PhaseRun.facts` are those that tools reported, and denials come from the door.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
        return self.by in ("input", "rule", "denied") and not self.is_by_others

    @property
    def is_by_others(self) -> bool:
        """Whether commits of others in the repository caused it, for which no run of a phase is at fault."""
        return self.by == "input" and self.rule in (names.REPOSITORY, names.CONFLICT)


@attrs.frozen(kw_only=True)
class Rollback:
    """A move back to an earlier phase, or of a phase to itself.

    *cascade* continues a move through a phase that cannot mend the issue.
    """

    from_phase: str
    to_phase: str
    issue: str
    reason: str
    cascade: bool


@attrs.define(kw_only=True)
class PhaseRun:
    """One run of a phase, with all of its units.

    *facts* are those of all units together. *calls* are the calls that the door let pass, *outside* those that it
    refused because they leave what the contract allows, and *denied* those of them that the runner recorded. *read* and
    *written* are the tokens that providers counted. *faulty* has the units whose outputs were sent back; ``None`` in it
    is the whole run.
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
    denied: int = 0
    read: int = 0
    written: int = 0
    facts: Object = _NO_FACTS
    completed: str | None = None
    faulty: set[str | None] = attrs.field(factory=set)

    @property
    def was_rolled_back(self) -> bool:
        """Whether a later phase, or this one for its own outputs, sent the task back to this run."""
        return bool(self.faulty)

    @property
    def violations(self) -> int:
        """The calls that the contract does not allow. The door, the runner and the block each record the same one."""
        return max(self.outside, self.denied, sum(block.by == "denied" for block in self.blocks))

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
    promoted: list[tuple[str, str]] = attrs.field(factory=list)

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
            task = str(event.payload.get("task_id"))
            if event.type == names.TASK_STARTED and "task_id" in event.payload:
                last = found[task] = cls.begin(event.payload, event.ts, session)
                continue
            last = found.get(task, last)
            if last is not None and (event.type not in _STEPS or last.task_id == task):
                last.apply(event.type, event.payload, event.ts)
        return list(found.values())

    @classmethod
    def begin(cls, payload: Object, ts: str, session: str = "") -> Self:
        """Return the record after the first event of a task, which was recorded at *ts*."""
        return cls(
            task_id=payload["task_id"],
            title=payload["title"],
            tags=tuple(payload["tags"]),
            pipeline=payload["pipeline"],
            routing=payload["routing"],
            generated=payload["generated"],
            started=ts,
            session=session,
        )

    def apply(self, event_type: str, payload: Object, ts: str) -> None:
        """Apply the next event. A runner may use this for what it records, so that it needs no ledger to read."""
        step = _STEPS.get(event_type)
        if step is None:
            _note_call(self, event_type, payload)
        elif "task_id" in payload:
            step(self, payload, ts)

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

    def list_reported(self, name: str) -> list[tuple[str, Any]]:
        """Return each phase whose last run reported the fact *name*, with the value."""
        values = ((phase, self.facts(phase)) for phase in self.phases)
        return [(phase, facts[name]) for phase, facts in values if name in facts]

    def sent_back_by(self, *phases: str) -> list[Rollback]:
        """Return the moves back from one of *phases* to an earlier one; those that only continue one are left out."""
        moves = (each for each in self.rollbacks if each.from_phase in phases and not each.cascade)
        return [each for each in moves if each.to_phase != each.from_phase]

    def run_of(self, phase: str, iteration: int) -> PhaseRun:
        """Return a run, which begins with its first event."""
        for run in reversed(self.runs):
            if (run.phase, run.iteration) == (phase, iteration):
                return run
        self.runs.append(PhaseRun(phase=phase, iteration=iteration, agent=""))
        return self.runs[-1]

    def last_run(self, phase: str) -> PhaseRun | None:
        """Return the last run of *phase* so far."""
        return next((run for run in reversed(self.runs) if run.phase == phase), None)


# --- the fold ---------------------------------------------------------------------------------------------------------


def _note_call(record: TaskRecord, kind: str, payload: Object) -> None:
    """Count a call, a refusal or an answer of a model for the run that is under way."""
    if record.ended is not None or not record.runs:
        return
    run = record.runs[-1]
    if kind in ("tool.call", "memory.call"):
        run.calls += 1
    elif kind in ("tool.denied", "tool.error") and payload.get("code") in _OUTSIDE:
        run.outside += 1
    elif kind == "llm.response":
        run.read += _usage(payload, "input_tokens")
        run.written += _usage(payload, "output_tokens")


def _start_phase(record: TaskRecord, payload: Object, _: str) -> None:
    run = record.run_of(payload["phase"], payload["iteration"])
    run.agent = payload["agent"]
    if payload["unit"] is not None and payload["unit"] not in run.units:
        run.units.append(payload["unit"])


def _note_context(record: TaskRecord, payload: Object, _: str) -> None:
    size = ContextSize(tokens=payload["tokens"], budget=payload["budget"], counted=payload["counted"])
    record.run_of(payload["phase"], payload["iteration"]).contexts.append(size)


def _note_model(record: TaskRecord, payload: Object, _: str) -> None:
    choice = ModelChoice(unit=payload["unit"], tier=payload["tier"], rule=payload["rule"])
    record.run_of(payload["phase"], payload["iteration"]).models.append(choice)


def _deny(record: TaskRecord, payload: Object, _: str) -> None:
    record.run_of(payload["phase"], payload["iteration"]).denied += payload["code"] in _OUTSIDE


def _block(record: TaskRecord, payload: Object, _: str) -> None:
    given = {each.name: payload[each.name] for each in attrs.fields(Block) if each.name != "missing"}
    block = Block(**given, missing=tuple(payload["missing"]))
    record.run_of(block.phase, block.iteration).blocks.append(block)


def _roll_back(record: TaskRecord, payload: Object, _: str) -> None:
    move = Rollback(**{each.name: payload[each.name] for each in attrs.fields(Rollback)})
    if move.cascade and (passed := record.last_run(move.from_phase)) is not None:
        passed.faulty.clear()  # it cannot mend the issue, so it did not cause it
    record.rollbacks.append(move)
    block = _find_block(record, move.issue)
    target = record.last_run(move.to_phase)
    if target is not None and not (block is not None and block.is_by_others):
        target.faulty.add(block.unit if block is not None and block.unit in target.units else None)


def _find_block(record: TaskRecord, issue: str) -> Block | None:
    """Return the last block of *issue*."""
    blocks = (block for run in reversed(record.runs) for block in reversed(run.blocks) if block.issue == issue)
    return next(blocks, None)


def _escalate(record: TaskRecord, payload: Object, _: str) -> None:
    record.escalations.append(payload["phase"])


def _complete(record: TaskRecord, payload: Object, ts: str) -> None:
    run = record.run_of(payload["phase"], payload["iteration"])
    run.completed = ts
    run.facts = MappingProxyType(dict(_merge(run.facts, payload["facts"])))


def _end(record: TaskRecord, payload: Object, ts: str) -> None:
    record.state, record.commit, record.ended = payload["state"], payload["commit"], ts


def _reward(record: TaskRecord, payload: Object, _: str) -> None:
    record.reward = payload["reward"]


def _promote(record: TaskRecord, payload: Object, _: str) -> None:
    record.promoted.append((payload["kind"], payload["pattern"]))


_STEPS: Final[Mapping[str, Callable[[TaskRecord, Object, str], None]]] = MappingProxyType(
    {
        names.PHASE_STARTED: _start_phase,
        names.CONTEXT_ASSEMBLED: _note_context,
        names.MODEL_CHOSEN: _note_model,
        names.DENIED: _deny,
        names.PHASE_BLOCKED: _block,
        names.ROLLED_BACK: _roll_back,
        names.ESCALATED: _escalate,
        names.PHASE_COMPLETED: _complete,
        names.TASK_ENDED: _end,
        names.REWARDED: _reward,
        names.PATTERN_PROMOTED: _promote,
    }
)


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
