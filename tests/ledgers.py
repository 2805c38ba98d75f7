"""Ledgers as docs/ledger-format.md describes them, written with hashlib and json alone: an oracle for the real writer.

Nothing here imports the kernel. `Book` writes one ledger; `run`, `call`, `workspace`, `approved`, `bridged` and `queue`
are whole honest ones; `forge` makes hashes and chain right again after somebody changed lines.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HASH = "0123456789abcdef" * 4
SEED = bytes(range(32))
OWN = "ws-" + "0d" * 16
RECOVERED = {
    "closed": [{"session_id": "c1" * 16, "unknown": 2}],
    "removed": ["c2" * 16],
    "refused": [{"session_id": "c3" * 16, "code": "LEDGER_UNSOUND", "reason": "it was cut"}],
    "died": ["b9" * 16],
}
"""What an honest recovery found."""
ENDING = re.compile(rb'"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"$')


def canonical(value: Any) -> bytes:
    """Spell *value* as RFC 8785 does; floats are left to the writers whose business they are."""
    return json.dumps(_ordered(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    assert not isinstance(value, float)
    return value


def digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


class Book:
    """One ledger in the making. Spans count from 1, time goes on by a millisecond a line."""

    def __init__(self, session_id: str = "5e" * 16, trace_id: str = "7a" * 16, *, genesis: str = "session") -> None:
        self.session_id = session_id
        self.trace_id = trace_id
        self.prev = digest(f"deedbook-{genesis}-1.1\n{session_id}".encode())
        self.lines: list[bytes] = []

    def add(
        self,
        event_type: str,
        payload: Any,
        *,
        parent: str | None = None,
        actor: str = "runtime",
        principal: str | None = None,
        **header: Any,
    ) -> str:
        """Add an event and return its span; *header* overrides any field, *payload* may be bytes to be taken as is."""
        seq = len(self.lines)
        raw = payload if isinstance(payload, bytes) else canonical(payload)
        span = header.get("span_id", f"{seq + 1:016x}")
        fields = {
            "schema_version": "1.1",
            "session_id": self.session_id,
            "trace_id": self.trace_id,
            "seq": seq,
            "ts": f"2026-11-21T22:{seq // 60000 % 60:02d}:{seq // 1000 % 60:02d}.{seq % 1000:03d}Z",
            "event_type": event_type,
            "actor": actor,
            "principal": principal,
            "span_id": span,
            "parent_span_id": parent,
            "payload_hash": digest(raw),
            "prev_envelope_hash": self.prev,
        } | header
        head = json.dumps(fields, separators=(",", ":")).encode()[:-1]
        self.prev = digest(head)
        self.lines.append(head + b',"envelope_hash":"' + self.prev.encode() + b'","payload":' + raw + b"}\n")
        return span

    def bytes(self) -> bytes:
        return b"".join(self.lines)

    def write(self, folder: Path) -> Path:
        path = folder / ".events.jsonl"
        path.write_bytes(self.bytes())
        return path


def forge(lines: list[bytes], *, genesis: str = "session") -> list[bytes]:
    """Return *lines* with every hash and the chain computed anew, as whoever can write the file may do."""
    forged = []
    found = re.search(rb'"session_id":"([^"]*)"', lines[0])
    prev = digest(f"deedbook-{genesis}-1.1\n".encode() + (found[1] if found else b""))
    for line in lines:
        head, _, rest = line.partition(b',"envelope_hash":"')
        payload = rest[64 + len(b'","payload":') : -2]
        hashes = f'"payload_hash":"{digest(payload)}","prev_envelope_hash":"{prev}"'.encode()
        head = ENDING.sub(hashes, head)
        prev = digest(head)
        forged.append(head + b',"envelope_hash":"' + prev.encode() + rest[64:])
    return forged


def error(**member: str) -> dict[str, Any]:
    return {**member, "code": "TOOL_ERROR", "message": "it broke", "outcome": "failed", "retryable": False}


def start(book: Book, purpose: str = "run", parent: str | None = None, **more: str) -> str:
    principal = {"id": "local", "via": "cli", "roles": [], "on_behalf_of": None}
    return book.add(
        "session.start",
        {
            "kernel": "0.1.0",
            "enforcement": "enforce",
            "charter": HASH,
            "profile": "default",
            "durability": "boundary",
            "principal": principal,
            "purpose": purpose,
            **more,
        },
        parent=parent,
    )


def fired(event: str, **more: Any) -> dict[str, Any]:
    return {
        "event": event,
        "asked": [{"hook": "allow", "digest": HASH, "decision": "allow"}],
        "decision": "allow",
    } | more


def run() -> Book:
    """Write a run of the review loop that holds every type of event that a session can hold."""
    book = Book()
    root = start(book)
    book.add("hook.fired", fired("SessionStart"), parent=root, actor="policy")
    message = book.add(
        "user.message", {"text": "Grüße an Ada \U0001f600\u2028!"}, parent=root, actor="user", principal="local"
    )
    skill = book.add(
        "skill.invoke",
        {
            "skill": "greet",
            "digest": HASH,
            "source": ".system/skills/greet/SKILL.md",
            "allowed": ["echo"],
            "candidates": [{"skill": "greet", "score": 1, "reason": "trigger"}],
        },
        parent=message,
    )
    flow = book.add("flow.call", {"flow": "flow/review", "args": {"prompt": "x"}}, parent=skill, principal="local")
    context(book, flow)
    calls = worker(book, flow)
    book.add("flow.result", {"flow": "flow/review", "result": {"output": "Hello, Ada"}}, parent=flow)
    book.add("skill.complete", {"skill": "greet", "ok": True, "reason": "passed"}, parent=skill)
    book.add("agent.reply", {"reply": "Hello, Ada", "tool_calls": calls}, parent=message, actor="agent")
    book.add(
        "system.clock_regressed", {"from": "2026-11-21T22:00:00.000Z", "to": "2026-11-21T21:00:00.000Z"}, parent=root
    )
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    book.add("ledger.recovered", {"offset": 1, "bytes": 2, "sha256": HASH, "kept": ".torn-1-0123"}, parent=root)
    return book


def context(book: Book, flow: str) -> None:
    book.add("context.created", {"task": "say hello", "source": "user"}, parent=flow)
    for kind, payload in {
        "clarified": {"clarification": {}},
        "scoped": {"scope": {"abilities": ["echo"]}},
        "planned": {"plan": {"steps": []}},
        "executing": {"attempt": 1},
        "verifying": {"report": {}},
        "completed": {"verification": {}},
        "failed": {"reason": "x"},
        "halted": {"reason": "x"},
        "needs_human": {"reason": "x"},
        "noted": {"event_type": "x", "data": {}},
    }.items():
        book.add(f"context.{kind}", payload, parent=flow)


def worker(book: Book, flow: str) -> list[dict[str, Any]]:
    agent = {"actor": "agent", "principal": "agent:worker"}
    role = book.add("agent.transition", {"from": None, "to": "worker"}, parent=flow)
    book.add(
        "flow.error",
        error(flow="flow/inner"),
        parent=book.add("flow.call", {"flow": "flow/inner", "args": {}}, parent=flow),
    )
    asked = book.add("llm.request", {"ability": "model/worker", "request": {"messages": []}}, parent=role, **agent)
    usage = {"usage": {"input_tokens": 7, "output_tokens": 5}}
    said = book.add("llm.response", {"ability": "model/worker", "response": usage}, parent=asked)
    broken = book.add("llm.request", {"ability": "model/worker", "request": {}}, parent=role, **agent)
    book.add("llm.error", error(ability="model/worker"), parent=broken)
    book.add(
        "hook.fired", fired("PreToolUse", ability="echo", facts={}, input={}, output={}), parent=said, actor="policy"
    )
    judged = {"policy": "baseline", "digest": HASH, "decision": "allow", "rule": 0, "reason": "greeting"}
    check = {"ability": "echo", "asked": [judged], "decision": "allow", "enforcement": "enforce"}
    book.add("policy.check", check, parent=said, actor="policy")
    args = {"text": "Hello, Ada", "token": {"$sealed": HASH, "size": 9}}
    first = book.add("tool.call", {"args": args, "tool_name": "echo"}, parent=said, **agent)
    inner = book.add("tool.call", {"args": {}, "tool_name": "count"}, parent=first, **agent)
    book.add("tool.error", error(tool_name="count"), parent=inner, actor="tool")
    book.add("tool.result", {"result": {"text": "Hello, Ada"}, "tool_name": "echo"}, parent=first, actor="tool")
    fault = {"errors": [{"path": "$", "message": "no"}], "name": "rm", "schema": "takes", "subject": "arguments"}
    book.add("schema.violation", fault, parent=said)
    denied = {
        "kind": "tool",
        "name": "rm",
        "code": "GATE_DENIED",
        "reason": "no",
        "args": {},
        "by": {"hook": "deny-rm"},
    }
    book.add("tool.denied", denied, parent=said, actor="policy")
    report = {"output": "Hello, Ada", "steps_completed": ["s1"], "schema_version": "v1"}
    book.add("worker.report", report, parent=flow, **agent)
    return [{"tool_name": "echo", "args": args, "span": first}]


def nested() -> Book:
    """Write a session of flows in each other, with payloads of version 2: it was suspended, and resumed."""
    book = Book("f1" * 16)
    root = start(book, mode="headless", schema_version="v2")
    told = {"text": "hello", "flow": "outer", "schema_version": "v2"}
    message = book.add("user.message", told, parent=root, actor="user", principal="local")
    outer = book.add("flow.call", {"flow": "outer", "args": {}}, parent=message, principal="local")
    begun = {"task": {}, "source": "cli", "parent": None, "schema_version": "v2"}
    book.add("context.created", begun, parent=outer)
    book.add("run.value", {"kind": "now", "value": "2026-11-21T22:00:00.000Z"}, parent=outer)
    line = {"policy": "routing", "digest": HASH, "decision": "advisory", "reason": "minor", "rule": "p.yaml:4"}
    judged = {"asked": [{**line, "signals": {"route": "gated"}}], "decision": "advisory", "enforcement": "enforce"}
    finding = {"name": "finding", "value": {"severity": "P2"}}
    judged |= {"facts": {}, "schema_version": "v2", "subject": finding}
    book.add("policy.check", judged, parent=outer, actor="policy", principal="local")
    branch = book.add("run.branch", {"name": "left", "allowed": ["inner"]}, parent=outer)
    other = book.add("run.branch", {"name": "right", "allowed": None}, parent=outer)
    book.add("run.value", {"kind": "id", "value": "0" * 32}, parent=other)
    counted = {"tokens": 12, "by": "estimate"}
    book.add("run.value", {"kind": "tokens", "value": counted, "schema_version": "v2"}, parent=other)
    book.add("run.branch", {"name": "as", "allowed": None, "skill": "greet", "schema_version": "v2"}, parent=outer)
    by_feature = {
        "kind": "tool",
        "name": "rm",
        "code": "FROZEN",
        "reason": "no",
        "args": {},
        "by": {"feature": "freeze"},
    }
    book.add("tool.denied", by_feature | {"schema_version": "v2"}, parent=outer, actor="policy")
    limits = {"abilities": ["e*"], "forbidden": ["rm"], "reads": ["src/**", "!src/x"], "writes": None}
    within = {"name": "in", "allowed": None, "skill": None, "limits": limits, "schema_version": "v3"}
    limited = book.add("run.branch", within, parent=outer)
    kept = {"limits": [{"branch": "in", **limits}], "mode": "interactive", "schema_version": "v3"}
    book.add(
        "approval.requested",
        {**request("b2" * 16, session=book.session_id), **kept},
        parent=limited,
        actor="policy",
        principal="local",
    )
    forked_request = {**request("b4" * 16, session=book.session_id), "mode": "interactive", "limits": []}
    forked_request |= {"fork_of": "5e" * 16, "schema_version": "v4"}
    book.add("approval.requested", forked_request, parent=limited, actor="policy", principal="local")
    inner = book.add("flow.call", {"flow": "inner", "args": {}}, parent=branch, actor="agent", principal="local")
    book.add("context.created", {**begun, "parent": outer}, parent=inner)
    book.add("context.needs_human", {"reason": "which one?"}, parent=inner)
    parked = {**request("b1" * 16, session=book.session_id), "mode": "headless", "schema_version": "v2"}
    book.add("approval.requested", parked, parent=inner, actor="policy", principal="local")
    pinned = {"program": {"files": {"bin/pay.py": HASH}, "unpinned": ["python3"]}, "schema_version": "v4"}
    book.add("approval.requested", {**parked, **pinned}, parent=inner, actor="policy", principal="local")
    settled = {"ability": "echo", "result": {"text": "hi"}, "approver": "ada", "key": "ada+0", "charter": HASH}
    lost = book.add("tool.call", {"tool_name": "echo", "args": {}}, parent=inner, actor="agent", principal="local")
    unknown = {"code": "OUTCOME_UNKNOWN", "message": "it died", "outcome": "unknown", "retryable": False}
    book.add("tool.error", {"tool_name": "echo", **unknown}, parent=lost, actor="system", principal="local")
    book.add("call.settled", {**settled, "signed": "note"}, parent=lost, principal="ada")
    book.add("session.suspended", {"code": "NEEDS_HUMAN", "reason": "which one?", "approval": None}, parent=root)
    book.add("session.resumed", {"charter": HASH, "enforcement": "enforce", "kernel": "0.1.0"}, parent=root)
    book.add("context.resumed", {"state": "CREATED"}, parent=inner)
    complete(book, inner, "inner")
    complete(book, outer, "outer")
    book.add("agent.reply", {"reply": "done", "tool_calls": []}, parent=message, actor="agent")
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def complete(book: Book, run: str, flow: str) -> None:
    """Take the context of *run* to COMPLETED, and record the result of its *flow*."""
    book.add("context.clarified", {"clarification": {}}, parent=run)
    book.add("context.planned", {"plan": {"steps": []}}, parent=run)
    book.add("context.executing", {"attempt": 1}, parent=run)
    report = {"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}
    told = book.add("worker.report", report, parent=run, actor="agent", principal="local")
    book.add("context.verifying", {"report": told, "schema_version": "v2"}, parent=run)
    book.add("context.completed", {"verification": {"verdict": "pass"}}, parent=run)
    book.add("flow.result", {"flow": flow, "result": {"context": run}}, parent=run)


def call() -> Book:
    """Write a session of a single call, as `deedbook call` makes it: without a message and a reply."""
    book = Book("ca" * 16)
    root = start(book, "call")
    asked = book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=root, principal="local")
    book.add("tool.result", {"result": {"text": "hi"}, "tool_name": "echo"}, parent=asked, actor="tool")
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def served() -> Book:
    """Write a session in which a client of the runtime asked for actions."""
    book = Book("ac" * 16)
    root = start(book, "open")
    said = {"request": "k1", "digest": HASH, "id": "a", "action": "CALL", "after": []}
    span = book.add("action.received", said, parent=root, actor="user", principal="local")
    asked = book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=span, principal="local")
    book.add("tool.result", {"result": {"text": "hi"}, "tool_name": "echo"}, parent=asked, actor="tool")
    book.add("action.done", {"id": "a", "status": "ok", "task": "t-0"}, parent=span)
    span = book.add("action.received", {**said, "id": "b", "after": ["a"]}, parent=root, actor="user")
    book.add("action.started", {"id": "b", "session": "d" * 32}, parent=span)
    book.add("action.done", {"id": "b", "status": "failed", "code": "FAILED", "message": "no"}, parent=span)
    book.add("action.refused", {"code": "ACTION_UNKNOWN", "message": "no"}, parent=root)
    book.add("session.linked", {"traceparent": f"00-{'0a' * 16}-{'0b' * 8}-01"}, parent=root)
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def corrected() -> Book:
    """Write a session of which one event was amended, one sealed value erased, and one payload taken out."""
    book = Book("ce" * 16)
    root = start(book, "call")
    args = {"text": "hi", "token": {"$sealed": HASH, "size": 9}}
    asked = book.add("tool.call", {"args": args, "tool_name": "echo"}, parent=root, principal="local")
    book.add("tool.result", {"result": {"text": "hi"}, "tool_name": "echo"}, parent=asked, actor="tool")
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    says: Any = {"reason": "asked for by Ada", "by": "local"}
    patch = [{"at": "/args/text", "value": "ho"}, {"at": "/args/token"}]
    amended = {"seq": 1, "hash": json.loads(book.lines[1])["envelope_hash"], "patch": patch, **says}
    book.add("event.amended", amended, parent=root, actor="user", principal="local")
    book.add("payload.erased", {"seq": 1, "digests": [HASH], **says}, parent=root, actor="user", principal="local")
    excise(book, 2, root)
    return book


def excise(book: Book, seq: int, root: str, *, named: bool = True) -> None:
    """Take the payload of an event out of its line, after a line that says so, unless that is left out."""
    header, mark, rest = book.lines[seq].partition(b',"payload":')
    found = json.loads(book.lines[seq])["payload_hash"]
    told = {"seq": seq, "payload_hash": found, "size": len(rest) - 2, "reason": "a password", "by": "local"}
    if named:
        book.add("ledger.excised", told, parent=root, actor="user", principal="local")
    book.lines[seq] = header + mark + b'{"$excised":"' + found.encode() + b'"}}\n'


def importing() -> Book:
    """Write a workspace ledger that tells of old ledgers that were taken in."""
    book = Book("ws-" + "1d" * 16, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    session = {"session": "p00-1", "events": 4, "started": "2025-12-18T02:28:10.544Z", "latest": "", "ended": True}
    told = {"sha256": HASH, "size": 1950, "format": "1.0", "sessions": [session], "from": "events.jsonl", "by": "ada"}
    book.add("ledger.imported", {**told, "verdict": "sound"}, parent=root, actor="user", principal="ada")
    more = {**told, "format": "seed-000", "verdict": "unsound", "as_is": "it is all there is"}
    book.add("ledger.imported", more, parent=root, actor="user", principal="ada")
    received = {"session_id": "5e" * 16, "events": 3, "head": HASH, "bundle": HASH, "by": "ada"}
    book.add("ledger.received", received, parent=root, actor="user", principal="ada")
    return book


def workspace() -> Book:
    """Write a workspace ledger."""
    book = Book("ws-" + "0d" * 16, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    book.add(
        "ledger.charter", {"digest": HASH, "previous": None, "looser": [], "tighter": ["echo: a policy"]}, parent=root
    )
    book.add("ledger.session", {"session_id": "5e" * 16, "events": 3, "head": HASH, "state": "ended"}, parent=root)
    process(book, root, "b0" * 16, "warm")
    process(book, root, "b1" * 16, "recover", **RECOVERED)
    return book


def process(book: Book, root: str, name: str, kind: str, **more: Any) -> None:
    """Write one process: its boot, a run with a session, and its shutdown."""
    told = {"process_id": name, "kind": kind, "pid": 4711, "kernel": "0.1.0", "charter": HASH, **more}
    boot = book.add("system.boot", told, parent=root)
    session = {"session_id": f"5{name[1:]}", "trace_id": f"7{name[1:]}"}
    run = book.add("system.run", {"process_id": name, "run_id": f"4{name[1:]}", **session}, parent=boot)
    head = {"session_id": session["session_id"], "events": 3, "head": HASH}
    book.add("ledger.session", {**head, "state": "open"}, parent=run)
    book.add("ledger.session", {**head, "events": 4, "state": "ended"}, parent=run)
    book.add("system.shutdown", {"process_id": name, "reason": "closed"}, parent=boot)


# --- approvals --------------------------------------------------------------------------------------------------------


def verifier_key(name: str = "ada", seed: bytes = SEED) -> str:
    public = b"\x01" + Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return f"{name}+{digest(name.encode() + b'' + bytes([10]) + public)[:8]}+{b64encode(public).decode()}"


def signed(text: str, name: str = "ada", seed: bytes = SEED) -> str:
    """Return a C2SP signed note."""
    identity = bytes.fromhex(verifier_key(name, seed).split("+")[1])
    line = b64encode(identity + Ed25519PrivateKey.from_private_bytes(seed).sign(text.encode())).decode()
    return f"{text}\n\u2014 {name} {line}\n"


def request(identity: str = "a9" * 16, **changed: Any) -> dict[str, Any]:
    """Return what a person is asked: an honest payload of ``approval.requested``."""
    args = {"text": "hi"}
    call = b'{"ability":"echo","args":' + canonical(args) + b',"principal":"local"}'
    asked = {
        "approval": identity, "session": "5e" * 16, "span": "0" * 15 + "2", "kind": "tool", "name": "echo",
        "args": args, "given": {"text": "HI"}, "effects": "none", "tags": ["slow"],
        "principal": {"id": "local", "via": "cli", "roles": ["owner"], "on_behalf_of": None}, "actor": "user",
        "role": None, "skill": None, "scope": {"why": "everything", "names": None, "models": ["model/a"]},
        "reason": "a person looks first", "by": {"policy": "careful", "rule": "p.yaml:3", "place": "p.yaml:1"},
        "call": digest(call), "charter": HASH, "profile": "local",
        "requested": "2026-11-21T22:00:00.000Z", "expires": "2026-11-21T23:00:00.000Z", **changed,
    }  # fmt: skip
    return {**asked, "shown": digest(canonical(asked))}


def answer(asked: dict[str, Any], word: str = "approve", **changed: Any) -> dict[str, Any]:
    """Return an honest payload of ``approval.answered``, by ada."""
    about = {name: asked[name] for name in ("approval", "call", "charter", "shown", "expires")}
    more = {"answer": word, "approver": "ada", "ledger": OWN, "at": "2026-11-21T22:30:00.000Z"}
    statement = {**about, **more, "nonce": "0e" * 16, "note": "", **changed}
    text = f"deedbook approval v1\n{canonical(statement).decode()}\n"
    return {"approval": asked["approval"], "answer": word, "approver": "ada", "signed": signed(text)}


def taken(asked: dict[str, Any], word: str = "approve") -> dict[str, Any]:
    """Return what a session says of an answer."""
    said = answer(asked, word)
    where = {"key": verifier_key(), "ledger": OWN, "seq": 3, "hash": HASH}
    return {"approval": said["approval"], "approver": "ada", **where, "signed": said["signed"]}


def approved() -> Book:
    """Write a session in which a call of another one is performed, and others are refused, expired and withdrawn."""
    book = Book("ab" * 16)
    root = start(book, "call")
    resumed = {"approval": "a9" * 16, "session": "5e" * 16, "span": "0" * 15 + "2", "by": "local"}
    span = book.add("approval.resumed", resumed, parent=root, principal="local")
    span = book.add("approval.requested", request(), parent=span, actor="policy", principal="local")
    span = book.add("approval.granted", taken(request()), parent=span, principal="local")
    asked = book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=span, principal="local")
    book.add("tool.result", {"result": {"text": "hi"}, "tool_name": "echo"}, parent=asked, actor="tool")
    ends = {
        "b1" * 16: ("refused", taken(request("b1" * 16), "deny")),
        "b2" * 16: ("expired", {"approval": "b2" * 16, "expires": "2026-11-21T23:00:00.000Z"}),
        "b3" * 16: ("withdrawn", {"approval": "b3" * 16, "reason": "nobody waits"}),
    }
    for identity, (end, payload) in ends.items():
        span = book.add("approval.requested", request(identity), parent=root, actor="policy", principal="local")
        book.add(f"approval.{end}", payload, parent=span, principal="local")
    book.add("session.end", {"ok": True, "reason": "COMPLETED"}, parent=root)
    return book


def bridged() -> Book:
    """Write a session of a coding agent, which asks its person once and does something unasked."""
    book = Book("ad" * 16)
    root = start(book, "open")
    told = {"agent": "claude-code", "agent_session": "s", "session_id": "ad" * 16, "said": {"source": "startup"}}
    book.add("bridge.session", told, parent=root)
    asked = {"kind": "tool", "name": "claude-code/Bash", "reason": "a person looks first", "call": "c" * 64}
    span = book.add("approval.deferred", asked, parent=root, actor="policy", principal="agent:claude-code")
    call = {"args": {"command": "ls"}, "tool_name": "claude-code/Bash"}
    span = book.add("tool.call", call, parent=span, actor="agent", principal="agent:claude-code")
    book.add("tool.result", {"result": {"stdout": ""}, "tool_name": "claude-code/Bash"}, parent=span, actor="tool")
    book.add(
        "tool.unasked", {**call, "call_id": "t9", "result": "x", "why": "no call is open"}, parent=root, actor="tool"
    )
    book.add("bridge.told", {"agent": "claude-code", "event": "SessionEnd", "said": {}}, parent=root, actor="agent")
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def forked(change: Mapping[str, Any] = MappingProxyType({})) -> Book:
    """Write a session that goes on from another one, is served one outcome, and then leaves the past.

    *change* makes it dishonest: without its origin, served by another one, in another place, with two origins, or with
    an effect of its own under an approval that was only served.
    """
    book = Book("af" * 16)
    root = start(book, "call")
    above = {"session": "5e" * 16, "seq": 7, "hash": HASH}
    for _ in range(("session.forked" not in change) + ("twice" in change)):
        book.add("session.forked", {**above, "goes_on": True}, parent=root)
    span = book.add("tool.call", {"args": {}, "tool_name": "echo"}, parent=root, actor="user", principal="local")
    span = book.add("tool.result", {"result": {}, "tool_name": "echo"}, parent=span, actor="tool", principal="local")
    served = {**above, "seq": 3, **change.get("call.served", {})}
    book.add("call.served", served, parent=root if "above" in change else span, principal="local")
    approved = {**above, "seq": 4, **change.get("approval.served", {})}
    served_approval = book.add("approval.served", approved, parent=root, principal="local")
    span = book.add(
        "tool.call", {"args": {}, "tool_name": "pay"}, parent=served_approval, actor="user", principal="local"
    )
    span = book.add("tool.result", {"result": {}, "tool_name": "pay"}, parent=span, actor="tool", principal="local")
    if "effect" not in change:
        book.add("call.served", {**above, "seq": 6}, parent=span, principal="local")
    span = book.add("tool.call", {"args": {"a": 2}, "tool_name": "echo"}, parent=root, actor="user", principal="local")
    failed = {"tool_name": "echo", "code": "FORK_DIVERGED", "message": "other", "outcome": "failed", "retryable": False}
    span = book.add("tool.error", failed, parent=span, actor="tool", principal="local")
    found = [{"path": "/a", "recorded": "1", "now": "2"}, {"path": "/b", "now": "[sealed]"}]
    told = {**above, "seq": 5, "code": "FORK_DIVERGED", "why": "other", "differences": found}
    book.add("call.diverged", told, parent=span, principal="local")
    book.add("session.end", {"ok": False, "reason": "FORK_DIVERGED"}, parent=root)
    return book


def queue() -> Book:
    """Write a workspace ledger with a request, its answer, and its use."""
    book = Book(OWN, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    span = book.add("approval.requested", request(), parent=root, actor="policy", principal="local")
    span = book.add("approval.answered", answer(request()), parent=span, actor="user", principal="ada")
    book.add("approval.used", {"approval": "a9" * 16, "session": "ab" * 16}, parent=span, principal="local")
    refused = {
        "agent": "other",
        "event": "PreToolUse",
        "code": "BRIDGE_AGENT_UNKNOWN",
        "reason": "no agent",
        "bytes": 2,
    }
    book.add("bridge.refused", refused, parent=root)
    book.add(
        "bridge.undelivered",
        {
            "agent": "copilot-cli",
            "event": "PreToolUse",
            "what": ["context"],
            "why": "it takes no text for the model",
            "tool_name": "copilot-cli/Bash",
            "call_id": "t1",
        },
        parent=root,
    )
    return book


# --- tasks ------------------------------------------------------------------------------------------------------------


USER: Any = {"actor": "user", "principal": "local"}
TOOL: Any = {"actor": "tool", "principal": "local"}
CALLED = f"{'5e' * 16}:{'0' * 15}5"


def task(task_id: str, span: str, **more: Any) -> dict[str, Any]:
    """Return what every event of a task says."""
    return {"task": task_id, "session": "5e" * 16, "span": span, **more}


def bound() -> dict[str, Any]:
    """Return what a task is bound to."""
    config = {
        "entry": HASH, "tags": ["sound"], "policies": ["baseline"], "timeout_ms": 5000,
        "pre_create": ["preflight"], "pre_call": [], "post_call": [],
    }  # fmt: skip
    return {"args": {"text": "hi"}, "charter": HASH, "profile": "p", "config": config}


def came_to(state: str, **more: Any) -> dict[str, Any]:
    """Return what a run came to."""
    where = {"kernel": "0.1.0", "python": "3.11.9", "platform": "linux", "pid": 7, "process": "c0" * 16}
    return {"run": 1, "state": state, "source": "run", "duration_ms": 3, "environment": where, **more}


def tasked() -> Book:
    """Return a session that makes a task, is refused another, and runs the first."""
    book, one = Book(), f"t-{'a1' * 16}"
    root = start(book)
    who = {"id": "local", "via": "cli", "roles": [], "on_behalf_of": None}
    made = {"ability": "echo", "kind": "tool", "effects": "none", "principal": who, "direct": False}
    book.add("hook.fired", fired("PreAbilityCreate", ability="echo"), parent=root, actor="policy", principal="local")
    book.add("task.created", task(one, f"{3:016x}", **made, **bound()), parent=root, **USER)
    denied = {"ability": "echo", "code": "TASK_UNAVAILABLE", "reason": "not now", "args": {}, "task": one}
    book.add("task.denied", denied, parent=root, actor="policy", principal="local")
    begun = task(one, f"{5:016x}", run=1, charter=HASH)
    run = book.add("task.started", begun, parent=root, **USER)
    call = book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=run, **USER)
    book.add("tool.result", {"result": {"text": "hi"}, "tool_name": "echo"}, parent=call, **TOOL)
    book.add("task.ended", task(one, f"{8:016x}", **came_to("succeeded", call=CALLED)), parent=run, principal="local")
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def chores() -> Book:
    """Return a workspace ledger in which tasks are made, run, lost, decided, changed, and deleted."""
    book, one, two = Book(OWN, genesis="workspace"), f"t-{'a1' * 16}", f"t-{'a2' * 16}"
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "."})
    who = {"id": "local", "via": "cli", "roles": ["dev"], "on_behalf_of": "ada"}
    made = {"ability": "echo", "kind": "tool", "effects": "write", "principal": who}
    above = book.add(
        "task.created", task(one, f"{3:016x}", **made, **bound(), direct=False, key="k-1"),
        parent=root, **USER,
    )  # fmt: skip
    begun = task(one, f"{5:016x}", run=1, charter=HASH)
    run = book.add("task.started", begun, parent=above, **USER)
    waits = came_to("waiting", code="NEEDS_HUMAN", message="ask", approval="a9" * 16)
    book.add("task.ended", task(one, f"{8:016x}", **waits), parent=run, principal="local")
    book.add("task.updated", task(one, f"{9:016x}", **bound()), parent=above, **USER)
    run = book.add("task.started", {**begun, "run": 2}, parent=above, **USER)
    ended = {**came_to("succeeded", call=CALLED, result={"text": "hi"}), "run": 2}
    book.add("task.ended", task(one, f"{8:016x}", **ended), parent=run, principal="local")
    book.add("task.deleted", task(one, f"{9:016x}"), parent=above, **USER)
    above = book.add(
        "task.created",
        task(two, f"{3:016x}", **made, **bound(), direct=True),
        parent=root,
        actor="user",
        principal="local",
    )
    book.add("task.started", task(two, f"{5:016x}", run=1, charter=HASH), parent=above, **USER)
    said = {"answer": "did_not", "by": "local", "note": "I looked."}
    book.add("task.decided", task(two, f"{6:016x}", **said), parent=above, **USER)
    return book


# --- memory -----------------------------------------------------------------------------------------------------------

ENTRY: Any = {"schema_version": "v1", "zone": "observation", "key": "sky/today", "value": "grey"}


def remembered() -> Book:
    """Write a session of a persona that reads and changes what is remembered."""
    book = Book("e0" * 16)
    root = start(book, "call")
    book.add("persona.bound", {"persona": "p-1", "version": 1, "digest": HASH}, parent=root)
    args = {"zone": "observation", "key": "sky/today", "value": "grey"}
    asked = book.add("memory.call", {"ability": "memory/propose", "args": args}, parent=root, **USER)
    done = {"zone": "observation", "key": "sky/today", "version": 1, "state": "committed"}
    book.add("memory.result", {"ability": "memory/propose", "result": done, "late": True}, parent=asked)
    asked = book.add("memory.call", {"ability": "memory/propose", "args": args}, parent=root, **USER)
    error = {"ability": "memory/propose", "code": "MEMORY_CONFLICT", "message": "no"}
    book.add("memory.error", {**error, "retryable": True, "outcome": "failed"}, parent=asked)
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    return book


def memories() -> Book:
    """Write a workspace ledger in which something is remembered, refused, taken back, and taken over."""
    book = Book("ws-" + "0e" * 16, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    who = {"id": "local", "via": "cli", "roles": [], "on_behalf_of": None, "actor": "user", "role": None, "skill": None}
    links = {"session": "e0" * 16, "span": "0" * 15 + "3", "trace_id": "e1" * 16, "charter": HASH, "persona": "p-1"}
    said = {"proposal": "m-" + "a1" * 16, **links, "by": who, "entry": ENTRY, "expected": 0}
    above = book.add("memory.proposed", said, parent=root, **USER)
    source = {"session": "e0" * 16, "seq": 2, "span": "0" * 15 + "2", "hash": HASH, "type": "user.message"}
    checks = [{"check": "size", "ok": True}, {"check": "version", "ok": True}]
    checked = {"proposal": said["proposal"], "ok": True, "checks": checks, "source": source}
    above = book.add("memory.checked", checked, parent=above, principal="local")
    which = {"persona": "p-1", "zone": "observation", "key": "sky/today"}
    book.add("memory.committed", {"proposal": said["proposal"], **which, "version": 1}, parent=above, principal="local")
    withheld = {**said, "proposal": "m-" + "a2" * 16, "entry": {"schema_version": "v1", "zone": "observation"}}
    above = book.add("memory.proposed", {**withheld, "withheld": True}, parent=root, **USER)
    failed = {"proposal": withheld["proposal"], "ok": False, "checks": [{"check": "size", "ok": False, "why": "no"}]}
    above = book.add("memory.checked", failed, parent=above, principal="local")
    refused = {"proposal": withheld["proposal"], "code": "MEMORY_INVALID", "reason": "no"}
    book.add("memory.refused", refused, parent=above, principal="local")
    gone = {**links, "by": who, "zone": "observation", "key": "sky/today", "version": 2, "reason": "it cleared up"}
    book.add("memory.retracted", gone, parent=root, **USER)
    kept = {"sha256": HASH, "size": 2, "kept": f"memory/snapshots/{HASH}.json"}
    moved = {"name": "memory/memory_store.json", **kept, "form": "v0"}
    book.add("memory.quarantined", moved, parent=root)
    above = book.add("memory.snapshot", kept, parent=root)
    entry = {**ENTRY, "zone": "legacy"}
    after = digest(digest(canonical(entry)).encode())
    migrated = {"from": "v0", "to": "v1", "before": HASH, "after": after, "snapshot": kept["kept"], "entries": 1}
    above = book.add("memory.migrated", {**migrated, "persona": "p-1"}, parent=above)
    one = {"source": HASH, "pointer": "/sky", "persona": "p-1", "entry": entry, "version": 1}
    book.add("memory.imported", one, parent=above)
    return book
