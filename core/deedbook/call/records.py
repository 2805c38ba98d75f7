"""Build the entries that the door writes for one call, from verdicts and outcomes."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, Final

from deedbook.contract import Failed, Object
from deedbook.format import canonical
from deedbook.format.errors import DomainError
from deedbook.format.events import Entry, label
from deedbook.format.schema import Violation, suggest
from deedbook.ledger.ledger import Ledger
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import BoundAbility, Caller
from deedbook.policy.gates import Answers, decision_payload, is_feature
from deedbook.policy.judge import Verdict
from deedbook.policy.subjects import VERSION

from .handlers import Outcome, Ticket

_MAX_TEXT = 2000
_MAX_VIOLATIONS = 20
_REMEMBERED = 256

_new_entry: Final[Callable[[tuple[str, str, str | None, bytes, str | None]], Entry]] = partial(tuple.__new__, Entry)
"""`Entry` from a tuple of all fields, in less than half the time; every call makes four."""


class CallRecorder:
    """Builds the entries of a session's calls.

    A round of answers that was seen before costs one look-up. This cache works for gates that answer with shared
    decisions (the constant ``ALLOW``, the rules of a policy).
    """

    def __init__(self, ledger: Ledger, enforcement: str) -> None:
        self._ledger = ledger
        self._enforcement = enforcement
        self._seen: dict[tuple[object, ...], tuple[Answers, list[tuple[str, bytes, str]]]] = {}

    def decision_entries(self, verdict: Verdict, caller: Caller, facts: Object, cause: str) -> list[Entry]:
        """Return ``hook.fired``, ``policy.check`` and ``schema.violation``, as far as they apply."""
        bound, who = verdict.bound, caller.principal.id
        if bound is None:
            return []
        if facts or verdict.original is not None or verdict.violations:
            return self._rounds(bound, verdict, facts, who, cause)
        key = (bound.id, who, *map(id, chain(*verdict.rewrites, *verdict.hooks, *verdict.policies)))
        known = self._find_known(key, cause)
        if known is not None:
            return known
        asked = [*verdict.rewrites, *verdict.hooks, *verdict.policies]
        return self._remember(key, asked, self._rounds(bound, verdict, {}, who, cause))

    def intent(self, bound: BoundAbility, verdict: Verdict, caller: Caller, span: str, cause: str) -> Entry:
        """Return the call's intent with its final arguments."""
        names = bound.event_names
        payload = names.intent_head + verdict.raw + names.intent_tail
        return _new_entry((label(names.intent, caller.actor, caller.principal.id), span, cause, payload, None))

    def denial(self, verdict: Verdict, caller: Caller, ability: str, cause: str) -> Entry:
        """Return the refusal, with the final arguments."""
        more: dict[str, Any] = {} if verdict.by is None else {"by": dict(verdict.by)}
        if is_feature(verdict.by):
            more["schema_version"] = "v2"
        kind = verdict.bound.kind if verdict.bound else "tool"
        members = {"code": verdict.code, "kind": kind, "name": text(ability), "reason": text(verdict.reason), **more}
        payload = canonical.encode(members)
        if verdict.raw.startswith(b"{"):  # joined as bytes, since arguments may be as deep as a payload
            payload = b'{"args":%b,%b' % (verdict.raw, payload[1:])
        return self._entry("tool.denied", "policy", caller.principal.id, cause, payload)

    def note(self, event: str, actor: str, caller: Caller, cause: str, payload: Object, span: str = "") -> Entry:
        """Return an event about a call that waits, or has waited, for a person."""
        who = label(event, actor, caller.principal.id)
        return Entry(who, span or self._ledger.span(), cause, canonical.encode_payload(dict(payload)))

    def refusal(self, kind: str, ability: str, error: DomainError, caller: Caller, cause: str) -> Entry:
        """Return the refusal of a call whose arguments cannot be recorded."""
        payload = {"code": error.code, "kind": kind, "name": text(ability), "reason": text(str(error))}
        return self._entry("tool.denied", "policy", caller.principal.id, cause, canonical.encode(payload))

    def result(self, ticket: Ticket, raw: bytes, *, late: bool) -> Entry:
        """Return the outcome of a call with a result (*raw*, canonical)."""
        names = ticket.bound.event_names
        payload = (names.late_head if late else names.result_head) + raw + names.result_tail
        kind = label(names.result, names.result_actor, ticket.caller.principal.id)
        return _new_entry((kind, self._ledger.span(), ticket.span, payload, None))

    def noted_events(self, ticket: Ticket, above: Entry, outcome: Outcome) -> list[Entry]:
        """Return the entries of the outcome's events, under *above*."""
        return [self.note(event, "runtime", ticket.caller, above.span, payload) for event, payload in outcome.events]

    def error(self, ticket: Ticket, outcome: Outcome, error: DomainError) -> Entry:
        """Return the outcome of a call without a result."""
        names = ticket.bound.event_names
        payload = {
            names.name: ticket.bound.id,
            "code": text(error.code),
            "message": text(error.message),
            "outcome": outcome.end,
            "retryable": error.retryable,
        }
        who = ticket.caller.principal.id
        return self._entry(names.error, names.result_actor, who, ticket.span, canonical.encode(payload))

    def observation(self, ticket: Ticket, asked: Answers, seen: bytes | None) -> list[Entry]:
        """Return ``hook.fired`` of ``PostToolUse``; *seen* is the result that hooks left, if they changed it."""
        ability, who = ticket.bound.id, ticket.caller.principal.id
        key = ("", ability, who, *map(id, chain(*asked)))
        if seen is None and (known := self._find_known(key, ticket.span)) is not None:
            return known
        more = {} if seen is None else {"output": canonical.decode(seen)}
        payload = decision_payload(asked, event="PostToolUse", ability=ability, **more)
        made = [self._entry("hook.fired", "policy", who, ticket.span, payload)]
        return made if more else self._remember(key, asked, made)

    def violation(
        self, subject: str, bound: BoundAbility, violations: tuple[Violation, ...], who: str, cause: str
    ) -> Entry:
        """Return ``schema.violation`` with the first faults."""
        payload = {
            "subject": subject,
            "name": bound.id,
            "schema": f"{bound.id}#{'gives' if subject == 'result' else 'takes'}",
            "errors": [{"path": text(v.path), "message": text(v.message)} for v in violations[:_MAX_VIOLATIONS]],
        }
        return self._entry("schema.violation", "runtime", who, cause, canonical.encode(payload))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _rounds(self, bound: BoundAbility, verdict: Verdict, facts: Object, who: str, cause: str) -> list[Entry]:
        entries = []
        if asked := [*verdict.rewrites, *verdict.hooks]:
            more = _facts_of(asked, facts)
            if verdict.original is not None:
                more |= {"input": canonical.decode(verdict.original), "output": verdict.args}
            payload = decision_payload(asked, event="PreToolUse", ability=bound.id, **more)
            entries.append(self._entry("hook.fired", "policy", who, cause, payload))
        if asked := verdict.policies:
            more = _facts_of(asked, facts)
            if any(decision.outcome == "advisory" for _, decision in asked):
                more["schema_version"] = VERSION
            payload = decision_payload(asked, ability=bound.id, enforcement=self._enforcement, **more)
            entries.append(self._entry("policy.check", "policy", who, cause, payload))
        if verdict.violations:
            entries.append(self.violation(verdict.subject, bound, verdict.violations, who, cause))
        return entries

    def _find_known(self, key: tuple[object, ...], cause: str) -> list[Entry] | None:
        """Return the entries of the same answers, with new spans under *cause*; ``None`` if there are none yet."""
        known, span = self._seen.get(key), self._ledger.span
        return known and [_new_entry((kind, span(), cause, payload, digest)) for kind, payload, digest in known[1]]

    def _remember(self, key: tuple[object, ...], asked: Answers, made: list[Entry]) -> list[Entry]:
        """Keep the entries *made* of *asked* without facts or changes, and return them."""
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        # keeping a reference to the answers keeps their ids unique
        self._seen[key] = asked, [(each.label, each.payload, canonical.digest(each.payload)) for each in made]
        return made

    def _entry(self, event: str, actor: str, who: str | None, cause: str, payload: bytes) -> Entry:
        return Entry(label(event, actor, who), self._ledger.span(), cause, payload)


