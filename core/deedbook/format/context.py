"""RunContext: a run's typed state, the fold of its ``context.*`` events and of nothing else.

A run is one call of a flow. Its context is named by the span of that ``flow.call``, under which its events stand, so
that a flow called by a flow has a context of its own. `advance` is the state machine. The `Recorder` asks it before it
appends, and the `ContextFold` asks it again when the events are read, so both have the same state. Code that uses a
context writes to it and returns ``None``; there is no second result that could differ.

    CREATED → CLARIFIED → SCOPED → PLANNED → EXECUTING → VERIFYING → COMPLETED
                  └───────────────────↑          ↑───────────┘ rework
    from every state before COMPLETED: → FAILED, HALTED, NEEDS_HUMAN; from NEEDS_HUMAN back to the state before
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, overload

import attrs

from deedbook.contract import Event, Failed, Json, Object

from .canonical import admit, decode, encode
from .errors import Err, IntakeError, LedgerError, Ok, Result, fault

State: TypeAlias = Literal[
    "CREATED",
    "CLARIFIED",
    "SCOPED",
    "PLANNED",
    "EXECUTING",
    "VERIFYING",
    "COMPLETED",
    "FAILED",
    "HALTED",
    "NEEDS_HUMAN",
]
LIVE: Final[frozenset[str]] = frozenset({"CREATED", "CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING"})
"""The states in which a run works; in NEEDS_HUMAN it waits, in the others it has ended."""
ABSENT: Final = "ABSENT"
"""The value of `Recorder.state` before ``context.created``."""
REPORT: Final = "worker.report"
"""The event that holds a report; ``context.verifying`` names its span."""


@attrs.frozen
class Move:
    """One transition: the states it may start from, the state it leads to, and the payload member that it keeps."""

    since: frozenset[str]
    to: State
    keeps: str


MOVES: Final[Mapping[str, Move]] = MappingProxyType(
    {
        "context.clarified": Move(frozenset({"CREATED"}), "CLARIFIED", "clarification"),
        "context.scoped": Move(frozenset({"CLARIFIED"}), "SCOPED", "scope"),
        "context.planned": Move(frozenset({"CLARIFIED", "SCOPED"}), "PLANNED", "plan"),
        "context.executing": Move(frozenset({"PLANNED", "VERIFYING"}), "EXECUTING", "attempt"),
        "context.verifying": Move(frozenset({"EXECUTING"}), "VERIFYING", "report"),
        "context.completed": Move(frozenset({"VERIFYING"}), "COMPLETED", "verification"),
        "context.failed": Move(LIVE | {"NEEDS_HUMAN"}, "FAILED", "reason"),
        "context.halted": Move(LIVE | {"NEEDS_HUMAN"}, "HALTED", "reason"),
        "context.needs_human": Move(LIVE, "NEEDS_HUMAN", "reason"),
    }
)
"""Every transition to a fixed state; ``context.resumed`` leads back to the state before NEEDS_HUMAN."""

FINDING: Final = "finding"
"""The type of the entry in the execution log that holds a finding."""
VERSION_KEY: Final = "schema_version"
ARTIFACTS: Final[Mapping[str, Mapping[Json, str]]] = MappingProxyType(
    {
        "clarification": {"v1": "clarification_v1", "v2": "lead_directive_v2"},
        "scope": {"v1": "scope_v1"},
        "plan": {"v1": "plan_v1", "v2": "plan_v2"},
        "verification": {"v1": "verification_v1"},
        FINDING: {"v1": "context_finding_v1"},
    }
)
"""The schemas of artifacts, by the ``schema_version`` that an artifact states. One without it can have any form."""


@attrs.frozen
class LogEntry:
    """One entry of the execution log: its type and its data."""

    event_type: str
    data: Object


class ExecutionLog(Sequence[LogEntry]):
    """An immutable list of entries whose `add` takes constant time: logs that grew from each other share a list."""

    __slots__ = ("_entries", "_size")

    def __init__(self, entries: list[LogEntry] | None = None) -> None:
        self._entries = [] if entries is None else entries
        self._size = len(self._entries)

    def add(self, entry: LogEntry) -> "ExecutionLog":
        """Return the log with one more entry."""
        entries = self._entries if self._size == len(self._entries) else self._entries[: self._size]
        entries.append(entry)
        return ExecutionLog(entries)

    @overload
    def __getitem__(self, index: int) -> LogEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogEntry]: ...
    def __getitem__(self, index: int | slice) -> LogEntry | Sequence[LogEntry]:
        return self._entries[: self._size][index] if isinstance(index, slice) else self._entries[self._at(index)]

    def _at(self, index: int) -> int:
        place = index + self._size if index < 0 else index
        if not 0 <= place < self._size:
            raise IndexError(f"entry {index} of a log with {self._size}")
        return place

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionLog) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]  # its entries are JSON

    def __repr__(self) -> str:
        return f"ExecutionLog({self[:]!r})"


@attrs.frozen(kw_only=True, slots=False)
class RunContext:
    """The state of one run and the artifact of each stage that it has passed.

    *run* is the span of its ``flow.call``, *parent* that of the run whose flow called this one. *attempts* counts how
    often the work was started; *report* is the latest one; *reason* tells why a run ended without completion, or what
    it waits for; *waiting* is then the state that it left. Read from a ledger, a sealed artifact is its
    ``{"$sealed": …, "size": …}``.
    """

    run: str = ""
    parent: str | None = None
    state: State
    task: Json
    source: Json
    clarification: Object | None = None
    scope: Object | None = None
    plan: Object | None = None
    attempts: int = 0
    report: Object | None = None
    verification: Object | None = None
    reason: Json = None
    waiting: State | None = None
    log: ExecutionLog = attrs.field(factory=ExecutionLog)

    @property
    def findings(self) -> list[Object]:
        """The findings in the execution log, in order."""
        return [entry.data for entry in self.log if entry.event_type == FINDING]

    @property
    def reply(self) -> str:
        """The run's answer: the output of its report once it has completed, before that the reason of its end."""
        output = self.report.get("output") if self.report and self.state == "COMPLETED" else self.reason
        return output if isinstance(output, str) else "" if output is None else encode(output).decode()

    def outcome(self) -> Result[Json]:
        """Return ``{context, state, reply}`` of a completed run; otherwise an `Err` with its state and reason."""
        if self.state == "COMPLETED":
            return Ok({"context": self.run, "state": self.state, "reply": self.reply})
        code = "NEEDS_HUMAN" if self.state == "NEEDS_HUMAN" else "RUN_ENDED"
        return Err(fault(code, f"the run {self.run} ended {self.state}: {self.reply}"))

    def as_json(self) -> dict[str, Any]:
        """Return the whole state as a JSON object that shares nothing with it."""
        whole = {field.name: getattr(self, field.name) for field in attrs.fields(RunContext)}
        return copy.deepcopy({**whole, "log": [attrs.asdict(each) for each in self.log]})


