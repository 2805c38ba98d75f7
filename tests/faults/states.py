"""Whole workspaces to be tampered with: one made by the real command, and what somebody can do who may write its files.

Nothing here shares code with the kernel's writer or its verifier, but for the command that makes the honest one: lines,
heads and the log are computed from ``docs/ledger-format.md`` with hashlib and json.
"""

import json
import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
from commandline import Place
from ledgers import canonical, digest, signed, verifier_key

NAME = ".events.jsonl"
HOME = "home"
"""What the workspace ledger is called here; a session is called by what it was made for."""
LOG = ("ledger.key", "ledger.leaf", "ledger.checkpoint", "ledger.witnessed")
THEIRS = bytes(range(1, 33))
"""The seed of an attacker's private key."""
SETTINGS: dict[str, Any] = {
    "schema_version": "v1",
    "principals": {"ada": {"key": "ada.pub", "roles": ["approver"]}},
    "seal": [{"pattern": "PIN-[0-9]+"}],
    "abilities": {
        "echo": {"summary": "Echo.", "handler": {"tool": "echo"}},
        "asked": {"summary": "Echo, if a person agrees.", "handler": {"tool": "echo"}, "tags": ["approval-gate"]},
    },
}

OLD = (
    '{"event_type":"session.start","payload":{"_span_id":"a"},"payload_hash":"'
    + sha256(b'{"_span_id":"a"}').hexdigest()
    + '","schema_version":"1.0","session_id":"old","trace_id":"t","ts":"2025-01-01T00:00:00.000Z"}\n'
)
"""A ledger of the envelope 1.0."""


@attrs.define
class Event:
    """One line, taken apart: its header's fields and the payload."""

    header: dict[str, Any]
    payload: dict[str, Any]

    @property
    def type(self) -> str:
        """The event's type."""
        return str(self.header["event_type"])

    @classmethod
    def parse(cls, line: bytes) -> "Event":
        """Take a line apart."""
        fields = json.loads(line)
        return cls(fields, fields.pop("payload"))

    def line(self, seq: int, prev: str) -> tuple[bytes, str]:
        """Return the line at *seq* behind one with the hash *prev*, and its own hash."""
        raw = canonical(self.payload)
        hashed = self.header["payload_hash"] if "$excised" in self.payload else digest(raw)
        fields = self.header | {"seq": seq, "payload_hash": hashed, "prev_envelope_hash": prev}
        fields.pop("envelope_hash", None)
        head = json.dumps(fields, separators=(",", ":")).encode()[:-1]
        own = digest(head)
        return head + b',"envelope_hash":"' + own.encode() + b'","payload":' + raw + b"}\n", own


