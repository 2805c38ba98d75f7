"""A whole governed call, beside the least that could write as much, a log library, and careless code (T2, T3)."""

import asyncio
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from benchmarks.hashes import hashed_by
from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.rounds import CPU, WALL, Plan, Work
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.format import canonical
from deedbook.policy.gates import answer
from deedbook.policy.judge import DecisionContext, make_call
from deedbook.sessions.session import Session

try:
    import structlog
except ImportError:
    structlog = None
try:
    import jsonschema
except ImportError:
    jsonschema = None

_VARIANTS: Final = {
    "os": {"durability": "os"},
    "boundary, reading": {"durability": "boundary", "effects": "read"},
    "os, and a post hook": {"durability": "os", "observers": 1},
}
_WRITING: Final = {"durability": "boundary", "effects": "write"}
_DURABLE: Final = 300


def run(plan: Plan) -> Iterator[Line]:
    """Measure a call of `echo`: schemas in and out, a hook, a policy, a chained record on a real file."""
    for name, variant in _VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder, session(**variant) as made:
            yield from _figures(plan, f"governed call ({name})", made, Path(folder))
    with tempfile.TemporaryDirectory() as folder, session(**_WRITING) as made:
        yield from _writing(plan, "governed call (boundary, writing)", made, Path(folder))
    with session() as made:
        yield from _shares(plan, "share of a governed call (os)", made)
    yield from _awaited(plan)
    imported = {"structlog": structlog, "jsonschema": jsonschema}
    if lacking := [name for name, module in imported.items() if module is None]:
        yield missing("governed calls beside log lines or careless code", *lacking)


def _figures(plan: Plan, what: str, made: Session, folder: Path) -> Iterator[Line]:
    record = Record.of(made)
    candidates: dict[str, Work] = {
        "ours": lambda: made.call("echo", ARGS),
        "floor": floor(record, folder / "floor.jsonl"),
    }
    if structlog is not None:
        candidates["structlog"] = log_lines(record, folder / "structlog.jsonl")
    if jsonschema is not None:
        candidates["careless"] = careless(record, folder / "careless.jsonl")
    times = plan.take_turns(candidates)
    yield Value(f"{what}, {record.size} bytes: CPU", times.micros("ours"), "µs")
    yield Measure(f"{what}: to {record.least}", "at most", 3.0, times.ratio("ours", "floor"), 2.5)
    if structlog is not None:
        against = f"{what}: to {len(record.lines)} structlog JSON lines"
        yield Measure(against, "at most", 1.2, times.ratio("ours", "structlog"), 1.0)
    if jsonschema is not None:
        yield Measure(f"{what}: faster than careless code", "at least", 6, times.ratio("careless", "ours"))


def _writing(plan: Plan, what: str, made: Session, folder: Path) -> Iterator[Line]:
    """Measure a call whose intent is synced before it begins, in CPU time of its thread and in elapsed time."""
    record = Record.of(made)
    candidates: dict[str, Work] = {
        "ours": lambda: made.call("echo", ARGS),
        "floor": floor(record, folder / "floor.jsonl", synced=True),
    }
    least = f"{record.least}, 1 fdatasync"
    times = plan.once_each(candidates, rounds=plan.size(_DURABLE, 3))
    yield Value(f"{what}: CPU", times.micros("ours"), "µs")
    yield Value(f"{what}: to {least}, CPU", times.ratio("ours", "floor"))
    times = plan.once_each(candidates, clock=WALL, rounds=plan.size(_DURABLE, 3))
    yield Value(f"{what}: elapsed", times.micros("ours"), "µs")
    yield Value(f"{what}: to {least}, elapsed", times.ratio("ours", "floor"))


