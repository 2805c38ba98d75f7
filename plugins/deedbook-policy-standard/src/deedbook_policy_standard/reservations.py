"""The feature ``budgets``: reserves in the workspace ledger what a call may use, before its intent.

It is active in workspaces with a policy of the kind ``budget`` that counts over sessions or limits the depth. Reserving
is one append under the lock of the workspace ledger, so parallel sessions never exceed a limit together. The outcome of
the call replaces its reservation by what it used. Without an outcome, as after the death of the process, the
reservation counts in full.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

import attrs

from deedbook.contract import Call, EventType, Object
from deedbook.contract.features import AllowedCall, FactsChanged, FeatureSpec, featureimpl
from deedbook.format import canonical
from deedbook.format.events import Entry, label

from .accounts import NUMBERS, AccountId, Amounts, Estimate, Terms, add
from .balances import BALANCES, RESERVED, SETTLED, Balances
from .budgets import USED

_NAME: Final = {"type": "string"}
_AMOUNTS: Final[Object] = {
    "type": "object",
    "properties": {
        "calls": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
        **{name: {"type": "integer", "minimum": 0} for name in NUMBERS},
    },
    "additionalProperties": False,
}
_ACCOUNT: Final = {"name": _NAME, "per": _NAME, "who": _NAME, "since": _NAME}


def _rows(**more: Object) -> Object:
    """Return the JSON Schema of a list of accounts, each with *more*."""
    members = {**_ACCOUNT, **more}
    row = {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}
    return {"type": "array", "items": row}


def _payload(accounts: Object, **more: Object) -> Object:
    """Return the JSON Schema of a payload; ``late`` marks a settlement that is not by the call's own session."""
    members = {**more, "accounts": accounts}
    known = {**members, "late": {"const": True}} if more else members
    return {"type": "object", "required": list(members), "properties": known, "additionalProperties": False}


_ABOUT_CALL: Final = {"session": _NAME, "span": _NAME, "ability": _NAME}
_CHANGED: Final = _rows(amount=_AMOUNTS, balance=_AMOUNTS)


@attrs.frozen(eq=False)
class Share:
    """The part of a call that one account pays: the terms, and the most that the call may use."""

    account: AccountId
    terms: Terms
    estimate: Estimate


class Budgets:
    """Reads the balances for gates, and reserves before intents."""

    spec: ClassVar[FeatureSpec] = FeatureSpec(
        records={
            RESERVED: EventType(
                schema=_payload(_CHANGED, **_ABOUT_CALL), text="{ability} of session {session}", layer="L6"
            ),
            SETTLED: EventType(
                schema=_payload(_CHANGED, **_ABOUT_CALL), text="{ability} of session {session}", layer="L6"
            ),
            BALANCES: EventType(
                schema=_payload(_rows(balance=_AMOUNTS)), text="the balances of all accounts", layer="L6"
            ),
        },
        facts={USED: {"type": "object", "properties": {"depth": {"type": "integer"}, "at": {"type": "integer"}}}},
    )

    def __init__(self) -> None:
        self._balances: Balances | None = None
        self._making = Lock()
        self._settling = Lock()

    @featureimpl
    def session_facts(self, kernel: Any, ledger: Any) -> Mapping[str, Callable[[Any], Object]]:
        """Return the reader of the fact: the depth of a call, and the balances of the accounts of its principal.

        ``at`` is the number of events of the workspace ledger that the balances include.
        """
        terms = {each.key: each for each in _find_terms(kernel).values()}

        def read(caller: Any) -> Object:
            if not terms:
                return {"depth": caller.depth}
            balances, now = self._get_balances(kernel.ledger), ledger.now()
            with kernel.ledger.exclusive():
                used = {key: balances.get(each.find_account(caller.principal, now)) for key, each in terms.items()}
                at = kernel.ledger.size
            return {"depth": caller.depth, "at": at, "accounts": {key: each for key, each in used.items() if each}}

        return {USED: read}

    @featureimpl
    def before_intents(
        self, kernel: Any, ledger: Any
    ) -> "Callable[[AllowedCall], Callable[[Any], None] | None] | None":
        """Return the function that reserves; ``None`` if no policy counts over sessions."""
        terms = _find_terms(kernel)
        if not terms:
            return None
        if ledger.size:  # the session is resumed
            self._settle_late(kernel, terms, ledger.session_id)
        return lambda allowed: self._reserve(kernel.ledger, terms, allowed)

    @featureimpl
    def sessions_recovered(self, kernel: Any) -> None:
        """Settle the reservations of dead processes, as far as their sessions tell what became of the calls."""
        terms = _find_terms(kernel)
        if terms:
            self._settle_late(kernel, terms)

    def _settle_late(self, kernel: Any, terms: Mapping[str, Terms], session: str = "") -> None:
        from .late import find_open, settle_late  # noqa: PLC0415 - most sessions end with their process

        ledger, balances = kernel.ledger, self._get_balances(kernel.ledger)

        def settle(payload: Object, finals: Mapping[AccountId, Amounts]) -> None:
            def entries() -> list[Entry]:
                if (payload["session"], payload["span"]) in (balances.watched or ()):
                    return []  # its own process has settled it meanwhile
                rows = [(AccountId.parse(row), row) for row in payload["accounts"]]
                changed = [_row(balances, each, finals[each], row["amount"]) for each, row in rows if each in finals]
                about = {name: payload[name] for name in _ABOUT_CALL}
                return [_event(ledger, SETTLED, None, {**about, "accounts": changed, "late": True})]

            ledger.append(entries)

        with self._settling:
            try:
                with ledger.exclusive():
                    balances.watched = set()
                    found = find_open(ledger, session)
                settle_late(Path(kernel.state.path), found, terms.values(), settle)
            finally:
                balances.watched = None

    def _reserve(self, ledger: Any, terms: Mapping[str, Terms], allowed: AllowedCall) -> Callable[[Any], None] | None:
        """Reserve what the call may use, or raise `FactsChanged` if a limit no longer leaves enough for it."""
        asked = {name: terms[name] for name in allowed.answers if name in terms}
        if not asked:
            return None
        call, balances = allowed.call, self._get_balances(ledger)
        estimates = {name: each.estimate(call) for name, each in asked.items()}
        shares = _merge(call, asked, estimates)

        def reserve() -> list[Entry]:
            for name, each in asked.items():
                binding = allowed.answers[name] == "allow" and call.enforcement == "enforce"
                used = balances.get(each.find_account(call.principal, call.now))
                if binding and each.find_excess(used, estimates[name]) is not None:
                    raise FactsChanged
            rows = [_row(balances, share.account, share.estimate.reserved, {}) for share in shares]
            return [*_summary(ledger, balances, call), _entry(ledger, RESERVED, allowed, rows)]

        begun = time.monotonic()
        ledger.append(reserve)

        def settle(outcome: Any) -> None:
            finals = {share.account: _final(share, call, outcome, begun) for share in shares}
            if any(finals[share.account] != share.estimate.reserved for share in shares):
                ledger.append(lambda: [] if (call.session, allowed.span) in balances.late else settle_rows(finals))

        def settle_rows(finals: Mapping[AccountId, Amounts]) -> list[Entry]:
            reserved = {share.account: share.estimate.reserved for share in shares}
            rows = [_row(balances, account, final, reserved[account]) for account, final in finals.items()]
            return [_entry(ledger, SETTLED, allowed, rows)]

        return settle

    def _get_balances(self, ledger: Any) -> Balances:
        with self._making:
            if self._balances is None:
                self._balances = Balances.load(ledger)
            return self._balances