class State:
    """A workspace's files. *names* says which session is which; the log's key is *key*, made from *seed*."""

    def __init__(self, root: Path, names: dict[str, str], key: str = "", seed: bytes = b"") -> None:
        self.root, self.names, self.key, self.seed = root, names, key, seed
        self.place = Place(root)
        self.state = root / ".deedbook"

    def copy(self, to: Path) -> "State":
        """Return a copy, to be tampered with."""
        shutil.copytree(self.root, to, symlinks=True)
        return State(to, self.names, self.key, self.seed)

    # --- files --------------------------------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        """Return the folder of a ledger."""
        return self.state / "workspace" if name == HOME else self.state / "sessions" / self.names.get(name, name)

    def file(self, name: str) -> Path:
        """Return a ledger's file."""
        return self.folder(name) / NAME

    def lines(self, name: str) -> list[bytes]:
        """Return the lines of a ledger."""
        return self.file(name).read_bytes().splitlines(keepends=True)

    def put(self, name: str, lines: list[bytes]) -> None:
        """Write the lines of a ledger."""
        self.file(name).write_bytes(b"".join(lines))

    def sealed(self, name: str) -> list[Path]:
        """Return the files of a ledger's sealed values."""
        return sorted((self.folder(name) / "sealed").iterdir())

    @property
    def identity(self) -> str:
        """The workspace ledger's id."""
        return str(json.loads(self.lines(HOME)[0])["session_id"])

    @property
    def checkpoint(self) -> Path:
        """The file with the newest checkpoint."""
        return self.state / "checkpoint"

    # --- events -------------------------------------------------------------------------------------------------------

    def events(self, name: str) -> list[Event]:
        """Return the events of a ledger."""
        return list(map(Event.parse, self.lines(name)))

    def rewrite(self, name: str, events: list[Event]) -> None:
        """Write a ledger whose hashes and chain are right for these *events*, renumbered."""
        kind = "workspace" if name == HOME else "session"
        prev, lines = digest(f"deedbook-{kind}-1.1\n{events[0].header['session_id']}".encode()), []
        for seq, event in enumerate(events):
            line, prev = event.line(seq, prev)
            lines.append(line)
        self.put(name, lines)

    def edit(self, name: str, change: Callable[[list[Event]], list[Event] | None]) -> None:
        """Change events, and make hashes and chain right again."""
        events = self.events(name)
        self.rewrite(name, change(events) or events)

    def number(self, name: str, event_type: str, nth: int = 0) -> int:
        """Return the seq of the *nth* event of a type (from the end, if it is negative)."""
        return [seq for seq, event in enumerate(self.events(name)) if event.type == event_type][nth]

    def heads(self) -> None:
        """Let the workspace ledger say of sessions what their files now hold."""

        def change(events: list[Event]) -> None:
            for event in events:
                if event.type == "ledger.session" and self.file(event.payload["session_id"]).exists():
                    lines = self.lines(event.payload["session_id"])
                    event.payload["events"] = count = min(event.payload["events"], len(lines))
                    event.payload["head"] = json.loads(lines[count - 1])["envelope_hash"]

        self.edit(HOME, change)

    def agree(self) -> None:
        """Let sessions say where the answers that they took over now stand, and the workspace ledger what they hold."""
        lines = [json.loads(line) for line in self.lines(HOME)]
        stands = {
            line["payload"]["signed"]: {"seq": line["seq"], "hash": line["envelope_hash"]}
            for line in lines
            if line["event_type"] == "approval.answered"
        }

        def change(events: list[Event]) -> None:
            for event in events:
                event.payload.update(stands.get(event.payload.get("signed", ""), {}))

        for file in sorted((self.state / "sessions").glob(f"*/{NAME}")):
            if b'"approval.granted"' in file.read_bytes():
                self.edit(file.parent.name, change)
        self.heads()

    # --- the log ------------------------------------------------------------------------------------------------------

    def log(self, seed: bytes) -> None:
        """Write the log anew, with this key, from what all ledgers now hold; and the file with the newest checkpoint.

        A checkpoint is where a session has ended.
        """
        kept = [event for event in self.events(HOME) if event.type not in LOG]
        made, log = _Made(self, kept[0]), _Log(f"deedbook/{self.identity}", seed)
        for event in kept:
            made.add(event)
            if made.size == 1:
                made.note("ledger.key", log.key())
            if event.type == "ledger.session" and event.payload["state"] == "ended":
                made.leaf(log, self.identity, made.size, made.hashes)
                session = event.payload["session_id"]
                if self.file(session).exists():
                    hashes = [json.loads(line)["envelope_hash"] for line in self.lines(session)]
                    made.leaf(log, session, event.payload["events"], hashes)
                made.note("ledger.checkpoint", log.checkpoint())
        self.put(HOME, made.lines)
        self.checkpoint.write_text(log.newest, encoding="utf-8")


class _Made:
    """The workspace ledger, line by line."""

    def __init__(self, state: State, first: Event) -> None:
        self.lines: list[bytes] = []
        self.hashes: list[str] = []
        self._first = first
        self._prev = digest(f"deedbook-workspace-1.1\n{state.identity}".encode())

    @property
    def size(self) -> int:
        return len(self.lines)

    def add(self, event: Event) -> None:
        line, self._prev = event.line(self.size, self._prev)
        self.lines.append(line)
        self.hashes.append(self._prev)

    def note(self, event_type: str, payload: dict[str, Any]) -> None:
        ts = json.loads(self.lines[-1])["ts"]
        span = digest(f"{event_type} {self.size}".encode())[:15] + "a"
        header = self._first.header | {"event_type": event_type, "span_id": span, "ts": ts}
        self.add(Event(header | {"parent_span_id": self._first.header["span_id"]}, payload))

    def leaf(self, log: "_Log", session: str, size: int, hashes: list[str]) -> None:
        leaves = [leaf_hash(bytes.fromhex(each)) for each in hashes[:size]]
        told = {"session_id": session, "size": size, "head": hashes[size - 1], "root": root(leaves).hex()}
        index = len(log.leaves)
        log.leaves.append(leaf_hash(canonical(told)))
        self.note("ledger.leaf", {**told, "index": index, "peaks": [peak.hex() for peak in peaks(leaves)]})