# --- the machine ------------------------------------------------------------------------------------------------------


def advance(context: RunContext | None, event_type: str, payload: Object, *, run: str = "") -> Result[RunContext]:
    """Return the state after one ``context.*`` event, or an `Err` (``SCHEMA_VIOLATION``) for an illegal transition.

    *run* is the span of the run's ``flow.call``. A payload of ``context.verifying`` has the report itself here.
    """
    if event_type == "context.created":
        return _create(context, payload, run)
    if context is None:
        return _refuse(event_type, "there is no context yet; context.created comes first")
    if event_type == "context.noted":
        return _note(context, payload)
    if event_type == "context.resumed":
        return _resume(context, payload.get("state"))
    return _move(context, event_type, payload)


def legal_moves(state: str) -> list[str]:
    """Return the transitions that may follow *state*, as event types."""
    moves = [event_type for event_type, move in MOVES.items() if state in move.since]
    return [*moves, "context.resumed"] if state == "NEEDS_HUMAN" else moves


def _move(context: RunContext, event_type: str, payload: Object) -> Result[RunContext]:
    move = MOVES.get(event_type)
    if move is None:
        return _refuse(event_type, "the machine knows no such move")
    if context.state not in move.since:
        return _refuse_state(context, event_type, move.since)
    if move.keeps not in payload:
        return _refuse(event_type, f'the payload has no "{move.keeps}"')
    if move.keeps == "attempt":
        return _execute(context, payload["attempt"])
    left = context.state if move.to == "NEEDS_HUMAN" else None
    return Ok(_evolve(context, state=move.to, waiting=left, **{move.keeps: payload[move.keeps]}))


