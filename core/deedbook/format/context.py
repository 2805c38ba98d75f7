"""RunContext: a run's typed state, the fold of its ``context.*`` events and of nothing else.

`advance` is the state machine. The `Recorder` asks it before it appends, and the `ContextFold` asks it again when the
events are read, so both have the same state. Code that uses a context writes to it and returns ``None``; there is no
second result that could differ.

    CREATED → CLARIFIED → SCOPED → PLANNED → EXECUTING → VERIFYING → COMPLETED
                                                 ↑───────────┘ rework
    from every state before COMPLETED: → FAILED, HALTED, NEEDS_HUMAN

A bundle (`save`, `load`) hands a context over: it names the ledger's head at that moment, and what `load` returns is
the ledger's own fold, given only if the bundle says the same, byte for byte.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TypeAlias

import attrs

from deedbook.contract import Event, Failed, Json, Object

from .canonical import MAX_BYTES, admit, decode, digest, encode, parse_payload
from .errors import Err, IntakeError, LedgerError, Ok, Result, fault
from .events import HEADER, MAX_PAYLOAD, first_hash
from .files import Folder

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
"""The states that another state may follow; in the others a run has ended."""
ABSENT: Final = "ABSENT"
"""The value of `Recorder.state` before ``context.created``."""

_MAX_LINE: Final = MAX_PAYLOAD + 4096
_HASH_KEY: Final = len(b',"envelope_hash":"')


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
        "context.planned": Move(frozenset({"SCOPED"}), "PLANNED", "plan"),
        "context.executing": Move(frozenset({"PLANNED", "VERIFYING"}), "EXECUTING", "attempt"),
        "context.verifying": Move(frozenset({"EXECUTING"}), "VERIFYING", "report"),
        "context.completed": Move(frozenset({"VERIFYING"}), "COMPLETED", "verification"),
        "context.failed": Move(LIVE, "FAILED", "reason"),
        "context.halted": Move(LIVE, "HALTED", "reason"),
        "context.needs_human": Move(LIVE, "NEEDS_HUMAN", "reason"),
    }
)
"""Every transition but the first; ``context.noted`` changes no state."""


@attrs.frozen
class LogEntry:
    """One entry of the execution log: its type and its data."""

    event_type: str
    data: Object


@attrs.frozen(kw_only=True)
class RunContext:
    """The state of one run and the artifact of each stage that it has passed.

    *attempts* counts how often the work was started; *report* is the latest one; *reason* tells why a run ended without
    completion. Read from a ledger, a sealed artifact is its ``{"$sealed": …, "size": …}``.
    """

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
    log: tuple[LogEntry, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the whole state as a JSON object that shares nothing with it."""
        whole = attrs.asdict(self)
        return {**whole, "log": list(whole["log"])}


# --- the machine ------------------------------------------------------------------------------------------------------


def advance(context: RunContext | None, event_type: str, payload: Object) -> Result[RunContext]:
    """Return the state after one ``context.*`` event, or an `Err` (``SCHEMA_VIOLATION``) for an illegal transition."""
    if event_type == "context.created":
        return _create(context, payload)
    if context is None:
        return _refuse(event_type, "there is no context yet; context.created comes first")
    if event_type == "context.noted":
        return _note(context, payload)
    return _move(context, event_type, payload)


def _move(context: RunContext, event_type: str, payload: Object) -> Result[RunContext]:
    move = MOVES.get(event_type)
    if move is None:
        return _refuse(event_type, "the machine knows no such move")
    if context.state not in move.since:
        return _refuse(event_type, f"the context is {context.state}; expected {' or '.join(sorted(move.since))}")
    if move.keeps not in payload:
        return _refuse(event_type, f'the payload has no "{move.keeps}"')
    if move.keeps == "attempt":
        return _execute(context, payload["attempt"])
    return Ok(attrs.evolve(context, state=move.to, **{move.keeps: payload[move.keeps]}))


def _create(context: RunContext | None, payload: Object) -> Result[RunContext]:
    if context is not None and context.state in LIVE:
        return _refuse("context.created", f"the context is {context.state}; a new one begins when a run has ended")
    if not {"task", "source"} <= payload.keys():
        return _refuse("context.created", 'the payload needs "task" and "source"')
    return Ok(RunContext(state="CREATED", task=payload["task"], source=payload["source"]))


