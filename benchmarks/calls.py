"""A whole governed call, beside the least that could write as much, a log library, and code without care (T2, T3)."""

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

from benchmarks.measures import Line, Measure, Note
from benchmarks.rounds import Times, Work, take_turns
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.session import Session

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


def run() -> Iterator[Line]:
    """Measure a call of `echo`: schemas in and out, a hook, a policy, a chained record on a real file."""
    for name, variant in _VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder, session(**variant) as made:
            yield from _figures(f"governed call ({name})", made, Path(folder))


def _figures(what: str, made: Session, folder: Path) -> Iterator[Line]:
    written = lines_of(lambda: made.call("echo", ARGS), ledger_file(made))
    candidates: dict[str, Work] = {
        "ours": lambda: made.call("echo", ARGS),
        "floor": floor(written, folder / "floor.jsonl"),
    }
    if structlog is not None:
        candidates["structlog"] = log_lines(written, folder / "structlog.jsonl")
    if jsonschema is not None:
        candidates["naive"] = naive(written, folder / "naive.jsonl")
    times = take_turns(candidates)
    yield Note(_context(what, written, times))
    count = f"{len(written)} dumps, {2 * len(written)} SHA-256, 2 writes"
    yield Measure(f"{what}: to {count}", "at most", 3.0, times.ratio("ours", "floor"), 2.5)
    if structlog is None:
        yield Note(f"{what}: structlog is not installed; skipped")
    else:
        against = f"{what}: to {len(written)} structlog JSON lines"
        yield Measure(against, "at most", 1.2, times.ratio("ours", "structlog"), 1.0)
    if jsonschema is None:
        yield Note(f"{what}: jsonschema is not installed; naive code skipped")
    else:
        yield Measure(f"{what}: faster than naive code", "at least", 6, times.ratio("naive", "ours"))


def _context(what: str, written: list[bytes], times: Times) -> str:
    size = sum(map(len, written))
    return f"{what}: {len(written)} lines, {size} bytes; here and now {times.micros('ours'):.0f} µs of CPU"


def lines_of(work: Work, file: Path) -> list[bytes]:
    """Return the lines that *work* adds to *file*."""
    before = file.stat().st_size
    work()
    return file.read_bytes()[before:].splitlines(keepends=True)


def floor(written: list[bytes], file: Path) -> Work:
    """Return the least that writes such lines: each dumped once, two hashes of what ours hashes, two writes."""
    events = [orjson.loads(line) for line in written]
    hashed = [line.partition(b',"envelope_hash"')[0] for line in written]
    hashed += [line.partition(b'"payload":')[2][:-2] for line in written]
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    before, after = events[:-1], events[-1:]
    dumps, newline = orjson.dumps, orjson.OPT_APPEND_NEWLINE

    def work() -> None:
        for each in hashed:
            sha256(each).hexdigest()
        os.write(fd, b"".join([dumps(event, option=newline) for event in before]))
        os.write(fd, b"".join([dumps(event, option=newline) for event in after]))

    return work


def log_lines(written: list[bytes], file: Path) -> Work:
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
    events = [orjson.loads(line) for line in written]
    fields = [(event["event_type"], {key: event[key] for key in keys}) for event in events]

    def work() -> None:
        for name, more in fields:
            log.info(name, **more)

    return work


# --- the same call as it is written when nobody looks at the cost -----------------------------------------------------


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


def naive(written: list[bytes], file: Path) -> Work:
    """Return the call as it is often written: json.dumps twice an event, the file opened for each, and no chain."""
    ids = uuid.uuid4().hex, uuid.uuid4().hex
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    valid = jsonschema.Draft202012Validator(schema).validate
    asked = [orjson.loads(line) for line in written if b'"asked"' in line]

    def emit(event_type: str, actor: str, payload: Any, parent: str | None) -> str:
        return _emit(file, ids, event_type, actor, payload, parent)

    def work() -> Any:
        valid(ARGS)
        for event in asked:
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