def _shares(plan: Plan, what: str, made: Session) -> Iterator[Line]:
    """Measure parts of a call in turns with the whole: hashing, validation, dispatch, and the writes."""
    record = Record.of(made)
    result = made.call("echo", ARGS).value
    with tempfile.TemporaryDirectory() as folder:
        times = plan.take_turns(
            {
                "whole": lambda: made.call("echo", ARGS),
                "canonical": lambda: (canonical.admit(ARGS), canonical.admit(result)),
                "hashes": hashing(record),
                "validation": validation(made, result),
                "dispatch": dispatch(made),
                "writes": writing([record.before, record.after], Path(folder) / "lines"),
            }
        )
    parts = {
        "canonical": "arguments and result to canonical bytes",
        "hashes": f"hashing, {len(record.hashed)} SHA-256",
        "validation": "validation, arguments and result",
        "dispatch": "dispatch, a hook and a policy asked",
        "writes": "two writes of the finished lines",
    }
    for name, part in parts.items():
        yield Value(f"{what}: {part}", times.ratio(name, "whole").times(100), "%")


def _awaited(plan: Plan) -> Iterator[Line]:
    """Measure `acall` beside `call`, both in batches, so that the start of the event loop hardly counts."""
    for name, variant, measured in (("os", {}, "CPU"), ("boundary, writing", _WRITING, "elapsed")):
        count = plan.size(200 if measured == "CPU" else 5, 2)
        with asyncio.Runner() as runner, session(**variant) as made:
            works = {"acall": awaited(runner, made, count), "call": called(made, count)}
            times = plan.once_each(works, clock=CPU if measured == "CPU" else WALL, rounds=plan.size(41, 2))
        yield Value(f"acall ({name}): {measured}", times.micros("acall", count), "µs")
        yield Value(f"acall ({name}): to call, {measured}", times.ratio("acall", "call"))


# --- what a call writes and hashes ----------------------------------------------------------------------------------


@attrs.frozen
class Record:
    """What one call leaves: its *lines* in the ledger, and the bytes that were *hashed* for them, in order."""

    lines: list[bytes]
    hashed: list[bytes]

    @classmethod
    def of(cls, made: Session) -> "Record":
        """Call `echo` once more in a session that has called it before, and return what that one left."""
        made.call("echo", ARGS)  # answers that are recorded for the first time are hashed once more
        file = ledger_file(made)
        before = file.stat().st_size
        hashed = hashed_by(lambda: made.call("echo", ARGS))
        return cls(file.read_bytes()[before:].splitlines(keepends=True), hashed)

    @property
    def before(self) -> list[bytes]:
        """The lines that are written before the handler runs."""
        return self.lines[: self._split]

    @property
    def after(self) -> list[bytes]:
        """The lines that are written after it."""
        return self.lines[self._split :]

    @property
    def _split(self) -> int:
        intent = next(i for i, line in enumerate(self.lines) if b'"event_type":"tool.call"' in line)
        return intent + 1

    @property
    def size(self) -> int:
        """How many bytes the lines have."""
        return sum(map(len, self.lines))

    @property
    def least(self) -> str:
        """What `floor` does, in words."""
        return f"{len(self.lines)} dumps, {len(self.hashed)} SHA-256, 2 writes"


def floor(record: Record, file: Path, *, synced: bool = False) -> Work:
    """Return the least that writes such lines: each dumped once, the hashes that ours makes, two writes, a sync."""
    events = [[orjson.loads(line) for line in part] for part in (record.before, record.after)]
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    hashed, (before, after) = record.hashed, events
    dumps, newline = orjson.dumps, orjson.OPT_APPEND_NEWLINE

    def work() -> None:
        for each in hashed:
            sha256(each).hexdigest()
        os.write(fd, b"".join([dumps(event, option=newline) for event in before]))
        if synced:
            os.fdatasync(fd)
        os.write(fd, b"".join([dumps(event, option=newline) for event in after]))

    return work


def hashing(record: Record) -> Work:
    """Return the hashes of one call."""
    hashed = record.hashed
    return lambda: [sha256(each).hexdigest() for each in hashed]


