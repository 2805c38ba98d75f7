"""What the door writes: the entries of one call, from verdicts and outcomes."""

from typing import Any

from . import canonical
from .bindings import Bound, Caller
from .contracts import Object
from .errors import DomainError
from .events import Entry, label
from .gates import Asked, Minutes
from .handlers import Outcome, Ticket
from .judge import Verdict
from .ledger import Ledger
from .schema import Violation

_MAX_TEXT = 2000
_MAX_VIOLATIONS = 20


class _Minutes(dict[str, Minutes]):
    """The minutes of each ability, begun when it is first called; *fixed* is what all of them say."""

    def __init__(self, **fixed: str) -> None:
        super().__init__()
        self._fixed = fixed

    def __missing__(self, ability: str) -> Minutes:
        return self.setdefault(ability, Minutes(ability=ability, **self._fixed))


class Scribe:
    """Builds the entries of a session's calls; remembers what it has written often."""

    def __init__(self, ledger: Ledger, enforcement: str) -> None:
        self._ledger = ledger
        self._hooks = _Minutes(event="PreToolUse")
        self._policies = _Minutes(enforcement=enforcement)
        self._observers = _Minutes(event="PostToolUse")

    def judged(self, verdict: Verdict, caller: Caller, facts: Object, cause: str) -> list[Entry]:
        """Return ``hook.fired``, ``policy.check`` and ``schema.violation``, as far as they apply."""
        entries: list[Entry] = []
        bound = verdict.bound
        if bound is None:
            return entries
        who = caller.principal.id
        if verdict.hooks or verdict.rewrites:
            entries.append(self._fired(bound, verdict, facts, who, cause))
        if verdict.policies:
            minutes = self._policies[bound.id]
            entries.append(self._round("policy.check", minutes, verdict.policies, facts, who, cause))
        if verdict.violations:
            entries.append(self.violation(verdict.subject, bound, verdict.violations, who, cause))
        return entries

    def intent(self, bound: Bound, verdict: Verdict, caller: Caller, span: str, cause: str) -> Entry:
        """Return the call's intent with its final arguments."""
        words = bound.words
        payload = b"%b%b%b" % (words.intent_head, verdict.raw, words.intent_tail)
        return Entry(label(words.intent, caller.actor, caller.principal.id), span, cause, payload)

    def denied(self, verdict: Verdict, caller: Caller, ability: str, cause: str) -> Entry:
        """Return the refusal, with the final arguments."""
        more = {} if verdict.by is None else {"by": dict(verdict.by)}
        kind = verdict.bound.kind if verdict.bound else "tool"
        said = {"code": verdict.code, "kind": kind, "name": text(ability), "reason": text(verdict.reason), **more}
        payload = canonical.encode(said)
        if verdict.raw.startswith(b"{"):  # joined as bytes, since arguments may be as deep as a payload
            payload = b'{"args":%b,%b' % (verdict.raw, payload[1:])
        return self._entry("tool.denied", "policy", caller.principal.id, cause, payload)

    def refused(self, kind: str, ability: str, error: DomainError, caller: Caller, cause: str) -> Entry:
        """Return the refusal of a call whose arguments cannot be recorded."""
        payload = {"code": error.code, "kind": kind, "name": text(ability), "reason": text(str(error))}
        return self._entry("tool.denied", "policy", caller.principal.id, cause, canonical.encode(payload))

    def result(self, ticket: Ticket, raw: bytes, *, late: bool) -> Entry:
        """Return the outcome of a call that gave a result (*raw*, canonical)."""
        words = ticket.bound.words
        payload = b"%b%b%b" % (words.late_head if late else words.result_head, raw, words.result_tail)
        kind = label(words.result, words.result_actor, ticket.caller.principal.id)
        return Entry(kind, self._ledger.span(), ticket.span, payload)

    def error(self, ticket: Ticket, outcome: Outcome, error: DomainError) -> Entry:
        """Return the outcome of a call that gave none."""
        words = ticket.bound.words
        payload = {
            words.name: ticket.bound.id,
            "code": text(error.code),
            "message": text(error.message),
            "outcome": outcome.end,
            "retryable": error.retryable,
        }
        who = ticket.caller.principal.id
        return self._entry(words.error, words.result_actor, who, ticket.span, canonical.encode(payload))

    def observed(self, ticket: Ticket, asked: Asked, seen: bytes | None) -> Entry:
        """Return ``hook.fired`` of ``PostToolUse``; *seen* is what hooks have made of the result, if anything."""
        minutes, who = self._observers[ticket.bound.id], ticket.caller.principal.id
        if seen is None:
            return self._round("hook.fired", minutes, asked, {}, who, ticket.span)
        payload = minutes.full(asked, output=canonical.decode(seen))
        return self._entry("hook.fired", "policy", who, ticket.span, payload)

    def violation(self, subject: str, bound: Bound, violations: tuple[Violation, ...], who: str, cause: str) -> Entry:
        """Return ``schema.violation`` with the first faults."""
        payload = {
            "subject": subject,
            "name": bound.id,
            "schema": f"{bound.id}#{'gives' if subject == 'result' else 'takes'}",
            "errors": [{"path": text(v.path), "message": text(v.message)} for v in violations[:_MAX_VIOLATIONS]],
        }
        return self._entry("schema.violation", "runtime", who, cause, canonical.encode(payload))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _fired(self, bound: Bound, verdict: Verdict, facts: Object, who: str, cause: str) -> Entry:
        minutes, asked = self._hooks[bound.id], verdict.hooks
        if not verdict.rewrites:
            return self._round("hook.fired", minutes, asked, facts, who, cause)
        asked = [*verdict.rewrites, *asked]
        if verdict.first is None:
            return self._round("hook.fired", minutes, asked, facts, who, cause)
        more = {**_facts_of(asked, facts), "input": canonical.decode(verdict.first), "output": verdict.args}
        return self._entry("hook.fired", "policy", who, cause, minutes.full(asked, **more))

    def _round(self, event: str, minutes: Minutes, asked: Asked, facts: Object, who: str, cause: str) -> Entry:
        """Return who was asked and what they said, with the facts that they read."""
        if facts and (read := _facts_of(asked, facts)):
            return self._entry(event, "policy", who, cause, minutes.full(asked, **read))
        payload, digest = minutes.usual(asked)
        return Entry(label(event, "policy", who), self._ledger.span(), cause, payload, digest)

    def _entry(self, event: str, actor: str, who: str | None, cause: str, payload: bytes) -> Entry:
        return Entry(label(event, actor, who), self._ledger.span(), cause, payload)


def text(value: str) -> str:
    """Return *value* as text that can be recorded: Unicode without lone surrogates, of bounded length."""
    return value[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()


def _facts_of(asked: Asked, facts: Object) -> dict[str, Any]:
    read = sorted({name for gate, _ in asked for name in gate.reads})
    return {"facts": {name: facts[name] for name in read}} if read else {}
