"""A session as one page for people: it loads nothing, runs nothing, and calls nothing."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.event_text import show, summary
from deedbook.format.terminal import short

from . import markup
from .account import AbilityUsage, SessionAccount
from .bars import MAX_BARS as BARS
from .bars import draw_bars
from .markup import escape_text, render_chip, render_pairs, render_tag
from .payloads import PayloadRenderer, is_excised
from .uses import build_decision_row, render_answers, render_call

MOST_EVENTS: Final = 50_000
"""The largest number of events of a page; for a longer ledger it holds the first ones and says so."""
_SECTIONS: Final = (
    ("said", "What was said"),
    ("decisions", "Decisions"),
    ("calls", "Calls"),
    ("costs", "Costs"),
    ("timeline", "Timeline"),
    ("tree", "Tree"),
)
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


def render_page(
    name: str, account: SessionAccount, verification: VerificationResult, style: str, *, left_out: int = 0
) -> Iterator[str]:
    """Yield the page of the ledger *name*, in parts; *left_out* counts the events that *account* lacks."""
    return markup.render_document(f"Session {name}", style, _render_body(name, account, verification, left_out))


def _render_body(name: str, account: SessionAccount, verification: VerificationResult, left_out: int) -> Iterator[str]:
    payloads = PayloadRenderer(account.erased.keys())
    yield render_tag("h1", f"Session {escape_text(name)}")
    yield from _render_verdict(verification, left_out)
    yield _render_facts(account)
    yield render_tag("nav", "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title in _SECTIONS))
    parts = (
        _render_messages(account, payloads),
        _render_decisions(account),
        _render_calls(account, payloads),
        _render_costs(account),
    )
    for (anchor, title), part in zip(
        _SECTIONS, (*parts, _render_timeline(account), _render_tree(account, payloads)), strict=True
    ):
        yield f'<section id="{anchor}">{render_tag("h2", title)}'
        yield from part
        yield "</section>"


def _render_verdict(verification: VerificationResult, left_out: int) -> Iterator[str]:
    summary = render_tag("p", escape_text(verification.summary), class_="words")
    yield f'<div class="verdict {verification.style}">{summary}'
    yield from (render_tag("p", escape_text(note)) for note in verification.notes)
    yield "</div>"
    if left_out:
        yield render_tag("p", f"This page holds the first {MOST_EVENTS} events; {left_out} more stand in the ledger.")


def _format_end(ok: Any, reason: Any) -> str:
    """Return how a session ended, as far as its end says: older forms have no `ok`, and no reason."""
    how = "ended" if ok is None else f"ended {'ok' if ok is True else 'not ok'}"
    return how if reason is None else f"{how}: {show(reason)}"


def _render_facts(account: SessionAccount) -> str:
    snapshot, events = account.snapshot, account.events
    first, last = (events[0], events[-1]) if events else (None, None)
    ended = _format_end(snapshot.ok, snapshot.reason) if snapshot.closed else "not ended"
    who = snapshot.principal
    calls = f"{snapshot.calls.total()} calls, {len(snapshot.denied)} denied, {len(snapshot.errors)} errors"
    counts = f"{snapshot.events} events, {calls}"
    cost = snapshot.cost
    rows = [
        ("State", escape_text(ended)),
        ("For", escape_text(_format_principal(who)) if who else ""),
        ("Began", escape_text(first.ts) if first else ""),
        ("Last event", escape_text(last.ts) if last else ""),
        ("Counted", escape_text(f"{counts}, {snapshot.unknown} with an unknown outcome")),
        (
            "Tokens",
            escape_text(f"{cost['input']:g} in, {cost['output']:g} out{_format_dollars(cost.get('usd'))}"),
        ),
        ("Enforcement", escape_text(show(snapshot.enforcement)) if snapshot.enforcement else ""),
        ("Charter", render_tag("code", escape_text(show(snapshot.charter))) if snapshot.charter else ""),
        ("Forked from", escape_text(_format_origin(account.forked)) if account.forked else ""),
    ]
    return render_pairs(rows)


def _format_principal(who: Any) -> str:
    if not isinstance(who, dict) or "id" not in who:
        return show(who)
    roles = who.get("roles")
    named = f" ({', '.join(map(str, roles))})" if isinstance(roles, list) and roles else ""
    behalf = f", on behalf of {show(who['on_behalf_of'])}" if who.get("on_behalf_of") else ""
    return f"{show(who['id'])}{named} by {show(who.get('via'))}{behalf}"


def _format_origin(event: Event) -> str:
    return f"session {show(event.payload.get('session'))}, event {show(event.payload.get('seq'))}"


def _format_dollars(cost: float | None) -> str:
    return "" if cost is None else f", {cost:.6g} US dollars"


# --- messages, decisions, calls, usage ------------------------------------------------------------------------------


def _render_messages(account: SessionAccount, payloads: PayloadRenderer) -> Iterator[str]:
    for event in account.messages:
        user = event.type == "user.message"
        message = event.payload if is_excised(event.payload) else event.payload.get("text" if user else "reply")
        yield render_tag(
            "p", f"{render_chip('user' if user else 'agent')} {_render_link(event)} {escape_text(event.ts)}"
        )
        yield payloads.render(message)
    if not account.messages:
        yield render_tag("p", "Nothing was said.", class_="note")


def _render_decisions(account: SessionAccount) -> Iterator[str]:
    rows = [*(build_decision_row(use) for use in account.uses), *(_build_round_row(event) for event in account.rounds)]
    rows.sort(key=lambda row: row[0])
    if rows:
        yield from markup.render_table(
            ("Event", "About", "Decision", "Who decided, and where the rule stands"), (r[1] for r in rows)
        )
    else:
        yield render_tag("p", "Nobody was asked about anything.", class_="note")


def _build_round_row(event: Event) -> tuple[int, tuple[str, ...]]:
    """Return the row of a life-cycle event that hooks were asked about."""
    payload = event.payload
    word = show(payload.get("decision"))
    cell = render_chip(word, "good" if word == "allow" else "odd")
    return event.seq, (_render_link(event), escape_text(show(payload.get("event"))), cell, render_answers(event))


def _render_calls(account: SessionAccount, payloads: PayloadRenderer) -> Iterator[str]:
    for use in account.uses:
        yield render_call(use, payloads)
    if not account.uses:
        yield render_tag("p", "Nothing was called.", class_="note")


def _render_costs(account: SessionAccount) -> Iterator[str]:
    head = ("Ability", "Uses", "Errors", "Denied", "Milliseconds", "Tokens in", "Tokens out", "US dollars")
    yield from markup.render_table(
        head, ((escape_text(name), *_format_usage(usage)) for name, usage in account.compute_usage().items())
    )


def _format_usage(usage: AbilityUsage) -> tuple[str, ...]:
    counts = (usage.uses, usage.errors, usage.denied, usage.milliseconds, usage.tokens_in, usage.tokens_out)
    return (*map(str, counts), "" if usage.dollars is None else f"{usage.dollars:.6g}")


# --- events ---------------------------------------------------------------------------------------------------------


def _render_timeline(account: SessionAccount) -> Iterator[str]:
    events = account.events
    if not events:
        return
    yield from draw_bars(account.uses, events[0].ts, events[-1].ts)
    if len(account.uses) > BARS:
        yield render_tag("p", f"The drawing has the first {BARS} calls.", class_="note")
    head = ("Event", "Time", "What", "Actor", "Principal")
    rows = (
        (
            _render_link(each),
            escape_text(each.ts),
            _render_kind(each),
            escape_text(each.actor),
            escape_text(each.principal or ""),
        )
        for each in events
    )
    yield "<details><summary>Every event in the order of the ledger</summary>"
    yield from markup.render_table(head, rows)
    yield "</details>"


def _render_tree(account: SessionAccount, payloads: PayloadRenderer) -> Iterator[str]:
    tree = account.tree
    yield render_tag(
        "p", f"{len(tree.nodes)} spans, {len(tree.roots)} roots, {len(tree.orphans)} orphans", class_="note"
    )
    yield '<div class="tree">'
    stack = [(event, "", "") for event in reversed([*tree.roots, *tree.orphans])]
    while stack:
        event, branch, indent = stack.pop()
        yield _render_node(event, branch, account, payloads)
        below = tree.children.get(event.span, []) if tree.nodes.get(event.span) is event else []
        stack.extend(
            (child, f"{indent}{'├─ ' if more else '└─ '}", f"{indent}{'│  ' if more else '   '}")
            for more, child in enumerate(reversed(below))
        )
    yield "</div>"


def _render_node(event: Event, branch: str, account: SessionAccount, payloads: PayloadRenderer) -> str:
    marks = "".join(_render_marks(event, account))
    line = f"{_render_branch(branch)}{_render_kind(event)} {marks}{escape_text(_summarize(event, account))}"
    who = escape_text(
        f"event {event.seq}, {event.ts}, {event.actor}{f', for {event.principal}' if event.principal else ''}"
    )
    body = f'<p class="note">{who}</p>{payloads.render(dict(event.payload))}'
    for each in account.amended.get(event.seq, ()):
        body += f'<p class="note">corrected by {_render_link(each)}:</p>{payloads.render(dict(each.payload))}'
    return f'<details id="e{event.seq}"><summary>{line}</summary>{body}</details>'


def _render_marks(event: Event, account: SessionAccount) -> Iterator[str]:
    """Yield marks that a reader has to see before the payload."""
    if is_excised(event.payload) or event.seq in account.excised:
        yield f"{render_tag('mark', 'taken out', class_='erased')} "
    if event.seq in account.amended:
        yield f"{render_tag('mark', 'corrected')} "
    if event.payload.get("outcome") == "unknown":
        yield f"{render_tag('mark', 'outcome unknown')} "


def _summarize(event: Event, account: SessionAccount) -> str:
    return "" if is_excised(event.payload) else short(summary(event, account.tree.declared), 160)


def _render_branch(branch: str) -> str:
    """Return the lines of the tree before an event; for a very deep one the last of them."""
    shown = branch if len(branch) <= 60 else f"…{branch[-57:]}"
    return render_tag("span", shown, class_="branch")


def _render_kind(event: Event) -> str:
    return render_tag("code", escape_text(event.type), class_="bad" if event.type in _BAD else "")


def _render_link(event: Event) -> str:
    return f'<a href="#e{event.seq}">{event.seq}</a>'