def writing(parts: list[list[bytes]], file: Path) -> Work:
    """Return one write for each of *parts*."""
    fd, joined = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), [b"".join(part) for part in parts]
    return lambda: [os.write(fd, each) for each in joined]


def validation(made: Session, result: Any) -> Work:
    """Return the validation of one call's arguments and result."""
    bound = made.bindings.abilities["echo"]
    takes, gives = bound.takes.valid, bound.gives.valid
    assert takes(ARGS)
    assert gives(result)
    return lambda: (takes(ARGS), gives(result))


def dispatch(made: Session) -> Work:
    """Return the asking of one call's hooks and policies, as the judge does it."""
    bound, clock = made.bindings.abilities["echo"], made.door.clock
    gates = (*bound.guards, *bound.policies)
    when = DecisionContext("2026-01-01T00:00:00.000Z", made.id, {})
    subject = make_call(made.bindings, made.caller, bound, ARGS, canonical.admit(ARGS), when)
    return lambda: [(gate, answer(gate, clock, subject)) for gate in gates]


def called(made: Session, count: int) -> Work:
    """Return *count* calls from plain code."""

    def work() -> None:
        for _ in range(count):
            made.call("echo", ARGS)

    return work


def awaited(runner: asyncio.Runner, made: Session, count: int) -> Work:
    """Return *count* calls from a coroutine, one awaited after the other."""

    async def work() -> None:
        for _ in range(count):
            await made.acall("echo", ARGS)

    return lambda: runner.run(work())


def log_lines(record: Record, file: Path) -> Work:
    """Return as many JSON lines of structlog, each with the fields of an event, set up as its performance page says."""
    log = structlog.wrap_logger(
        structlog.BytesLogger(file.open("ab")),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    ).bind(session_id=uuid.uuid4().hex, trace_id=uuid.uuid4().hex, schema_version="1.1")
    keys = ("actor", "principal", "span_id", "parent_span_id", "payload")
    events = [orjson.loads(line) for line in record.lines]
    fields = [(event["event_type"], {key: event[key] for key in keys}) for event in events]

    def work() -> None:
        for name, more in fields:
            log.info(name, **more)

    return work


# --- the same call, written without care for its cost ---------------------------------------------------------------


@attrs.frozen
class _Envelope:
    schema_version: str
    event_type: str
    session_id: str
    trace_id: str
    ts: str
    actor: str
    span_id: str
    parent_span_id: str | None
    payload: Any
    payload_hash: str


def careless(record: Record, file: Path) -> Work:
    """Return the call as it is often written: json.dumps twice an event, the file opened for each, and no chain."""
    ids = uuid.uuid4().hex, uuid.uuid4().hex
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    valid = jsonschema.Draft202012Validator(schema).validate
    answers = [orjson.loads(line) for line in record.lines if b'"asked"' in line]

    def emit(event_type: str, actor: str, payload: Any, parent: str | None) -> str:
        return _emit(file, ids, event_type, actor, payload, parent)

    def work() -> Any:
        valid(ARGS)
        for event in answers:
            emit(event["event_type"], "policy", event["payload"], None)
        span = emit("tool.call", "user", {"tool_name": "echo", "args": ARGS}, None)
        result = {"text": ARGS["text"]}
        valid(result)
        emit("tool.result", "tool", {"tool_name": "echo", "result": result}, span)
        return result

    return work


def _emit(file: Path, ids: tuple[str, str], event_type: str, actor: str, payload: Any, parent: str | None) -> str:
    span = str(uuid.uuid4())
    ts = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")  # noqa: UP017 - as it is often written
    digest = sha256(_dumped(payload).encode()).hexdigest()
    envelope = _Envelope("1.0", event_type, *ids, ts, actor, span, parent, payload, digest)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(_dumped(attrs.asdict(envelope)) + "\n")
    return span


_dumped: Final[Callable[[Any], str]] = lambda value: json.dumps(  # noqa: E731
    value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
)
