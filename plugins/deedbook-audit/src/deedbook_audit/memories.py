"""What a verifier checks about memory in one ledger: proposals that are checked once, commits and versions in turn.

It is independent of who wrote the ledger, and takes the recorded events as they come. What is sealed is not compared.
Of a payload that was taken out the header stays: it says which proposal is meant, and all else is checked as ever.
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
"""The events that are looked at."""
_WORLD: Final = "world_state"
_MARK: Final = "$sealed"


@attrs.define
class _Proposal:
    """A proposal as far as the ledger was read: its span, what it says, its check, whether it ended.

    What nobody can tell any more is ``None``; *named* says whether a line was seen that has its name.
    """

    span: bytes
    said: Mapping[str, Any] | None
    checked: bytes = b""
    ok: bool | None = False
    source: bool | None = False
    ended: bool = False
    named: bool = True

    @property
    def withheld(self) -> bool | None:
        """Whether the entry was kept out of the ledger, if that can be told."""
        return self.said.get("withheld") is True if self.said is not None else None


@attrs.define
class _Migration:
    """A store that is taken over: its span, how many entries are to follow, their digest, and those that came."""

    span: bytes
    entries: Any
    after: Any
    digests: list[str] = attrs.field(factory=list)
    sealed: bool = False


class Memories:
    """The memory of one ledger: `check` every event of `ABOUT` in order, and be told what is wrong with it."""

    def __init__(self) -> None:
        self._bound = False
        self._proposals: dict[str, _Proposal] = {}
        self._made: dict[bytes, _Proposal] = {}
        self._checks: dict[bytes, _Proposal] = {}
        self._lost_versions = 0
        self._versions: dict[tuple[Any, ...], int] = {}
        self._migration: _Migration | None = None

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Object) -> Iterator[str]:
        """Yield what is wrong with the next event."""
        above = parent or b""
        if kind == "persona.bound":
            yield from self._bind()
        elif kind == "memory.proposed":
            yield from self._proposed(span, payload)
        elif kind == "memory.checked":
            yield from self._checked(span, above, payload)
        elif kind in ("memory.committed", "memory.refused"):
            yield from self._ended(kind, above, payload)
        elif kind == "memory.retracted":
            yield from self._next(payload, payload["zone"], payload["key"])
        elif kind == "memory.migrated":
            self._migration = _Migration(span, payload["entries"], payload["after"])
        else:
            yield from self._imported(above, payload)

    def gone(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Yield what is wrong with the next event where its payload was taken out: its place still says which it is."""
        above = parent or b""
        if kind == "persona.bound":
            yield from self._bind()
        elif kind == "memory.proposed":
            self._made[span] = _Proposal(span, None, named=False)
        elif kind == "memory.checked":
            yield from self._checked_gone(span, self._made.get(above))
        elif kind in ("memory.committed", "memory.refused"):
            yield from self._ended_gone(kind, self._checks.get(above))
        elif kind == "memory.migrated":
            self._migration = _Migration(span, None, None)
        else:
            self._lost_versions += 1
            yield from self._imported_gone(above) if kind == "memory.imported" else ()

    def _bind(self) -> Iterator[str]:
        if self._bound:
            yield "a session is bound to a persona a second time"
        self._bound = True

    def _checked_gone(self, span: bytes, proposal: _Proposal | None) -> Iterator[str]:
        if proposal is None:
            yield "memory.checked under no memory.proposed"
            return
        if proposal.checked:
            yield "a proposal is checked a second time"
        proposal.checked, proposal.ok, proposal.source = span, None, None
        self._checks[span] = proposal

    def _ended_gone(self, kind: str, proposal: _Proposal | None) -> Iterator[str]:
        if proposal is None:
            yield f"{kind} under no memory.checked"
        else:
            yield from self._close(kind, proposal)
        if kind == "memory.refused":
            return
        said = proposal.said if proposal and proposal.said else {}
        entry = said.get("entry", {})
        name = (said.get("persona"), entry.get("zone"), entry.get("key"))
        if all(map(_text, name)):
            self._versions[name] = self._versions.get(name, 0) + 1
        else:
            self._lost_versions += 1

    def _imported_gone(self, above: bytes) -> Iterator[str]:
        migration = self._migration
        if migration is None or migration.span != above:
            yield "memory.imported under no memory.migrated before it"
            return
        migration.sealed = True
        migration.digests.append("")
        yield from self._too_many(migration)

    def _named(self, name: str, found: _Proposal | None) -> _Proposal | None:
        """Return the proposal of a name; a later line gives *found* its own, where its first one was taken out."""
        if name not in self._proposals and found is not None and not found.named:
            found.named = True
            self._proposals[name] = found
        return self._proposals.get(name)

    def _proposed(self, span: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if name and name in self._proposals:
            yield "a proposal is made a second time"
        self._proposals[name] = self._made[span] = _Proposal(span, payload)

    def _checked(self, span: bytes, above: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if not name:
            self._checks[span] = _Proposal(above, None, span, None, None)
            return
        proposal = self._named(name, self._made.get(above))
        if proposal is None or proposal.span != above:
            yield "memory.checked under no memory.proposed of the same proposal"
            return
        if proposal.checked:
            yield "a proposal is checked a second time"
        proposal.checked, proposal.ok, proposal.source = span, payload["ok"] is not False, "source" in payload
        self._checks[span] = proposal
        failed = [each for each in payload["checks"] if isinstance(each, dict) and each.get("ok") is False]
        if failed and payload["ok"] is True:
            yield "a check failed, and the proposal is said to be right"

    def _ended(self, kind: str, above: bytes, payload: Object) -> Iterator[str]:
        name = _text(payload["proposal"])
        if not name:
            return
        proposal = self._named(name, self._checks.get(above))
        if proposal is None or not proposal.checked or proposal.checked != above:
            yield f"{kind} under no memory.checked of the same proposal"
            return
        yield from self._close(kind, proposal)
        if kind == "memory.committed":
            yield from self._committed(proposal, payload)
            yield from self._next(payload, payload["zone"], payload["key"])

    def _close(self, kind: str, proposal: _Proposal) -> Iterator[str]:
        """Check an end by its type alone."""
        if proposal.ended:
            yield "a second end of one proposal"
        proposal.ended = True
        if kind == "memory.refused":
            if proposal.ok and proposal.withheld is False:
                yield "a proposal is refused whose checks found nothing"
        elif proposal.ok is False or proposal.withheld:
            yield "a proposal is committed whose checks failed"

    def _committed(self, proposal: _Proposal, payload: Object) -> Iterator[str]:
        if payload["zone"] == _WORLD and proposal.source is False:
            yield "world state is committed without provenance: its check names no event"
        if proposal.said is None:
            return
        entry = proposal.said["entry"]
        if proposal.said["persona"] != payload["persona"]:
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

    def _next(self, payload: Object, zone: Any, key: Any) -> Iterator[str]:
        """Check that a change is the next version of its key."""
        version = payload["version"]
        if not isinstance(version, int) or _is_sealed([payload["persona"], zone, key]):
            return
        name = (payload["persona"], zone, key)
        wanted = self._versions.get(name, 0) + 1
        if wanted < version <= wanted + self._lost_versions:
            self._lost_versions -= version - wanted  # they were taken out, and nobody can say of which key they were
        elif version != wanted:
            yield f"{zone}/{key} goes to version {version}; the next is {wanted}"
        self._versions[name] = version

    def _imported(self, above: bytes, payload: Object) -> Iterator[str]:
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
        yield from self._too_many(migration)
        yield from self._next(payload, "legacy", entry.get("key"))

    def _too_many(self, migration: _Migration) -> Iterator[str]:
        if isinstance(migration.entries, int) and len(migration.digests) > migration.entries:
            yield "more is taken over than memory.migrated says"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_sealed(value: Any) -> bool:
    """Say whether anything in *value* is sealed."""
    if isinstance(value, dict):
        return _MARK in value or any(map(_is_sealed, value.values()))
    return isinstance(value, list) and any(map(_is_sealed, value))
