"""The handlers of the kind memory, entry points of Deedbook itself: they read, propose and retract.

They need the workspace ledger, which no plugin gets; YAML declares abilities over these three.
"""

from typing import Any, ClassVar, Final

from deedbook.call.call_context import WorkspaceCall
from deedbook.charter.zones import ZONES
from deedbook.contract import Failed, Handler, HandlerSpec, Host, Json, Object, Plugin
from deedbook.contract.pointers import POINTER
from deedbook.format.errors import DeedbookError

from .book import MemoryBook
from .entries import PROPOSED
from .gate import MemoryGate, MemoryRequest
from .legacy import take_over

_KEY: Final = {
    "type": "string",
    "maxLength": 128,
    "pattern": "^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$",
    "description": "Names joined by /, such as user/language",
}
_VERSION: Final = {"type": "integer", "minimum": 0, "description": "The version that the key must be at; 0: none yet"}
_REASON: Final = {"type": "string", "maxLength": 2000, "description": "Why, in words"}
_PROVENANCE: Final = {
    "type": "object",
    "description": "What it rests on; world_state takes nothing without",
    "required": ["kind"],
    "properties": {
        "kind": {"enum": ["user_declared", "tool_verified", "human_approved"]},
        "session": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"},
        "span": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "seq": {"type": "integer", "minimum": 0},
        "hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "pointer": {"type": "string", "maxLength": 1024, "pattern": POINTER},
    },
    "additionalProperties": False,
}
_CHANGED: Final = {
    "type": "object",
    "required": ["zone", "key", "version", "state"],
    "properties": {
        "zone": {"enum": list(ZONES)},
        "key": _KEY,
        "version": {"type": "integer"},
        "state": {"enum": ["committed", "retracted"]},
        "proposal": {"type": "string"},
        "persona": {"type": ["string", "null"]},
    },
    "additionalProperties": False,
}


class _MemoryTool:
    """The common part of the handlers: one gate for all calls of a kernel."""

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of all plugins
        self._host = host

    def _get_gate(self, ctx: Any) -> tuple[MemoryGate, MemoryRequest]:
        """Return the gate of the charter, and the request; raises `Failed`."""
        if not isinstance(ctx, WorkspaceCall):
            raise Failed("BINDING_INVALID", "this handler is for abilities of kind memory; say kind: memory")
        try:
            gate = self._host.share("deedbook/memory", lambda: _open_gate(ctx))
        except DeedbookError as problem:
            raise Failed(problem.error.code, str(problem)) from None
        return gate, MemoryRequest(
            caller=ctx.caller, ability=ctx.ability, raw=ctx.raw,
            session=ctx.session, trace=ctx.trace, span=ctx.span,
        )  # fmt: skip


class MemoryRead(_MemoryTool):
    """Reads entries of one zone: of one key, of keys that match a glob, or all."""

    spec: ClassVar[HandlerSpec] = HandlerSpec(
        effects="read",
        files="none",
        takes={
            "type": "object",
            "required": ["zone"],
            "properties": {
                "zone": {"enum": list(ZONES)},
                "key": _KEY,
                "keys": {"type": "string", "maxLength": 128, "description": "A glob over keys"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            },
            "additionalProperties": False,
        },
        gives={
            "type": "object",
            "required": ["zone", "persona", "entries", "ledger", "seq", "head"],
            "properties": {
                "zone": {"enum": list(ZONES)},
                "persona": {"type": ["string", "null"]},
                "entries": {"type": "array", "items": {"type": "object"}},
                "ledger": {"type": "string"},
                "seq": {"type": "integer"},
                "head": {"type": "string"},
                "more": {"type": "integer"},
            },
            "additionalProperties": False,
        },
    )

    def __call__(self, args: Any, ctx: Any, /) -> Json:
        """Return the current entries."""
        return _call_safely(lambda: self._get_gate(ctx)[0].read(args))


class MemoryPropose(_MemoryTool):
    """Proposes an entry, which is checked and then committed or refused."""

    spec: ClassVar[HandlerSpec] = HandlerSpec(
        effects="write",
        files="none",
        takes={
            "type": "object",
            "required": ["zone", "key", "value"],
            "properties": {
                "zone": {"enum": list(PROPOSED)},
                "key": _KEY,
                "value": {"description": "Any JSON value"},
                "expected_version": _VERSION,
                "reason": _REASON,
                "provenance": _PROVENANCE,
            },
            "additionalProperties": False,
        },
        gives=_CHANGED,
    )

    def __call__(self, args: Any, ctx: Any, /) -> Json:
        """Return the committed entry."""
        gate, request = self._get_gate(ctx)
        return _call_safely(lambda: gate.propose(args, request))


class MemoryRetract(_MemoryTool):
    """Removes the content of a key; it stays in the ledger."""

    spec: ClassVar[HandlerSpec] = HandlerSpec(
        effects="write",
        files="none",
        takes={
            "type": "object",
            "required": ["zone", "key", "reason"],
            "properties": {
                "zone": {"enum": list(ZONES)},
                "key": _KEY,
                "expected_version": _VERSION,
                "reason": _REASON,
            },
            "additionalProperties": False,
        },
        gives=_CHANGED,
    )

    def __call__(self, args: Any, ctx: Any, /) -> Json:
        """Return the new version of the key."""
        gate, request = self._get_gate(ctx)
        return _call_safely(lambda: gate.retract(args, request))


def _open_gate(ctx: WorkspaceCall) -> MemoryGate:
    """Open the memory of the workspace; a store of an older form is moved aside and imported first."""
    book, document = MemoryBook(ctx.state, saves=True), ctx.charter.document
    try:
        if book.stored.state == "old":
            take_over(
                ctx.workspace_ledger, book, book.stored.raw, (document.get("persona") or {}).get("id"), moved=True
            )
            book.rebuild()
        return MemoryGate(ctx.workspace_ledger, book, document, ctx.charter.digest)
    except BaseException:
        book.close()
        raise


def _call_safely(do: Any) -> Json:
    """Return the result of *do*; a ledger error is the call's failure."""
    try:
        result: Json = do()
    except DeedbookError as problem:
        raise Failed(problem.error.code, str(problem), retryable=problem.error.retryable) from None
    return result


_: tuple[Plugin[HandlerSpec, Handler], ...] = (MemoryRead, MemoryPropose, MemoryRetract)