def _create(context: RunContext | None, payload: Object, run: str) -> Result[RunContext]:
    if context is not None:
        return _refuse("context.created", f"the context is {context.state}; a run has one context")
    if not {"task", "source"} <= payload.keys():
        return _refuse("context.created", 'the payload needs "task" and "source"')
    parent = payload.get("parent")
    return Ok(RunContext(run=run, parent=parent, state="CREATED", task=payload["task"], source=payload["source"]))


def _note(context: RunContext, payload: Object) -> Result[RunContext]:
    if not {"event_type", "data"} <= payload.keys():
        return _refuse("context.noted", 'the payload needs "event_type" and "data"')
    note = LogEntry(payload["event_type"], payload["data"])
    return Ok(_evolve(context, log=context.log.add(note)))


def _resume(context: RunContext, state: Json) -> Result[RunContext]:
    if context.waiting is None:
        return _refuse_state(context, "context.resumed", frozenset({"NEEDS_HUMAN"}))
    if state != context.waiting and not isinstance(state, Mapping):
        return _refuse("context.resumed", f"the run waits in {context.waiting}, not in {state!r}")
    return Ok(_evolve(context, state=context.waiting, waiting=None, reason=None))


def _execute(context: RunContext, attempt: Json) -> Result[RunContext]:
    due = context.attempts + 1
    if isinstance(attempt, int) and attempt != due:
        return _refuse("context.executing", f"attempt {attempt} does not follow attempt {context.attempts}")
    return Ok(_evolve(context, state="EXECUTING", attempts=due))


def _evolve(context: RunContext, **changes: Any) -> RunContext:
    """Return *context* with *changes*; `attrs.evolve` takes as long as the rest of a transition."""
    made = object.__new__(RunContext)
    vars(made).update(vars(context), **changes)
    return made


def _refuse_state(context: RunContext, event_type: str, since: frozenset[str]) -> Err:
    legal = ", ".join(legal_moves(context.state)) or "none, the run has ended"
    expected = " or ".join(sorted(since))
    return _refuse(event_type, f"the context is {context.state}; expected {expected}. Legal from here: {legal}")


def _refuse(event_type: str, why: str) -> Err:
    return Err(fault("SCHEMA_VIOLATION", f"{event_type} is not possible: {why}"))


# --- the reader -------------------------------------------------------------------------------------------------------


