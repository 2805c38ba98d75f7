"""Recordings, written with hashlib and json alone, and a host on a real folder."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deedbook import Principal
from deedbook.format.files import Folder

SESSION = "5e" * 16


def canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


class Recording:
    """One session's ledger in the making."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.prev = digest(b"deedbook-session-1.1\n" + SESSION.encode())
        self.root = self.add("session.start", {})

    def add(self, kind: str, payload: Any, parent: str | None = None) -> str:
        seq = len(self.lines)
        span, raw = f"{seq + 1:016x}", payload if isinstance(payload, bytes) else canonical(payload)
        above = f'"{parent}"' if parent else "null"
        header = (
            f'{{"schema_version":"1.1","session_id":"{SESSION}","trace_id":"{"7a" * 16}","seq":{seq}'
            f',"ts":"2026-11-22T08:00:00.000Z","event_type":"{kind}","actor":"agent","principal":null'
            f',"span_id":"{span}","parent_span_id":{above},"payload_hash":"{digest(raw)}"'
            f',"prev_envelope_hash":"{self.prev}"'
        ).encode()
        self.prev = digest(header)
        self.lines.append(header + b',"envelope_hash":"%b","payload":%b}\n' % (self.prev.encode(), raw))
        return span

    def ask(self, asked: Any, answer: Any = None, **failed: Any) -> None:
        span = self.add("llm.request", {"ability": "model/standard", "request": asked}, self.root)
        self.end(span, answer, **failed)

    def end(self, span: str, answer: Any = None, **failed: Any) -> None:
        if answer is not None:
            self.add("llm.response", {"ability": "model/standard", "response": answer}, span)
        elif failed:
            self.add("llm.error", {"ability": "model/standard", "outcome": "failed", **failed}, span)

    def bytes(self) -> bytes:
        return b"".join(self.lines)

    def write(self, folder: Path, name: str = "r.jsonl") -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(self.bytes())
        return folder / name


@pytest.fixture
def begin() -> type[Recording]:
    return Recording


@pytest.fixture
def recording() -> Recording:
    return Recording()


class NoCtx:
    """A call's context that this provider never needs."""

    principal = Principal("agent:worker", "test")
    session = "s"
    idempotency_key = "k"


class FolderHost:
    """A host on a real folder."""

    def __init__(self, root: Path) -> None:
        self.open = Folder.at(root).open


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return what makes the provider on this folder, and asks it."""
    from deedbook_provider_recorded import Recorded

    def made(**settings: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
        provider = Recorded({"ledger": "r.jsonl", **settings}, FolderHost(tmp_path))
        return lambda asked: provider(asked, NoCtx())

    return made