def text(value: str) -> str:
    """Return *value* as recordable text: Unicode without lone surrogates, of bounded length."""
    return value[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()


def check_record(bindings: Bindings, event_type: str, payload: Object, owner: str) -> None:
    """Check an event that a plugin records against the declarations in the charter.

    *owner* is the plugin as the charter names it (``flow/review``), or a kind of plugins (``feature``). Raises `Failed`
    (``NOT_AVAILABLE``) for an undeclared type, and (``SCHEMA_VIOLATION``) for an invalid payload.
    """
    rows = bindings.charter.document.get("records", {})
    own = {name for name, row in rows.items() if owner in (row["by"], row["by"].partition("/")[0])}
    if event_type not in own:
        declared = ", ".join(sorted(own)) or "none"
        why = f"{event_type!r} is no event type that {owner} declares{suggest(event_type, own)}; declared: {declared}"
        raise Failed("NOT_AVAILABLE", why)
    found = bindings.records[event_type].violations(dict(payload))
    if found:
        raise Failed("SCHEMA_VIOLATION", f"{event_type}: {found[0]}")


def _facts_of(asked: Answers, facts: Object) -> dict[str, Any]:
    read = sorted({name for gate, _ in asked for name in gate.reads})
    return {"facts": {name: facts[name] for name in read}} if read else {}