def _find_terms(kernel: Any) -> dict[str, Terms]:
    """Return the terms of the charter's policies that count over sessions, by policy: those with an account."""
    policies = kernel.bindings.charter.document["policies"]
    bodies = {name: entry["settings"] for name, entry in policies.items() if USED in entry["reads"]}
    found = {name: Terms.of(body) for name, body in bodies.items() if "account" in body}
    return {name: each for name, each in found.items() if each is not None}


def _merge(call: Call, asked: Mapping[str, Terms], estimates: Mapping[str, Estimate]) -> Sequence[Share]:
    """Return one share for each account: of policies that share one, the highest amounts."""
    shares: dict[AccountId, Share] = {}
    for name, terms in asked.items():
        account, estimate = terms.find_account(call.principal, call.now), estimates[name]
        if (known := shares.get(account)) is not None:
            estimate = known.estimate.merge(estimate)
        shares[account] = Share(account, terms, estimate)
    return list(shares.values())


def _final(share: Share, call: Call, outcome: Any, begun: float) -> dict[str, Any]:
    """Return what a call used after all: nothing if it did not begin, all of its reservation if that is unknown."""
    if outcome is None:
        return {}
    if outcome.end == "unknown":
        return share.estimate.reserved
    ms = int((time.monotonic() - begun) * 1000)
    return share.terms.settle(call, share.estimate, outcome.value, ms)


def _row(balances: Balances, account: AccountId, amount: Amounts, instead_of: Amounts) -> dict[str, Any]:
    """Return the row of an event: the amount, and the balance with it *instead of* an earlier amount."""
    balance = add(add(balances.get(account), instead_of, -1), amount)
    return {**account.as_json(), "amount": dict(amount), "balance": balance}


def _summary(ledger: Any, balances: Balances, call: Call) -> list[Entry]:
    """Return the event with all balances, if one is due."""
    rows = balances.find_due(call.now)
    return [] if rows is None else [_event(ledger, BALANCES, None, {"accounts": rows})]


def _entry(ledger: Any, kind: str, allowed: AllowedCall, rows: Sequence[Object]) -> Entry:
    call = allowed.call
    about = {"session": call.session, "span": allowed.span, "ability": call.ability, "accounts": list(rows)}
    return _event(ledger, kind, call.principal.id, about)


def _event(ledger: Any, kind: str, who: str | None, payload: Object) -> Entry:
    return Entry(label(kind, "runtime", who), ledger.span(), ledger.root, canonical.encode_payload(dict(payload)))
