"""The memory gate: a proposal is written down, checked, and committed or refused; nothing is remembered otherwise.

The door has let the call through: the caller's scope has its zone, and policies have allowed it. Here it is about what
is to be remembered: its form, its grounds, its place among what is. Each step is an event of the workspace ledger.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs

from deedbook.contract import Failed, Object
from deedbook.format import canonical
from deedbook.format.entries import VERSION, WORLD, Forbidden
from deedbook.format.errors import DeedbookError
from deedbook.format.events import Entry, label, new_id
from deedbook.format.schema import foreign
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.bound import Caller
from deedbook.policy.conditions import glob_test
from deedbook.policy.zones import entry_of

from .book import Book
from .grounds import Claim, Grounds, Source, Unproven
from .recall import Name

_TRIES: Final = 64
_LONGEST: Final = 500


@attrs.frozen(kw_only=True)
class Asked:
    """One call of an ability of the kind memory: who asks, in which session, and the intent's span."""

    caller: Caller
    ability: str
    raw: bytes
    session: str
    trace: str
    span: str


class _Refused(Exception):  # noqa: N818 - it says what the proposal is
    """A proposal that is not committed, with a code and why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class _Moved(Exception):  # noqa: N818 - it says what the key is
    """Somebody else changed the key meanwhile."""


class Gate:
    """The gate of one charter *document* (its digest: *charter*), over what is in *book*; writes to *own*."""

    def __init__(self, own: WorkspaceLedger, book: Book, document: Object, charter: str) -> None:
        self._own, self._book, self._charter = own, book, charter
        self._said: Mapping[str, Any] = document.get("memory") or entry_of({})
        self._persona: str | None = (document.get("persona") or {}).get("id")
        self._forbidden = Forbidden(tuple(self._said["never"]))
        self._keys = [(glob, glob_test([glob]), body) for glob, body in self._said["keys"].items()]
        self._grounds = Grounds(book.state, document, self._said["verified_by"])

    def close(self) -> None:
        """Let go of the memory, and save its store."""
        self._book.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, args: Object) -> dict[str, Any]:
        """Return the entries of a zone, or one of them, and where the ledger stood of which they are the fold."""
        self._book.refresh()
        key, limit = args.get("key"), args.get("limit", 100)
        fitting = glob_test([args["keys"]]) if "keys" in args else None
        found = [
            self._book.told(Name(self._persona, args["zone"], each), slot)
            for each, slot in self._book.entries(self._persona, args["zone"])
            if key in (None, each) and (fitting is None or fitting(each))
        ]
        place = self._book.place
        stands = {"ledger": place.ledger, "seq": place.seq, "head": place.head}
        more = {"more": len(found) - limit} if len(found) > limit else {}
        return {"zone": args["zone"], "persona": self._persona, "entries": found[:limit], **stands, **more}

    # --- proposing ---------------------------------------------------------------------------------------------------

    def propose(self, args: Object, asked: Asked) -> dict[str, Any]:
        """Propose an entry and return what it was committed as; raises `Failed` where it is refused."""
        entry = {**{part: args[part] for part in args if part != "expected_version"}, "schema_version": VERSION}
        proposal = f"m-{new_id()}"
        payload = {"proposal": proposal, **self._links(asked), "entry": entry}
        if "expected_version" in args:
            payload["expected"] = args["expected_version"]
        withheld = self._withheld(payload)
        if withheld:
            payload["entry"] = {part: entry[part] for part in ("schema_version", "zone") if part in entry}
        above = self._entry("memory.proposed", asked, self._own.root, {**payload, **withheld})
        self._own.append([above], durable=True)
        checks: list[dict[str, Any]] = []
        try:
            if withheld:
                why = "it holds a card number, a secret, or what memory.never names; what records have of it is sealed"
                self._failed(checks, "forbidden", "MEMORY_FORBIDDEN", why)
            source = self._checked(entry, asked, checks)
            version = self._commit(proposal, entry, args.get("expected_version"), asked, above.span, checks, source)
        except _Refused as refused:
            self._refuse(proposal, asked, above.span, checks, refused)
            raise Failed(refused.code, str(refused), retryable=refused.code == "MEMORY_CONFLICT") from None
        done = {"zone": entry["zone"], "key": entry["key"], "version": version, "state": "committed"}
        return {"proposal": proposal, "persona": self._persona, **done}

    def retract(self, args: Object, asked: Asked) -> dict[str, Any]:
        """Let a key hold nothing any more and return the version that this is; raises `Failed`."""
        name, expected = Name(self._persona, args["zone"], args["key"]), args.get("expected_version")

        def entries(version: int) -> list[Entry]:
            said = {"zone": name.zone, "key": name.key, "version": version, "reason": args["reason"]}
            return [self._entry("memory.retracted", asked, self._own.root, {**self._links(asked), **said})]

        if self._withheld({"reason": args["reason"]}):
            raise Failed("MEMORY_FORBIDDEN", "the reason holds what must never enter memory")
        try:
            version = self._change(name, expected, entries, held=True)
        except _Refused as refused:
            raise Failed(refused.code, str(refused), retryable=refused.code == "MEMORY_CONFLICT") from None
        return {"zone": name.zone, "key": name.key, "version": version, "persona": self._persona, "state": "retracted"}

    # --- checking ----------------------------------------------------------------------------------------------------

    def _withheld(self, payload: Object) -> dict[str, bool]:
        """Return that nothing of an entry may be written down, where that is so."""
        about = {part: payload[part] for part in ("entry", "reason") if part in payload}
        said = {part: value for part, value in about.get("entry", {}).items() if part != "provenance"}
        raw = canonical.encode_payload(dict(payload))
        held = self._forbidden.found([said, about.get("reason")]) or self._own.scrubbed(raw) != raw
        return {"withheld": True} if held else {}

    def _checked(self, entry: Object, asked: Asked, checks: list[dict[str, Any]]) -> Source | None:
        """Check an entry, writing down each check; return the event that it rests on. Raises `_Refused`."""
        for check, why in self._wrong(entry):
            if why is not None:
                self._failed(checks, check, "MEMORY_INVALID", why)
            checks.append({"check": check, "ok": True})
        said = entry.get("provenance")
        if said is None:
            if entry["zone"] == WORLD:
                why = "world_state takes nothing without provenance: user_declared, tool_verified or human_approved"
                self._failed(checks, "provenance", "MEMORY_UNPROVEN", why)
            return None
        caller = asked.caller
        claim = Claim(
            session=asked.session, call=asked.span, ability=asked.ability, raw=asked.raw,
            principal=caller.principal.id, actor=caller.actor, persona=self._persona, value=entry["value"],
        )  # fmt: skip
        try:
            source = self._grounds.check(said, claim)
        except Unproven as problem:
            self._failed(checks, "provenance", "MEMORY_UNPROVEN", str(problem))
        checks.append({"check": "provenance", "ok": True})
        return source

    def _wrong(self, entry: Object) -> Iterator[tuple[str, str | None]]:
        """Yield what is looked at of an entry, and what is wrong with it, if anything is."""
        size, key = len(canonical.encode(entry["value"])), entry["key"]
        most = self._said["max_bytes"]
        yield "size", None if size <= most else f"the value of {key!r} has {size} bytes; memory.max_bytes is {most}"
        for glob, fits, body in self._keys:
            if fits(key):
                zones, rule = body.get("zones"), f"{key!r} does not fit memory.keys {glob!r}"
                wrong = zones is not None and entry["zone"] not in zones
                yield "zone", f"{rule}: such keys are in {', '.join(zones or ())}" if wrong else None
                why = _violation(body.get("schema"), entry["value"])
                yield "schema", f"{rule}: {why}" if why else None

    def _failed(self, checks: list[dict[str, Any]], check: str, code: str, why: str) -> Any:
        checks.append({"check": check, "ok": False, "why": why[:_LONGEST]})
        raise _Refused(code, why[:_LONGEST])

    # --- writing -----------------------------------------------------------------------------------------------------

    def _commit(
        self, proposal: str, entry: Object, expected: int | None, asked: Asked, above: str,
        checks: list[dict[str, Any]], source: Source | None,
    ) -> int:  # fmt: skip
        name = Name(self._persona, entry["zone"], entry["key"])
        checks.append({"check": "version", "ok": True})
        said = {"proposal": proposal, "ok": True, "checks": checks, **({"source": source.as_json()} if source else {})}
        which = {"proposal": proposal, "persona": name.persona, "zone": name.zone, "key": name.key}

        def entries(version: int) -> list[Entry]:
            checked = self._entry("memory.checked", asked, above, said)
            return [checked, self._entry("memory.committed", asked, checked.span, {**which, "version": version})]

        try:
            return self._change(name, expected, entries, held=False)
        except _Refused as refused:
            checks[-1] = {"check": "version", "ok": False, "why": str(refused)}
            raise

    def _change(self, name: Name, expected: int | None, entries: Callable[[int], list[Entry]], *, held: bool) -> int:
        """Append what changes a key as its next version, durably: of all who try one is next, the others try again.

        Who *expected* a version is refused where it is another. *held*: the key has to hold something.
        """
        for _ in range(_TRIES):
            self._book.refresh()
            before = self._book.slot(name)
            version, holds = before.version, before.holds is not None
            self._refuse_changed(name, version, expected, holds=holds or not held)
            if not holds and len(self._book.entries(*name[:2])) >= self._said["max_entries"]:
                raise _Refused("MEMORY_INVALID", f"zone {name.zone} is full: {self._said['max_entries']} entries")
            try:
                self._own.append(entries(version + 1), durable=True, check=partial(self._still, name, version))
            except _Moved:
                continue
            return version + 1
        raise _Refused("MEMORY_CONFLICT", f"{name.key} changes too often; propose it again")

    def _refuse_changed(self, name: Name, version: int, expected: int | None, *, holds: bool) -> None:
        if expected is not None and expected != version:
            raise _Refused("MEMORY_CONFLICT", f"{name.key} is at version {version}, not {expected}; read it again")
        if not holds:
            raise _Refused("MEMORY_NOT_FOUND", f"nothing is remembered as {name.key} in {name.zone}")

    def _still(self, name: Name, version: int) -> None:
        """Raise `_Moved` unless the key is as it was; called when nobody else can write any more."""
        self._book.refresh()
        if self._book.slot(name).version != version:
            raise _Moved

    def _refuse(self, proposal: str, asked: Asked, above: str, checks: list[dict[str, Any]], refused: _Refused) -> None:
        checked = self._entry("memory.checked", asked, above, {"proposal": proposal, "ok": False, "checks": checks})
        said = {"proposal": proposal, "code": refused.code, "reason": str(refused)}
        self._own.append([checked, self._entry("memory.refused", asked, checked.span, said)], durable=True)

    def _links(self, asked: Asked) -> dict[str, Any]:
        caller = asked.caller
        who = {
            "id": caller.principal.id,
            "via": caller.principal.via,
            "roles": sorted(caller.principal.roles),
            "on_behalf_of": caller.principal.on_behalf_of,
            "actor": caller.actor,
            "role": caller.role,
            "skill": caller.skill,
        }
        links = {"session": asked.session, "span": asked.span, "trace_id": asked.trace}
        return {**links, "charter": self._charter, "persona": self._persona, "by": who}

    def _entry(self, event_type: str, asked: Asked, above: str, payload: Object) -> Entry:
        proposed = event_type in ("memory.proposed", "memory.retracted")
        who = label(event_type, asked.caller.actor if proposed else "runtime", asked.caller.principal.id)
        return Entry(who, self._own.span(), above, canonical.encode_payload(dict(payload)))


def _violation(schema: Object | None, value: Any) -> str | None:
    """Return what is wrong with a value by the schema of its key, if anything is; what no validator can say is, too."""
    if schema is None:
        return None
    try:
        found = foreign(dict(schema), place="memory.keys").violations(value)
    except DeedbookError as problem:
        return str(problem)
    return f"{found[0].path}: {found[0].message}" if found else None
