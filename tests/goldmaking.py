"""How the golden ledgers were made: by the command where a command does it, else by the kernel's own writers."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import ledgers
import logs
from commandline import Place, starter
from test_old_verification import complete

from deedbook.format.canonical import encode
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger, WorkspaceLedger

SEAL = "seal:\n  - tool.call/args/text\n  - task.*/args/text\n#"


def every(work: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each golden ledger and where it was made, in the folder *work*."""
    yield from _old(work)
    yield from _commanded(work / "w")
    for make in (ledgers.run, ledgers.call, ledgers.approved, ledgers.bridged, ledgers.served, ledgers.tasked):
        yield f"1.1/written-{make.__name__}", _session(work / make.__name__, make())
    for make in (ledgers.workspace, ledgers.queue, ledgers.chores, ledgers.importing, logs.workspace):
        yield f"1.1/written-ws-{make.__module__}-{make.__name__}", _workspace(work / f"ws-{make.__name__}", make())


# --- older forms ------------------------------------------------------------------------------------------------------


def _line(kind: str, payload: dict, span: str, parent: str | None = None, session: str = "p00-a") -> bytes:
    spell = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    causal = {"_actor": kind.partition(".")[0].replace("session", "runtime"), "_source": "golden", "_span_id": span}
    payload = {**payload, **causal, **({"_parent_span_id": parent} if parent else {})}
    digest = sha256(json.dumps(payload, **spell).encode()).hexdigest()
    row = {"event_type": kind, "payload": payload, "payload_hash": digest, "schema_version": "1.0",
           "session_id": session, "trace_id": f"t-{session}", "ts": f"2025-12-18T02:28:1{len(span)}.544Z"}  # fmt: skip
    return json.dumps(row, **spell).encode() + b"\n"


def _old(work: Path) -> Iterator[tuple[str, Path]]:
    two = [
        _line("session.start", {"message": "begun"}, "a"),
        _line("user.message", {"text": "Grüße \u2028 \U0001f600", "x": 1e16, "y": 0.1}, "b", "a"),
        _line("session.start", {"message": "another"}, "z", session="p00-b"),
        _line("agent.reply", {"reply": "counting", "tool_calls": []}, "c", "b"),
        _line("tool.call", {"tool_name": "count", "args": {"of": [1, None, True]}}, "d", "c"),
        _line("tool.result", {"tool_name": "count", "result": {"count": 3}}, "e", "d"),
        _line("tool.invoke", {"tool_name": "count", "args": {}}, "f", "c"),
        _line("tool.error", {"tool_name": "count", "code": "X", "message": "no", "outcome": "failed"}, "g", "f"),
        _line("session.end", {"message": "done"}, "h", "g"),
        _line("session.close", {"message": "done"}, "y", "z", session="p00-b"),
    ]
    for name, raw in (("1.0/two-sessions", b"".join(two)), ("seed-000/run", b"".join(complete()))):
        (work / f"{name.replace('/', '-')}.jsonl").write_bytes(raw)
        yield name, work / f"{name.replace('/', '-')}.jsonl"


# --- the present form -------------------------------------------------------------------------------------------------


def _commanded(path: Path) -> Iterator[tuple[str, Path]]:
    """Use the command, so that the kernel writes what it writes for people."""
    place = starter(path)
    place.configure("seal:", SEAL)
    text = (path / ".system/deedbook.yaml").read_text()
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("- {detect")]
    (path / ".system/deedbook.yaml").write_text("\n".join(kept) + "\n")
    place.env["XDG_CONFIG_HOME"] = str(path / ".config")
    made: dict[str, str] = {}
    for name, args in _STEPS.items():
        before = set(place.sessions())
        place.run(*args)
        made |= dict.fromkeys(set(place.sessions()) - before, name)
    _correct(place, {name: session for session, name in made.items()})
    for session, name in made.items():
        yield f"1.1/{name}", place.ledger(session)
    yield "1.1/workspace", path / ".deedbook/workspace/.events.jsonl"


_STEPS = {
    "greeting": ["run", "Say hello to Ada"],
    "no-rule": ["run", "What is the weather?"],
    "call": ["call", "echo", "--args", '{"text":"hi \\u2028 \\ud83d\\ude00"}'],
    "denied": ["call", "rm"],
    "invalid": ["call", "echo", "--args", "[]"],
    "failed": ["call", "file-read", "--args", '{"path":"absent"}'],
    "task-made": ["tasks", "create", "echo", "--args", '{"text":"later"}'],
    "task-run": ["tasks", "run", "last"],
    "key": ["keys", "rotate"],
    "checkpointed": ["call", "echo", "--args", '{"text":"covered"}'],
    "erased": ["call", "echo", "--args", '{"text":"to be erased"}'],
    "excised": ["call", "count", "--args", '{"text":"to be taken out"}'],
}


def _correct(place: Place, made: dict[str, str]) -> None:
    why = ["--reason", "for the golden ledgers"]
    place.run("ledger", "amend", made["call"], "3", "--set", '/args/text="ho"', *why, status=0)
    place.run("ledger", "amend", made["call"], "6", "--set", '/reason="another"', *why)
    place.run("ledger", "erase", made["erased"], *why, status=0)
    place.run("ledger", "excise", made["failed"], "1", *why, "--yes", status=0)
    place.run("ledger", "checkpoint")
    (place.path / "old.jsonl").write_bytes(b"".join(complete()))
    place.run("ledger", "import", "old.jsonl", status=0)


def _entries(book: ledgers.Book, root: str = "") -> Iterator[Entry]:
    """Yield what an honest ledger of the tests says, for the kernel's writer."""
    events = [json.loads(line) for line in book.lines]
    for event in events:
        above = event["parent_span_id"]
        above = root if root and above == events[0]["span_id"] else above
        said = label(event["event_type"], event["actor"], event["principal"])
        yield Entry(said, event["span_id"], above, encode(event["payload"]))


def _clock() -> Callable[[], float]:
    times = iter(range(10**6))
    return lambda: 1_800_000_000 + next(times) / 1000


def _session(place: Path, book: ledgers.Book) -> Path:
    ledger = Ledger.create(Folder.at(place, create=True), book.session_id, book.trace_id, clock=_clock())
    for entry in _entries(book):
        ledger.append([entry])
    ledger.close()
    return place / ".events.jsonl"


def _workspace(place: Path, book: ledgers.Book) -> Path:
    with Folder.at(place, create=True) as state:
        ledger = WorkspaceLedger.open(state, workspace="w", clock=_clock())
    for entry in list(_entries(book, ledger.root))[1:]:
        ledger.append([entry])
    ledger.close()
    return place / "workspace/.events.jsonl"
