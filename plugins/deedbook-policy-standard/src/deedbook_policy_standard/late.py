"""Settle reservations that lost their process: by the answer that the session's ledger holds.

A process may die after the outcome of a model call and before its settlement, and a resumed run may get the answer
later. A call without an answer stays reserved in full. One that never began, in a session that has ended, gives all
back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from deedbook.contract import Event, Object
from deedbook.format.errors import DeedbookError
from deedbook.format.events import SESSION_ID, split_line
from deedbook.format.reader import read

from .accounts import AccountId, Amounts, Terms
from .balances import MARK, RESERVED, SETTLED

Settle: TypeAlias = Callable[[Object, Mapping[AccountId, Amounts]], None]
"""Records what the accounts of a reservation (the payload of its event) pay after all."""


def find_open(ledger: Any, session: str = "") -> dict[str, list[Object]]:
    """Return the reservations of tokens without a settlement, by session; of one *session* if it is given."""
    found: dict[tuple[str, str], Object] = {}
    wanted = session.encode()
    for raw in ledger.since(0):
        if MARK in raw and wanted in raw:
            event = split_line(raw.rstrip(b"\n"), place=ledger.place).event
            if event.type in (RESERVED, SETTLED) and "accounts" in event.payload:
                key = str(event.payload["session"]), str(event.payload["span"])
                found.pop(key, None)
                if event.type == RESERVED and _has_tokens(event.payload):
                    found[key] = event.payload
    grouped: dict[str, list[Object]] = {}
    for (name, _), payload in found.items():
        if SESSION_ID.fullmatch(name) and session in ("", name):
            grouped.setdefault(name, []).append(payload)
    return grouped


def settle_late(state: Path, found: Mapping[str, Iterable[Object]], terms: Iterable[Terms], settle: Settle) -> None:
    """Settle the reservations in *found*, as far as the ledgers of their sessions in *state* tell; may be repeated."""
    known = {(each.account, each.per): each for each in terms}
    for session, payloads in found.items():
        try:
            events = list(read(state / "sessions" / session))
        except (DeedbookError, OSError):
            continue  # what cannot be read counts in full
        for payload in payloads:
            settlement = dict(_finals(payload, events, known))
            if settlement:
                settle(payload, settlement)


def _finals(
    payload: Object, events: Iterable[Event], known: Mapping[tuple[str, str], Terms]
) -> Iterator[tuple[AccountId, Amounts]]:
    """Yield what each account of a reservation pays after all; nothing if that is not known."""
    answer, begun, ended = None, False, False
    for event in events:
        begun = begun or event.span == payload["span"]
        ended = ended or event.type == "session.end"
        if event.type == "llm.response" and event.parent == payload["span"]:
            answer = event.payload.get("response")
    for row in payload["accounts"]:
        account = AccountId.parse(row)
        terms = known.get((account.name, account.per))
        if ended and not begun:
            yield account, {}
        elif answer is not None and terms is not None:
            yield account, terms.settle_answer(payload["ability"], row["amount"], answer)


def _has_tokens(payload: Object) -> bool:
    return any(row["amount"].get("input_tokens", 0) for row in payload["accounts"])