class RunContexts(Mapping[str, RunContext]):
    """The contexts of a session by run, in the order of their creation; *latest* is the one that changed last."""

    def __init__(self) -> None:
        self.latest: RunContext | None = None
        self._contexts: dict[str, RunContext] = {}
        self._reports: dict[tuple[str, str], Object] = {}
        self._first_version: set[str] = set()

    @property
    def latest_state(self) -> str | None:
        """The state of the context that changed last."""
        return self.latest.state if self.latest else None

    def __getitem__(self, run: str) -> RunContext:
        return self._contexts[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contexts)

    def __len__(self) -> int:
        return len(self._contexts)

    def take(self, event: Event) -> Result[RunContext]:
        """Apply one ``context.*`` event; an `Err` for an illegal transition."""
        run, payload = event.parent or "", event.payload
        if event.type == "context.verifying" and payload.get("schema_version") == "v2":
            report = self._reports.pop((run, str(payload.get("report"))), None)
            if report is None:
                return _refuse(event.type, f"no {REPORT} has the span {payload.get('report')!r} in this run")
            payload = {**payload, "report": report}
        outcome = advance(self._find(run, event), event.type, payload, run=run)
        if isinstance(outcome, Ok):
            self.latest = self._contexts[outcome.value.run] = outcome.value
            if event.type == "context.created" and "schema_version" not in payload:
                self._first_version.add(run)
        return outcome

    def keep_report(self, event: Event) -> None:
        """Keep a report until a ``context.verifying`` of its run names it."""
        self._reports[event.parent or "", event.span] = event.payload

    def _find(self, run: str, event: Event) -> RunContext | None:
        """Return the context of *run*.

        In version 1 a session had one context at a time, and its events could stand elsewhere.
        """
        latest, found = self.latest, self._contexts.get(run)
        if event.type == "context.created":
            one = latest if latest is not None and latest.state in LIVE else None
            return one if "schema_version" not in event.payload else found
        return latest if found is None and latest is not None and latest.run in self._first_version else found


class ContextFold:
    """The fold of ``context.*`` events; events of other types leave the state as it is."""

    def start(self) -> RunContexts:
        """Return the state before the first event: no context."""
        return RunContexts()

    def step(self, state: RunContexts, event: Event) -> RunContexts:
        """Return the state after *event*; an illegal move raises `LedgerError` (``LEDGER_UNSOUND``)."""
        if event.type == REPORT:
            state.keep_report(event)
        elif event.type.startswith("context."):
            outcome = state.take(event)
            if isinstance(outcome, Err):
                raise LedgerError(fault("LEDGER_UNSOUND", outcome.error.message, place=f"event {event.seq}"))
        return state


# --- the writer -------------------------------------------------------------------------------------------------------


