"""The memory gate: a proposal is recorded, checked, and committed or refused; there is no other way into memory.

The door has already allowed the call: the zone is in the caller's scope, and policies have allowed it. The gate checks
the entry: its form, its grounds, its version. Each step is an event of the workspace ledger.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs

from deedbook.charter.zones import WORLD, entry_of
from deedbook.contract import Failed, Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.events import Entry, label, new_id
from deedbook.format.schema import foreign
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.bound import Caller
from deedbook.policy.conditions import glob_test

from .book import MemoryBook
from .entries import VERSION, ForbiddenValues
from .grounds import Claim, GroundsChecker, Source, UnprovenError
from .recall import EntryName

_TRIES: Final = 64
_LONGEST: Final = 500


@attrs.frozen(kw_only=True)
class MemoryRequest:
    """One call of an ability of the kind memory: its caller, its session, and the intent's span."""

    caller: Caller
    ability: str
    raw: bytes
    session: str
    trace: str
    span: str


class _ProposalRefused(Exception):  # noqa: N818 - it says what the proposal is
    """A proposal is refused, with a code and the reason."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class _ConcurrentChange(Exception):  # noqa: N818 - it says what the key is
    """Another process changed the key meanwhile."""


class MemoryGate:
    """The gate of one charter *document* (its digest: *charter*), over the memory in *book*; writes to *ledger*."""

    def __init__(self, ledger: WorkspaceLedger, book: MemoryBook, document: Object, charter: str) -> None:
        self._ledger, self._book, self._charter = ledger, book, charter
        self._settings: Mapping[str, Any] = document.get("memory") or entry_of({})
        self._persona: str | None = (document.get("persona") or {}).get("id")
        self._forbidden = ForbiddenValues(tuple(self._settings["never"]))
        self._keys = [(glob, glob_test([glob]), body) for glob, body in self._settings["keys"].items()]
        self._grounds = GroundsChecker(book.state, document, self._settings["verified_by"])

    def close(self) -> None:
        """Close the memory, and save its store."""
        self._book.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, args: Object) -> dict[str, Any]:
        """Return the entries of a zone, or one of them, and the position of the ledger that they are a fold of."""
        self._book.refresh()
        key, limit = args.get("key"), args.get("limit", 100)
        fitting = glob_test([args["keys"]]) if "keys" in args else None
        found = [
            self._book.describe(EntryName(self._persona, args["zone"], each), slot)
            for each, slot in self._book.list_entries(self._persona, args["zone"])
            if key in (None, each) and (fitting is None or fitting(each))
        ]
        place = self._book.place
        stands = {"ledger": place.ledger, "seq": place.seq, "head": place.head}
        more = {"more": len(found) - limit} if len(found) > limit else {}
        return {"zone": args["zone"], "persona": self._persona, "entries": found[:limit], **stands, **more}

    # --- proposing ---------------------------------------------------------------------------------------------------

    def propose(self, args: Object, request: MemoryRequest) -> dict[str, Any]:
        """Propose an entry and return the committed entry; raises `Failed` if it is refused."""
        entry = {**{part: args[part] for part in args if part != "expected_version"}, "schema_version": VERSION}
        proposal = f"m-{new_id()}"
        payload = {"proposal": proposal, **self._build_links(request), "entry": entry}
        if "expected_version" in args:
            payload["expected"] = args["expected_version"]
        withheld = self._find_withheld(payload)
        if withheld:
            payload["entry"] = {part: entry[part] for part in ("schema_version", "zone") if part in entry}
        proposed = self._build_entry("memory.proposed", request, self._ledger.root, {**payload, **withheld})
        self._ledger.append([proposed], durable=True)
        checks: list[dict[str, Any]] = []
        try:
            if withheld:
                why = "it holds a card number, a secret, or what memory.never names; what records have of it is sealed"
                self._fail(checks, "forbidden", "MEMORY_FORBIDDEN", why)
            source = self._check(entry, request, checks)
            version = self._commit(
                proposal, entry, args.get("expected_version"), request, proposed.span, checks, source
            )
        except _ProposalRefused as problem:
            self._record_refusal(proposal, request, proposed.span, checks, problem)
            raise Failed(problem.code, str(problem), retryable=problem.code == "MEMORY_CONFLICT") from None
        committed = {"zone": entry["zone"], "key": entry["key"], "version": version, "state": "committed"}
        return {"proposal": proposal, "persona": self._persona, **committed}

    def retract(self, args: Object, request: MemoryRequest) -> dict[str, Any]:
        """Remove the content of a key and return its new version; raises `Failed`."""
        name, expected = EntryName(self._persona, args["zone"], args["key"]), args.get("expected_version")

        def entries(version: int) -> list[Entry]:
            payload = {"zone": name.zone, "key": name.key, "version": version, "reason": args["reason"]}
            return [
                self._build_entry(
                    "memory.retracted", request, self._ledger.root, {**self._build_links(request), **payload}
                )
            ]

        if self._find_withheld({"reason": args["reason"]}):
            raise Failed("MEMORY_FORBIDDEN", "the reason holds what must never enter memory")
        try:
            version = self._change(name, expected, entries, must_exist=True)
        except _ProposalRefused as problem:
            raise Failed(problem.code, str(problem), retryable=problem.code == "MEMORY_CONFLICT") from None
        return {"zone": name.zone, "key": name.key, "version": version, "persona": self._persona, "state": "retracted"}

    # --- checking ----------------------------------------------------------------------------------------------------

    def _find_withheld(self, payload: Object) -> dict[str, bool]:
        """Return a marker if nothing of an entry may be recorded."""
        about = {part: payload[part] for part in ("entry", "reason") if part in payload}
        visible = {part: value for part, value in about.get("entry", {}).items() if part != "provenance"}
        raw = canonical.encode_payload(dict(payload))
        is_forbidden = self._forbidden.matches([visible, about.get("reason")]) or self._ledger.scrub(raw) != raw
        return {"withheld": True} if is_forbidden else {}

    def _check(self, entry: Object, request: MemoryRequest, checks: list[dict[str, Any]]) -> Source | None:
        """Check an entry and record each check; return its source event. Raises `_ProposalRefused`."""
        for check, why in self._check_form(entry):
            if why is not None:
                self._fail(checks, check, "MEMORY_INVALID", why)
            checks.append({"check": check, "ok": True})
        provenance = entry.get("provenance")
        if provenance is None:
            if entry["zone"] == WORLD:
                why = "world_state takes nothing without provenance: user_declared, tool_verified or human_approved"
                self._fail(checks, "provenance", "MEMORY_UNPROVEN", why)
            return None
        caller = request.caller
        claim = Claim(
            session=request.session, call=request.span, ability=request.ability, raw=request.raw,
            principal=caller.principal.id, actor=caller.actor, persona=self._persona, value=entry["value"],
        )  # fmt: skip
        try:
            source = self._grounds.check(provenance, claim)
        except UnprovenError as problem:
            self._fail(checks, "provenance", "MEMORY_UNPROVEN", str(problem))
        checks.append({"check": "provenance", "ok": True})
        return source

    def _check_form(self, entry: Object) -> Iterator[tuple[str, str | None]]:
        """Yield each check of an entry's form, and the violation, if there is one."""
        size, key = len(canonical.encode(entry["value"])), entry["key"]
        most = self._settings["max_bytes"]
        yield "size", None if size <= most else f"the value of {key!r} has {size} bytes; memory.max_bytes is {most}"
        for glob, fits, body in self._keys:
            if fits(key):
                zones, rule = body.get("zones"), f"{key!r} does not fit memory.keys {glob!r}"
                wrong = zones is not None and entry["zone"] not in zones
                yield "zone", f"{rule}: such keys are in {', '.join(zones or ())}" if wrong else None
                why = _find_violation(body.get("schema"), entry["value"])
                yield "schema", f"{rule}: {why}" if why else None

    def _fail(self, checks: list[dict[str, Any]], check: str, code: str, why: str) -> Any:
        checks.append({"check": check, "ok": False, "why": why[:_LONGEST]})
        raise _ProposalRefused(code, why[:_LONGEST])

    # --- writing -----------------------------------------------------------------------------------------------------

    def _commit(
        self, proposal: str, entry: Object, expected: int | None, request: MemoryRequest, above: str,
        checks: list[dict[str, Any]], source: Source | None,
    ) -> int:  # fmt: skip
        name = EntryName(self._persona, entry["zone"], entry["key"])
        checks.append({"check": "version", "ok": True})
        payload = {
            "proposal": proposal,
            "ok": True,
            "checks": checks,
            **({"source": source.as_json()} if source else {}),
        }
        which = {"proposal": proposal, "persona": name.persona, "zone": name.zone, "key": name.key}

        def entries(version: int) -> list[Entry]:
            checked = self._build_entry("memory.checked", request, above, payload)
            return [
                checked,
                self._build_entry("memory.committed", request, checked.span, {**which, "version": version}),
            ]

        try:
            return self._change(name, expected, entries, must_exist=False)
        except _ProposalRefused as problem:
            checks[-1] = {"check": "version", "ok": False, "why": str(problem)}
            raise

    def _change(
        self, name: EntryName, expected: int | None, entries: Callable[[int], list[Entry]], *, must_exist: bool
    ) -> int:
        """Append a change of a key as its next version, durably; after a concurrent change, try again.

        With *expected*, another version is refused. *must_exist*: the key has to have content.
        """
        for _ in range(_TRIES):
            self._book.refresh()
            before = self._book.get_slot(name)
            version, holds = before.version, before.content is not None
            self._check_expected(name, version, expected, holds=holds or not must_exist)
            if not holds and len(self._book.list_entries(*name[:2])) >= self._settings["max_entries"]:
                raise _ProposalRefused(
                    "MEMORY_INVALID", f"zone {name.zone} is full: {self._settings['max_entries']} entries"
                )
            try:
                self._ledger.append(
                    entries(version + 1), durable=True, check=partial(self._require_unchanged, name, version)
                )
            except _ConcurrentChange:
                continue
            return version + 1
        raise _ProposalRefused("MEMORY_CONFLICT", f"{name.key} changes too often; propose it again")

    def _check_expected(self, name: EntryName, version: int, expected: int | None, *, holds: bool) -> None:
        if expected is not None and expected != version:
            raise _ProposalRefused(
                "MEMORY_CONFLICT", f"{name.key} is at version {version}, not {expected}; read it again"
            )
        if not holds:
            raise _ProposalRefused("MEMORY_NOT_FOUND", f"nothing is remembered as {name.key} in {name.zone}")

    def _require_unchanged(self, name: EntryName, version: int) -> None:
        """Raise `_ConcurrentChange` unless the key is unchanged; called under the ledger's lock."""
        self._book.refresh()
        if self._book.get_slot(name).version != version:
            raise _ConcurrentChange

    def _record_refusal(
        self, proposal: str, request: MemoryRequest, above: str, checks: list[dict[str, Any]], problem: _ProposalRefused
    ) -> None:
        checked = self._build_entry(
            "memory.checked", request, above, {"proposal": proposal, "ok": False, "checks": checks}
        )
        payload = {"proposal": proposal, "code": problem.code, "reason": str(problem)}
        self._ledger.append(
            [checked, self._build_entry("memory.refused", request, checked.span, payload)], durable=True
        )

    def _build_links(self, request: MemoryRequest) -> dict[str, Any]:
        caller = request.caller
        who = {
            "id": caller.principal.id,
            "via": caller.principal.via,
            "roles": sorted(caller.principal.roles),
            "on_behalf_of": caller.principal.on_behalf_of,
            "actor": caller.actor,
            "role": caller.role,
            "skill": caller.skill,
        }
        links = {"session": request.session, "span": request.span, "trace_id": request.trace}
        return {**links, "charter": self._charter, "persona": self._persona, "by": who}

    def _build_entry(self, event_type: str, request: MemoryRequest, above: str, payload: Object) -> Entry:
        proposed = event_type in ("memory.proposed", "memory.retracted")
        who = label(event_type, request.caller.actor if proposed else "runtime", request.caller.principal.id)
        return Entry(who, self._ledger.span(), above, canonical.encode_payload(dict(payload)))


def _find_violation(schema: Object | None, value: Any) -> str | None:
    """Return the violation of a value by the schema of its key, if there is one; a faulty schema also counts."""
    if schema is None:
        return None
    try:
        found = foreign(dict(schema), place="memory.keys").violations(value)
    except DeedbookError as problem:
        return str(problem)
    return f"{found[0].path}: {found[0].message}" if found else None