def _note(context: RunContext, payload: Object) -> Result[RunContext]:
    if not {"event_type", "data"} <= payload.keys():
        return _refuse("context.noted", 'the payload needs "event_type" and "data"')
    note = LogEntry(payload["event_type"], payload["data"])
    return Ok(attrs.evolve(context, log=(*context.log, note)))


def _execute(context: RunContext, attempt: Json) -> Result[RunContext]:
    due = context.attempts + 1
    if isinstance(attempt, int) and attempt != due:
        return _refuse("context.executing", f"attempt {attempt} does not follow attempt {context.attempts}")
    return Ok(attrs.evolve(context, state="EXECUTING", attempts=due))


def _refuse(event_type: str, why: str) -> Err:
    return Err(fault("SCHEMA_VIOLATION", f"{event_type} is not possible: {why}"))


class ContextFold:
    """The fold of ``context.*`` events; events of other types leave the state as it is."""

    def start(self) -> RunContext | None:
        """Return ``None``: there is no context before ``context.created``."""
        return None

    def step(self, state: RunContext | None, event: Event) -> RunContext | None:
        """Return the state after *event*; an illegal move raises `LedgerError` (``LEDGER_UNSOUND``)."""
        if not event.type.startswith("context."):
            return state
        outcome = advance(state, event.type, event.payload)
        if isinstance(outcome, Err):
            raise _unsound(outcome.error.message, place=f"event {event.seq}")
        return outcome.value


# --- the writer -------------------------------------------------------------------------------------------------------


class Recorder:
    """The only writer of a context, passed to flows as `flow.Context`.

    Each method checks its transition, appends one event through *append* and returns ``None``. It raises `Failed` with
    ``SCHEMA_VIOLATION`` for an illegal transition, with ``INTAKE_REFUSED`` for a value that cannot be recorded. Then,
    and when *append* raises, nothing has changed. With *context*, a folded one, the run continues from there.
    """

    def __init__(self, append: Callable[[str, Object], None], context: RunContext | None = None) -> None:
        self._append = append
        self._context = context
        self._lock = Lock()

    @property
    def state(self) -> str:
        """The name of the current state; `ABSENT` before `create`."""
        return self._context.state if self._context else ABSENT

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return self.state in LIVE

    @property
    def context(self) -> RunContext | None:
        """A copy of the current state; changing its artifacts changes nothing here."""
        return copy.deepcopy(self._context)

    def create(self, task: Json, source: str) -> None:
        """Begin: move to CREATED with the request and its channel."""
        self._record("context.created", {"task": task, "source": source})

    def clarify(self, clarification: Object) -> None:
        """Move to CLARIFIED with the clarified request."""
        self._record("context.clarified", {"clarification": dict(clarification)})

    def scope(self, scope: Object) -> None:
        """Move to SCOPED with the limits of the work."""
        self._record("context.scoped", {"scope": dict(scope)})

    def plan(self, plan: Object) -> None:
        """Move to PLANNED with the steps."""
        self._record("context.planned", {"plan": dict(plan)})

    def execute(self) -> None:
        """Move to EXECUTING, for the first time or again; the attempt is counted."""
        attempts = self._context.attempts if self._context else 0
        self._record("context.executing", {"attempt": attempts + 1})

    def verify(self, report: Object) -> None:
        """Move to VERIFYING with the report of the work."""
        self._record("context.verifying", {"report": dict(report)})

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

    def note(self, event_type: str, data: Object) -> None:
        """Add an entry to the execution log, in any state, without a transition."""
        self._record("context.noted", {"event_type": event_type, "data": dict(data)})

    def _record(self, event_type: str, payload: Object) -> None:
        raw = _admit(payload)
        with self._lock:
            outcome = advance(self._context, event_type, decode(raw))
            if isinstance(outcome, Err):
                raise Failed(outcome.error.code, outcome.error.message)
            self._append(event_type, decode(raw))
            self._context = outcome.value


def _admit(payload: Object) -> bytes:
    try:
        return admit(payload)
    except IntakeError as problem:
        raise Failed(problem.error.code, str(problem)) from None


# --- handing over -----------------------------------------------------------------------------------------------------


