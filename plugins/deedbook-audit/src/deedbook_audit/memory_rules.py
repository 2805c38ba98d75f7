"""The rules for memory in one ledger: proposals are checked once; commits and versions follow in order.

The check is independent of the writer. Sealed values are not compared. The header of an excised payload remains: it
identifies the proposal, and all other rules apply.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import digest, encode

ABOUT: Final = frozenset(
    {"persona.bound", "memory.proposed", "memory.checked", "memory.committed", "memory.refused", "memory.retracted",
     "memory.migrated", "memory.imported"}
)  # fmt: skip
"""The event types that these rules check."""
_WORLD: Final = "world_state"
_MARK: Final = "$sealed"


@attrs.define
class _Proposal:
    """A proposal as far as the ledger was read: its span, its payload, its check, and whether it ended.

    Unknown values are ``None``; *has_name* is true once a line with the proposal's name was read.
    """

    span: bytes
    payload: Mapping[str, Any] | None
    check_span: bytes = b""
    ok: bool | None = False
    source: bool | None = False
    ended: bool = False
    has_name: bool = True

    @property
    def is_withheld(self) -> bool | None:
        """Whether the entry was kept out of the ledger, if that is known."""
        return self.payload.get("withheld") is True if self.payload is not None else None


@attrs.define
class _Migration:
    """A migrated store: its span, the number of entries to follow, their digest, and the entries so far."""

    span: bytes
    entries: Any
    after: Any
    digests: list[str] = attrs.field(factory=list)
    sealed: bool = False


class MemoryRules:
    """The memory of one ledger: call `check` for every event of `ABOUT` in order; it yields the violations."""

    def __init__(self) -> None:
        self._bound = False
        self._proposals: dict[str, _Proposal] = {}
        self._by_span: dict[bytes, _Proposal] = {}
        self._checks: dict[bytes, _Proposal] = {}
        self._lost_versions = 0
        self._versions: dict[tuple[Any, ...], int] = {}
        self._migration: _Migration | None = None

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Object) -> Iterator[str]:
        """Yield the violations of the next event."""
        above = parent or b""
        if kind == "persona.bound":
            yield from self._check_binding()
        elif kind == "memory.proposed":
            yield from self._check_proposal(span, payload)
        elif kind == "memory.checked":
            yield from self._check_check(span, above, payload)
        elif kind in ("memory.committed", "memory.refused"):
            yield from self._check_end(kind, above, payload)
        elif kind == "memory.retracted":
            yield from self._check_version(payload, payload["zone"], payload["key"])
        elif kind == "memory.migrated":
            self._migration = _Migration(span, payload["entries"], payload["after"])
        else:
            yield from self._check_import(above, payload)

    def check_excised(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Yield the violations of the next event, whose payload was excised: its parent still identifies it."""
        above = parent or b""
        if kind == "persona.bound":
            yield from self._check_binding()
        elif kind == "memory.proposed":
            self._by_span[span] = _Proposal(span, None, has_name=False)
        elif kind == "memory.checked":
            yield from self._check_excised_check(span, self._by_span.get(above))
        elif kind in ("memory.committed", "memory.refused"):
            yield from self._check_excised_end(kind, self._checks.get(above))
        elif kind == "memory.migrated":
            self._migration = _Migration(span, None, None)
        else:
            self._lost_versions += 1
            yield from self._check_excised_import(above) if kind == "memory.imported" else ()

    def _check_binding(self) -> Iterator[str]:
        if self._bound:
            yield "a session is bound to a persona a second time"
        self._bound = True

    def _check_excised_check(self, span: bytes, proposal: _Proposal | None) -> Iterator[str]:
        if proposal is None:
            yield "memory.checked under no memory.proposed"
            return
        if proposal.check_span:
            yield "a proposal is checked a second time"
        proposal.check_span, proposal.ok, proposal.source = span, None, None
        self._checks[span] = proposal

    def _check_excised_end(self, kind: str, proposal: _Proposal | None) -> Iterator[str]:
        if proposal is None:
            yield f"{kind} under no memory.checked"
        else:
            yield from self._check_end_type(kind, proposal)
        if kind == "memory.refused":
            return
        proposed = proposal.payload if proposal and proposal.payload else {}
        entry = proposed.get("entry", {})
        name = (proposed.get("persona"), entry.get("zone"), entry.get("key"))
        if all(map(_text, name)):
            self._versions[name] = self._versions.get(name, 0) + 1
        else:
            self._lost_versions += 1

    def _check_excised_import(self, above: bytes) -> Iterator[str]:
        migration = self._migration
        if migration is None or migration.span != above:
            yield "memory.imported under no memory.migrated before it"
            return
        migration.sealed = True
        migration.digests.append("")
        yield from self._check_count(migration)

    def _find_proposal(self, name: str, found: _Proposal | None) -> _Proposal | None:
        """Return the proposal *name*; a later line names *found* if its first line was excised."""
        if name not in self._proposals and found is not None and not found.has_name:
            found.has_name = True
            self._proposals[name] = found
        return self._proposals.get(name)

    def _check_proposal(self, span: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if name and name in self._proposals:
            yield "a proposal is made a second time"
        self._proposals[name] = self._by_span[span] = _Proposal(span, payload)

    def _check_check(self, span: bytes, above: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if not name:
            self._checks[span] = _Proposal(above, None, span, None, None)
            return
        proposal = self._find_proposal(name, self._by_span.get(above))
        if proposal is None or proposal.span != above:
            yield "memory.checked under no memory.proposed of the same proposal"
            return
        if proposal.check_span:
            yield "a proposal is checked a second time"
        proposal.check_span, proposal.ok, proposal.source = span, payload["ok"] is not False, "source" in payload
        self._checks[span] = proposal
        failed = [each for each in payload["checks"] if isinstance(each, dict) and each.get("ok") is False]
        if failed and payload["ok"] is True:
            yield "a check failed, and the proposal is said to be right"

    def _check_end(self, kind: str, above: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if not name:
            return
        proposal = self._find_proposal(name, self._checks.get(above))
        if proposal is None or not proposal.check_span or proposal.check_span != above:
            yield f"{kind} under no memory.checked of the same proposal"
            return
        yield from self._check_end_type(kind, proposal)
        if kind == "memory.committed":
            yield from self._check_commit(proposal, payload)
            yield from self._check_version(payload, payload["zone"], payload["key"])

    def _check_end_type(self, kind: str, proposal: _Proposal) -> Iterator[str]:
        """Check the type of an end."""
        if proposal.ended:
            yield "a second end of one proposal"
        proposal.ended = True
        if kind == "memory.refused":
            if proposal.ok and proposal.is_withheld is False:
                yield "a proposal is refused whose checks found nothing"
        elif proposal.ok is False or proposal.is_withheld:
            yield "a proposal is committed whose checks failed"

    def _check_commit(self, proposal: _Proposal, payload: Object) -> Iterator[str]:
        if payload["zone"] == _WORLD and proposal.source is False:
            yield "world state is committed without provenance: its check names no event"
        if proposal.payload is None:
            return
        entry = proposal.payload["entry"]
        if proposal.payload["persona"] != payload["persona"]:
            yield "what is committed is of another persona than what was proposed"
        if _MARK in entry or entry.get("schema_version") != "v1":
            return
        for part in ("zone", "key"):
            if entry.get(part) != payload[part] and not _is_sealed([entry.get(part), payload[part]]):
                yield f"what is committed has another {part} than what was proposed"
        if payload["zone"] == _WORLD and "provenance" not in entry:
            yield "world state is committed without provenance"
        if "provenance" in entry and proposal.source is False:
            yield "what is committed rests on an event that its check does not name"

    def _check_version(self, payload: Object, zone: Any, key: Any) -> Iterator[str]:
        """Check that a change is the next version of its key."""
        version = payload["version"]
        if not isinstance(version, int) or _is_sealed([payload["persona"], zone, key]):
            return
        name = (payload["persona"], zone, key)
        wanted = self._versions.get(name, 0) + 1
        if wanted < version <= wanted + self._lost_versions:
            self._lost_versions -= version - wanted  # excised versions: their keys are unknown
        elif version != wanted:
            yield f"{zone}/{key} goes to version {version}; the next is {wanted}"
        self._versions[name] = version

    def _check_import(self, above: bytes, payload: Object) -> Iterator[str]:
        migration, entry = self._migration, payload["entry"]
        if migration is None or migration.span != above:
            yield "memory.imported under no memory.migrated before it"
            return
        migration.sealed = migration.sealed or _is_sealed([entry])
        migration.digests.append(digest(encode(entry)))
        if len(migration.digests) == migration.entries and not migration.sealed:
            found = digest("".join(migration.digests).encode())
            if isinstance(migration.after, str) and migration.after != found:
                yield "what was taken over is not what memory.migrated commits to"
        yield from self._check_count(migration)
        yield from self._check_version(payload, "legacy", entry.get("key"))

    def _check_count(self, migration: _Migration) -> Iterator[str]:
        if isinstance(migration.entries, int) and len(migration.digests) > migration.entries:
            yield "more is taken over than memory.migrated says"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_sealed(value: Any) -> bool:
    """Return whether *value* holds a sealed value."""
    if isinstance(value, dict):
        return _MARK in value or any(map(_is_sealed, value.values()))
    return isinstance(value, list) and any(map(_is_sealed, value))
