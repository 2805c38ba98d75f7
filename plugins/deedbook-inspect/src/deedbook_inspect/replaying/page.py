"""A session as one page for people: it loads nothing, runs nothing, and calls nothing."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import attrs
from markupsafe import Markup

from deedbook.contract import Event
from deedbook.format.event_text import show
from deedbook.format.terminal import short
from deedbook_inspect.event_summary import summary

from .account import SessionAccount
from .bars import build_chart
from .payloads import Mark, Payload, PayloadCutter, is_excised
from .templates import load_template
from .uses import DecisionRow, build_call, build_decision, build_round

MOST_EVENTS: Final = 50_000
"""The largest number of events of a page; for a longer ledger it holds the first ones and says so."""
_ROWS: Final = 16
"""Rows of a long list that are one piece of the page."""
_BUFFERED: Final = 5
"""Pieces of the page that are written at once."""
_BAD: Final = frozenset({"tool.denied", "tool.error", "llm.error", "flow.error", "schema.violation", "call.diverged"})


@attrs.frozen
class VerificationResult:
    """The result of verifying a ledger: *sound* or not (``None``: not verified), *summary*, and *notes*.

    *is_covered*: a checkpoint covers it, so that the result rests on more than the file itself.
    """

    sound: bool | None
    summary: str
    notes: tuple[str, ...] = ()
    is_covered: bool = False

    @property
    def style(self) -> str:
        """The style that it is shown in."""
        if self.sound is False:
            return "bad"
        return "good" if self.sound and self.is_covered else "odd"


@attrs.frozen
class Fact:
    """One line about the session; a *text* that is empty is left out."""

    name: str
    text: str
    is_code: bool = False


@attrs.frozen
class Message:
    """A message of the user or the agent."""

    speaker: str
    seq: int
    ts: str
    payload: Payload


@attrs.frozen
class Node:
    """An event in the tree after the lines of its *branch*; a reader has to see its *marks* before its payload."""

    seq: int
    type: str
    is_bad: bool
    branch: str
    marks: tuple[Mark, ...]
    summary: str
    header: str
    payload: Payload
    corrections: tuple[tuple[int, Payload], ...]


def render_page(
    name: str, account: SessionAccount, verification: VerificationResult, style: str, *, left_out: int = 0
) -> Iterator[str]:
    """Yield the page of the ledger *name*, in parts; *left_out* counts the events that *account* lacks.

    *style* is the only style that the policy of the page allows; it is trusted and not escaped.
    """
    cutter, events = PayloadCutter(account.erased.keys()), account.events
    stream = load_template("replay.html.jinja").stream(
        name=name,
        style=Markup(style),  # noqa: S704 - the style sheet of this distribution
        content_policy=_build_content_policy(style),
        verification=verification,
        left_out=left_out,
        most_events=MOST_EVENTS,
        rows=_ROWS,
        bad_types=_BAD,
        facts=_list_facts(account),
        messages=_list_messages(account, cutter),
        decisions=_list_decisions(account),
        calls=(build_call(use, cutter) for use in account.uses),
        costs=account.compute_usage(),
        chart=build_chart(account.uses, events[0].ts, events[-1].ts) if events else None,
        events=events,
        tree=account.tree,
        nodes=_list_nodes(account, cutter),
    )
    stream.enable_buffering(_BUFFERED)
    return iter(stream)


def _build_content_policy(style: str) -> str:
    allowed = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"


# --- the session ------------------------------------------------------------------------------------------------------


def _list_facts(account: SessionAccount) -> list[Fact]:
    snapshot, events = account.snapshot, account.events
    denied, errors = len(snapshot.denied), len(snapshot.errors)
    counts = f"{snapshot.events} events, {snapshot.calls.total()} calls, {denied} denied, {errors} errors"
    spent, dollars = snapshot.cost, snapshot.cost.get("usd")
    tokens = f"{spent['input']:g} in, {spent['output']:g} out"
    return [
        Fact("State", _format_end(snapshot.ok, snapshot.reason) if snapshot.closed else "not ended"),
        Fact("For", _format_principal(snapshot.principal) if snapshot.principal else ""),
        Fact("Began", events[0].ts if events else ""),
        Fact("Last event", events[-1].ts if events else ""),
        Fact("Counted", f"{counts}, {snapshot.unknown} with an unknown outcome"),
        Fact("Tokens", tokens if dollars is None else f"{tokens}, {dollars:.6g} US dollars"),
        Fact("Enforcement", show(snapshot.enforcement) if snapshot.enforcement else ""),
        Fact("Charter", show(snapshot.charter) if snapshot.charter else "", is_code=True),
        Fact("Forked from", _format_origin(account.forked) if account.forked else ""),
    ]


def _format_end(ok: Any, reason: Any) -> str:
    """Return how a session ended, as far as its end says: older forms have no `ok`, and no reason."""
    how = "ended" if ok is None else f"ended {'ok' if ok is True else 'not ok'}"
    return how if reason is None else f"{how}: {show(reason)}"


def _format_principal(who: Any) -> str:
    if not isinstance(who, dict) or "id" not in who:
        return show(who)
    roles = who.get("roles")
    named = f" ({', '.join(map(str, roles))})" if isinstance(roles, list) and roles else ""
    behalf = f", on behalf of {show(who['on_behalf_of'])}" if who.get("on_behalf_of") else ""
    return f"{show(who['id'])}{named} by {show(who.get('via'))}{behalf}"


def _format_origin(event: Event) -> str:
    return f"session {show(event.payload.get('session'))}, event {show(event.payload.get('seq'))}"


def _list_messages(account: SessionAccount, cutter: PayloadCutter) -> Iterator[Message]:
    for event in account.messages:
        speaker, member = ("user", "text") if event.type == "user.message" else ("agent", "reply")
        said = event.payload if is_excised(event.payload) else event.payload.get(member)
        yield Message(speaker, event.seq, event.ts, cutter.cut(said))


def _list_decisions(account: SessionAccount) -> list[DecisionRow]:
    rows = [*map(build_decision, account.uses), *map(build_round, account.rounds)]
    return sorted(rows, key=lambda row: row.seq)


# --- the tree ---------------------------------------------------------------------------------------------------------


def _list_nodes(account: SessionAccount, cutter: PayloadCutter) -> Iterator[Node]:
    """Yield each event after its parent. The tree may be deeper than the stack of Python, so this is a loop."""
    tree = account.tree
    stack = [(event, "", "") for event in reversed([*tree.roots, *tree.orphans])]
    while stack:
        event, branch, indent = stack.pop()
        yield _build_node(event, branch, account, cutter)
        below = tree.children.get(event.span, []) if tree.nodes.get(event.span) is event else []
        stack.extend(
            (child, f"{indent}{'├─ ' if more else '└─ '}", f"{indent}{'│  ' if more else '   '}")
            for more, child in enumerate(reversed(below))
        )


def _build_node(event: Event, branch: str, account: SessionAccount, cutter: PayloadCutter) -> Node:
    beneficiary = f", for {event.principal}" if event.principal else ""
    return Node(
        seq=event.seq,
        type=event.type,
        is_bad=event.type in _BAD,
        branch=branch if len(branch) <= 60 else f"…{branch[-57:]}",
        marks=tuple(_list_marks(event, account)),
        summary="" if is_excised(event.payload) else short(summary(event, account.tree.declared), 160),
        header=f"event {event.seq}, {event.ts}, {event.actor}{beneficiary}",
        payload=cutter.cut(dict(event.payload)),
        corrections=tuple((each.seq, cutter.cut(dict(each.payload))) for each in account.amended.get(event.seq, ())),
    )


def _list_marks(event: Event, account: SessionAccount) -> Iterator[Mark]:
    if is_excised(event.payload) or event.seq in account.excised:
        yield Mark("taken out", "erased")
    if event.seq in account.amended:
        yield Mark("corrected")
    if event.payload.get("outcome") == "unknown":
        yield Mark("outcome unknown")