@attrs.define
class _Log:
    """A log with one key."""

    origin: str
    seed: bytes
    leaves: list[bytes] = attrs.field(factory=list)
    newest: str = ""

    def key(self) -> dict[str, Any]:
        key = verifier_key(self.origin, self.seed)
        text = f"deedbook log key v1\n{self.origin}\n{key}\n-\n"
        return {"key": key, "previous": None, "signed": signed(text, self.origin, self.seed)}

    def checkpoint(self, why: str = "session_end") -> dict[str, Any]:
        top = root(self.leaves)
        text = f"{self.origin}\n{len(self.leaves)}\n{b64encode(top).decode()}\n"
        self.newest = signed(text, self.origin, self.seed)
        told = {"origin": self.origin, "size": len(self.leaves), "root": top.hex()}
        return {**told, "peaks": [peak.hex() for peak in peaks(self.leaves)], "note": self.newest, "why": why}


# --- trees, as RFC 6962 defines them ----------------------------------------------------------------------------------


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + data).digest()


def root(leaves: list[bytes]) -> bytes:
    """Return the root over these hashes of leaves."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + root(leaves[:split]) + root(leaves[split:])).digest()


def peaks(leaves: list[bytes]) -> Iterator[bytes]:
    """Yield the roots of the complete subtrees, the largest first."""
    if leaves:
        split = 1 << len(leaves).bit_length() - 1
        yield root(leaves[:split])
        yield from peaks(leaves[split:])


# --- an honest one ----------------------------------------------------------------------------------------------------


@contextmanager
def keys_in(folder: Path) -> Iterator[None]:
    """Let the key ring be in *folder*."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_CONFIG_HOME")
        if before is not None:
            os.environ["XDG_CONFIG_HOME"] = before


def honest(work: Path, *, log: bool = True) -> State:
    """Make a workspace by the real command: calls, sealed values, a task, an approval; with *log* checkpoints of it."""
    place, names = Place(work / "honest"), dict[str, str]()
    place.system("deedbook.yaml", json.dumps(SETTINGS))
    place.write("old.jsonl", OLD)
    (work / "config").mkdir(exist_ok=True)
    with keys_in(work / "config"):
        place.here("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
        key = place.here("keys", "rotate", status=0).out.strip() if log else ""
        for name, arguments in {
            "call": ("call", "echo", "--args", '{"text":"hi"}'),
            "other": ("call", "echo", "--args", '{"text":"ho"}'),
            "sealed": ("call", "echo", "--args", '{"text":"my PIN-4711"}'),
            "two": ("call", "echo", "--args", '{"text":"his PIN-0815"}'),
            "created": ("tasks", "create", "echo", "--args", '{"text":"later"}'),
            "task": ("tasks", "run", "last"),
            "parked": ("call", "asked", "--args", '{"text":"may I"}'),
            "answer": ("approvals", "approve", "{request}"),
            "approved": ("approvals", "run", "last"),
            "gone": ("call", "echo", "--args", '{"text":"never sealed"}'),
            "excised": ("ledger", "excise", "{gone}", "1", "--reason", "it must not stay", "--yes"),
            "erased": ("call", "echo", "--args", '{"text":"her PIN-1234"}'),
            "erasure": ("ledger", "erase", "{erased}", "--reason", "she asked for it"),
            "amended": ("ledger", "amend", "{other}", "1", "--set", '/args/text="hoo"', "--reason", "misheard"),
            "import": ("ledger", "import", "old.jsonl"),
        }.items():
            before = set(place.sessions())
            if name == "answer":
                names["request"] = place.request()
            place.here(
                *(word.format(**names) if "{" in word[:1] and '"' not in word else word for word in arguments),
                status=3 if name == "parked" else 0,
            )
            new = set(place.sessions()) - before
            names |= dict.fromkeys([name] if new else [], new.pop() if new else "")
    (private,) = [file.read_text() for file in (work / "config").rglob("ws-*")] or [""]
    return State(place.path, names, key, b64decode(private.split("+", 4)[-1])[1:])