def save(context: RunContext, head: str, path: Path) -> None:
    """Write a bundle to *path*, atomically: *context*, and *head*, the ledger's envelope hash at that moment.

    Pass the result of folding the ledger: the state that a `Recorder` holds has sealed values open, which would stay in
    the bundle, and `load` would refuse it. A context that exceeds canonical JSON (64 levels, 100,000 nodes) raises
    `IntakeError`.
    """
    with Folder.at(path.parent) as folder:
        folder.replace(path.name, _bundle(context, head))


def load(path: Path, ledger: Path | None = None) -> RunContext:
    """Return the context of the bundle at *path*, after comparing it with *ledger* (default: ``.events.jsonl`` beside).

    Every line of the ledger is checked (its hashes, its link to the line before). Raises `LedgerError`
    (``LEDGER_UNSOUND``) if that fails, if the bundle's head is not in the ledger, if folding up to the head gives
    another state, or if the ledger has moved the context on since.
    """
    with Folder.at(path.parent) as folder:
        raw = folder.read(path.name, limit=MAX_BYTES)
    head = _head(raw, path)
    ledger = ledger or path.parent / ".events.jsonl"
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as lines:
        context = _fold_to(head, _check_lines(lines, ledger), ledger)
    if context is None or _bundle(context, head) != raw:
        raise _unsound("the bundle differs from the ledger; fold the ledger instead", place=str(path))
    return context


def _bundle(context: RunContext, head: str) -> bytes:
    return encode({"schema_version": "v1", "head": head, "context": context.as_json()})


def _head(raw: bytes, path: Path) -> str:
    told = _unsound("not a bundle of a context; expected an object with a head", place=str(path))
    try:
        return str(parse_payload(raw)["head"])
    except IntakeError as problem:
        raise LedgerError(*told.errors, problem.error) from None
    except (KeyError, TypeError):
        raise told from None


class _Line(NamedTuple):
    """A checked line: its envelope hash, and the event if it is one of the context."""

    hash: str
    event: Event | None


def _fold_to(head: str, lines: Iterable[_Line], ledger: Path) -> RunContext | None:
    """Fold up to the line whose hash is *head*, and check that the context has not changed since."""
    fold = ContextFold()
    context = fold.start()
    found = False
    for line in lines:
        if found and line.event:
            raise _unsound("the context has moved on since the bundle was saved; save it again", place=str(ledger))
        context = fold.step(context, line.event) if line.event else context
        found = found or line.hash == head
    if not found:
        raise _unsound(f"no line has the bundle's head {head[:64]}", place=str(ledger))
    return context


def _check_lines(lines: BinaryIO, ledger: Path) -> Iterator[_Line]:
    previous = None
    for number, line in enumerate(iter(lambda: lines.readline(_MAX_LINE), b""), 1):
        if not line.endswith(b"\n") and len(line) < _MAX_LINE:
            return  # still being written, or torn: readers ignore it
        place = f"{ledger}:{number}"
        header = HEADER.match(line)
        if header is None or not line.endswith(b"}\n"):
            raise _unsound("not a line of format 1.1", place=place)
        part = {name: value.decode() for name, value in header.groupdict(b"").items()}
        payload = line[header.end() : -2]
        previous = previous or first_hash(part["session_id"])
        hashes = (digest(payload), previous, digest(line[: header.start("envelope_hash") - _HASH_KEY]))
        if hashes != (part["payload_hash"], part["prev_envelope_hash"], part["envelope_hash"]):
            raise _unsound("the line's hashes do not match; run deedbook verify", place=place)
        previous = part["envelope_hash"]
        yield _Line(previous, _event(part, payload, place))


def _event(part: Mapping[str, str], payload: bytes, place: str) -> Event | None:
    if not part["event_type"].startswith("context."):
        return None
    try:
        said = decode(payload)
    except ValueError:
        raise _unsound("the payload is no JSON", place=place) from None
    above = part["parent_span_id"] or None
    principal = part["principal"] or None
    return Event(
        int(part["seq"]), part["event_type"], part["actor"], principal, part["span_id"], above, part["ts"], said
    )


def _unsound(message: str, *, place: str) -> LedgerError:
    return LedgerError(fault("LEDGER_UNSOUND", message, place=place))