class Recorder:
    """The only writer of a context, passed to flows as `flow.Context`.

    Each method checks its transition, appends one event through *append*, which returns its span, and returns ``None``.
    It raises `Failed` with ``SCHEMA_VIOLATION`` for an illegal transition or an artifact that `check` refuses, with
    ``INTAKE_REFUSED`` for a value that cannot be recorded. Then, and when *append* raises, nothing has changed. *run*
    is the span of the flow's call, *parent* that of the run around it.
    """

    def __init__(self, append: Callable[[str, Object], str], *, run: str = "", parent: str | None = None) -> None:
        self._append = append
        self._run, self._parent = run, parent
        self._context: RunContext | None = None
        self._lock = Lock()

    @property
    def parent(self) -> str | None:
        """The run whose flow called this one."""
        return self._parent

    @property
    def state(self) -> str:
        """The name of the current state; `ABSENT` before `create`."""
        return self._context.state if self._context else ABSENT

    @property
    def is_live(self) -> bool:
        """Whether the run works: it has neither ended nor waits for a person."""
        return self.state in LIVE

    @property
    def context(self) -> RunContext | None:
        """A copy of the current state; changing its artifacts changes nothing here."""
        return copy.deepcopy(self._context)

    def read(self) -> RunContext:
        """Return a copy of the current state; raises `Failed` (``SCHEMA_VIOLATION``) before `create`."""
        if self._context is None:
            raise Failed("SCHEMA_VIOLATION", "there is no context yet; context.created comes first")
        return copy.deepcopy(self._context)

    def create(self, task: Json, source: str) -> None:
        """Begin: move to CREATED with the request and its channel."""
        created = {"task": task, "source": source, "parent": self._parent, "schema_version": "v2"}
        self._record("context.created", created)

    def clarify(self, clarification: Object) -> None:
        """Move to CLARIFIED with the clarified request."""
        self._record("context.clarified", {"clarification": dict(clarification)})

    def set_scope(self, scope: Object) -> None:
        """Move to SCOPED with the limits of the work."""
        self._record("context.scoped", {"scope": dict(scope)})

    def plan(self, plan: Object) -> None:
        """Move to PLANNED with the steps."""
        self._record("context.planned", {"plan": dict(plan)})

    def begin_execution(self) -> None:
        """Move to EXECUTING, for the first time or again; the attempt is counted."""
        attempts = self._context.attempts if self._context else 0
        self._record("context.executing", {"attempt": attempts + 1})

    def verify(self, report: Object) -> None:
        """Move to VERIFYING with the report of the work, which is recorded as ``worker.report``."""
        raw = _admit(report)
        self.check("worker_report_v1", decode(raw), "report")
        with self._lock:
            left = self._advance("context.verifying", {"report": decode(raw)})
            span = self._append(REPORT, decode(raw))
            self._append("context.verifying", {"report": span, "schema_version": "v2"})
            self._context = left

    def complete(self, verification: Object) -> None:
        """Move to COMPLETED with the verification that passed."""
        self._record("context.completed", {"verification": dict(verification)})

    def fail(self, reason: str) -> None:
        """Move to FAILED."""
        self._record("context.failed", {"reason": reason})

    def halt(self, reason: str) -> None:
        """Move to HALTED."""
        self._record("context.halted", {"reason": reason})

    def need_human(self, reason: str) -> None:
        """Move to NEEDS_HUMAN."""
        self._record("context.needs_human", {"reason": reason})

    def resume(self) -> None:
        """Move from NEEDS_HUMAN back to the state before it."""
        self._record("context.resumed", {"state": self._context.waiting if self._context else None})

    def note(self, event_type: str, data: Object) -> None:
        """Add an entry to the execution log, in any state, without a transition."""
        self._record("context.noted", {"event_type": event_type, "data": dict(data)})

    def add_finding(self, finding: Object) -> None:
        """Add a finding (``context_finding_v1``) to the execution log, in any state, without a transition."""
        self.note(FINDING, {**finding, VERSION_KEY: finding.get(VERSION_KEY, "v1")})

    def check(self, schema: str, value: Json, place: str) -> None:
        """Raise `Failed` (``SCHEMA_VIOLATION``) if *value*, an artifact, does not fit; here nothing is checked."""

    def _check_artifact(self, event_type: str, payload: Object) -> None:
        """Check the artifact in *payload* by the version of its schema, if it states one."""
        move = MOVES.get(event_type)
        name = move.keeps if move else str(payload.get("event_type"))
        value = payload.get("data" if event_type == "context.noted" else name)
        if name not in ARTIFACTS or not isinstance(value, dict) or VERSION_KEY not in value:
            return
        known, version = ARTIFACTS[name], value[VERSION_KEY]
        if not isinstance(version, str) or version not in known:
            why = (
                f"unknown version; known are {', '.join(map(str, known))}. Leave it out in an artifact of another form"
            )
            raise Failed("SCHEMA_VIOLATION", f"$.{VERSION_KEY} of the {name}: {why}")
        self.check(known[version], value, name)

    def _record(self, event_type: str, payload: Object) -> None:
        admitted = decode(_admit(payload))
        self._check_artifact(event_type, admitted)
        with self._lock:
            left = self._advance(event_type, admitted)
            self._append(event_type, payload)
            self._context = left

    def _advance(self, event_type: str, payload: Object) -> RunContext:
        outcome = advance(self._context, event_type, payload, run=self._run)
        if isinstance(outcome, Err):
            raise Failed(outcome.error.code, outcome.error.message)
        return outcome.value


def _admit(payload: Object) -> bytes:
    try:
        return admit(dict(payload))
    except IntakeError as problem:
        raise Failed(problem.error.code, str(problem)) from None
