"""A session as one page that a person can open: nothing is loaded, nothing runs, and nothing was called to make it."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.event_text import show, summary
from deedbook.format.terminal import short

from . import markup
from .account import Account, Spent
from .bars import MOST as BARS
from .bars import drawn
from .markup import chip, pairs, tag, text
from .payloads import Payloads, is_excised
from .uses import decided, entry, told

MOST_EVENTS: Final = 50_000
"""Events that a page holds; of a longer ledger it is the first ones, and the page says so."""
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
class Checked:
    """What verification said of a ledger: *sound* or not (``None``: it was not verified), in *words*, and *notes*.

    *covered*: a checkpoint vouches for it, so that more than the file itself says so.
    """

    sound: bool | None
    words: str
    notes: tuple[str, ...] = ()
    covered: bool = False

    @property
    def look(self) -> str:
        """How it is shown."""
        if self.sound is False:
            return "bad"
        return "good" if self.sound and self.covered else "odd"


def page(name: str, account: Account, checked: Checked, style: str, *, left_out: int = 0) -> Iterator[str]:
    """Yield the page of the ledger *name*, in parts; *left_out* counts the events that *account* does not have."""
    return markup.document(f"Session {name}", style, _body(name, account, checked, left_out))


def _body(name: str, account: Account, checked: Checked, left_out: int) -> Iterator[str]:
    payloads = Payloads(account.erased.keys())
    yield tag("h1", f"Session {text(name)}")
    yield from _verdict(checked, left_out)
    yield _facts(account)
    yield tag("nav", "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title in _SECTIONS))
    parts = (_said(account, payloads), _decisions(account), _calls(account, payloads), _costs(account))
    for (anchor, title), part in zip(_SECTIONS, (*parts, _timeline(account), _tree(account, payloads)), strict=True):
        yield f'<section id="{anchor}">{tag("h2", title)}'
        yield from part
        yield "</section>"


def _verdict(checked: Checked, left_out: int) -> Iterator[str]:
    yield f'<div class="verdict {checked.look}">{tag("p", text(checked.words), class_="words")}'
    yield from (tag("p", text(note)) for note in checked.notes)
    yield "</div>"
    if left_out:
        yield tag("p", f"This page holds the first {MOST_EVENTS} events; {left_out} more stand in the ledger.")


def _ending(ok: Any, reason: Any) -> str:
    """Return how a session ended, as far as its end says: older forms have no `ok`, and no reason."""
    how = "ended" if ok is None else f"ended {'ok' if ok is True else 'not ok'}"
    return how if reason is None else f"{how}: {show(reason)}"


def _facts(account: Account) -> str:
    came, events = account.came, account.events
    first, last = (events[0], events[-1]) if events else (None, None)
    ended = _ending(came.ok, came.reason) if came.closed else "not ended"
    who = came.principal
    counts = f"{came.events} events, {came.calls.total()} calls, {len(came.denied)} denied, {len(came.errors)} errors"
    rows = [
        ("State", text(ended)),
        ("For", text(_who(who)) if who else ""),
        ("Began", text(first.ts) if first else ""),
        ("Last event", text(last.ts) if last else ""),
        ("Counted", text(f"{counts}, {came.unknown} with an unknown outcome")),
        ("Tokens", text(f"{came.cost['input']:g} in, {came.cost['output']:g} out{_dollars(came.cost.get('usd'))}")),
        ("Enforcement", text(show(came.enforcement)) if came.enforcement else ""),
        ("Charter", tag("code", text(show(came.charter))) if came.charter else ""),
        ("Forked from", text(_origin(account.forked)) if account.forked else ""),
    ]
    return pairs(rows)


def _who(who: Any) -> str:
    if not isinstance(who, dict) or "id" not in who:
        return show(who)
    roles = who.get("roles")
    named = f" ({', '.join(map(str, roles))})" if isinstance(roles, list) and roles else ""
    behalf = f", on behalf of {show(who['on_behalf_of'])}" if who.get("on_behalf_of") else ""
    return f"{show(who['id'])}{named} by {show(who.get('via'))}{behalf}"


def _origin(event: Event) -> str:
    return f"session {show(event.payload.get('session'))}, event {show(event.payload.get('seq'))}"


def _dollars(spent: float | None) -> str:
    return "" if spent is None else f", {spent:.6g} US dollars"


# --- what was said, decided, called and spent -------------------------------------------------------------------------


def _said(account: Account, payloads: Payloads) -> Iterator[str]:
    for event in account.said:
        user = event.type == "user.message"
        words = event.payload if is_excised(event.payload) else event.payload.get("text" if user else "reply")
        yield tag("p", f"{chip('user' if user else 'agent')} {_link(event)} {text(event.ts)}")
        yield payloads.shown(words)
    if not account.said:
        yield tag("p", "Nothing was said.", class_="note")


def _decisions(account: Account) -> Iterator[str]:
    rows = [*(decided(use) for use in account.uses), *(_round(event) for event in account.rounds)]
    rows.sort(key=lambda row: row[0])
    if rows:
        yield from markup.table(
            ("Event", "About", "Decision", "Who decided, and where the rule stands"), (r[1] for r in rows)
        )
    else:
        yield tag("p", "Nobody was asked about anything.", class_="note")


def _round(event: Event) -> tuple[int, tuple[str, ...]]:
    """Return the row of a life-cycle event that hooks were asked about."""
    said = event.payload
    word = show(said.get("decision"))
    cell = chip(word, "good" if word == "allow" else "odd")
    return event.seq, (_link(event), text(show(said.get("event"))), cell, told(event))


def _calls(account: Account, payloads: Payloads) -> Iterator[str]:
    for use in account.uses:
        yield entry(use, payloads)
    if not account.uses:
        yield tag("p", "Nothing was called.", class_="note")


def _costs(account: Account) -> Iterator[str]:
    head = ("Ability", "Uses", "Errors", "Denied", "Milliseconds", "Tokens in", "Tokens out", "US dollars")
    yield from markup.table(head, ((text(name), *_spent(spent)) for name, spent in account.spent().items()))


def _spent(spent: Spent) -> tuple[str, ...]:
    counts = (spent.uses, spent.errors, spent.denied, spent.milliseconds, spent.tokens_in, spent.tokens_out)
    return (*map(str, counts), "" if spent.dollars is None else f"{spent.dollars:.6g}")


# --- events -----------------------------------------------------------------------------------------------------------


def _timeline(account: Account) -> Iterator[str]:
    events = account.events
    if not events:
        return
    yield from drawn(account.uses, events[0].ts, events[-1].ts)
    if len(account.uses) > BARS:
        yield tag("p", f"The drawing has the first {BARS} calls.", class_="note")
    head = ("Event", "Time", "What", "Actor", "Principal")
    rows = ((_link(each), text(each.ts), _kind(each), text(each.actor), text(each.principal or "")) for each in events)
    yield "<details><summary>Every event in the order of the ledger</summary>"
    yield from markup.table(head, rows)
    yield "</details>"


def _tree(account: Account, payloads: Payloads) -> Iterator[str]:
    tree = account.tree
    yield tag("p", f"{len(tree.nodes)} spans, {len(tree.roots)} roots, {len(tree.orphans)} orphans", class_="note")
    yield '<div class="tree">'
    stack = [(event, "", "") for event in reversed([*tree.roots, *tree.orphans])]
    while stack:
        event, branch, indent = stack.pop()
        yield _node(event, branch, account, payloads)
        below = tree.children.get(event.span, []) if tree.nodes.get(event.span) is event else []
        stack.extend(
            (child, f"{indent}{'├─ ' if more else '└─ '}", f"{indent}{'│  ' if more else '   '}")
            for more, child in enumerate(reversed(below))
        )
    yield "</div>"


def _node(event: Event, branch: str, account: Account, payloads: Payloads) -> str:
    marks = "".join(_marks(event, account))
    line = f"{_branch(branch)}{_kind(event)} {marks}{text(_brief(event, account))}"
    who = text(f"event {event.seq}, {event.ts}, {event.actor}{f', for {event.principal}' if event.principal else ''}")
    body = f'<p class="note">{who}</p>{payloads.shown(dict(event.payload))}'
    for each in account.amended.get(event.seq, ()):
        body += f'<p class="note">corrected by {_link(each)}:</p>{payloads.shown(dict(each.payload))}'
    return f'<details id="e{event.seq}"><summary>{line}</summary>{body}</details>'


def _marks(event: Event, account: Account) -> Iterator[str]:
    """Yield what has to be known before a payload is believed."""
    if is_excised(event.payload) or event.seq in account.excised:
        yield f"{tag('mark', 'taken out', class_='erased')} "
    if event.seq in account.amended:
        yield f"{tag('mark', 'corrected')} "
    if event.payload.get("outcome") == "unknown":
        yield f"{tag('mark', 'outcome unknown')} "


def _brief(event: Event, account: Account) -> str:
    return "" if is_excised(event.payload) else short(summary(event, account.tree.declared), 160)


def _branch(branch: str) -> str:
    """Return the lines of the tree before an event; of one that lies very deep the last of them."""
    shown = branch if len(branch) <= 60 else f"…{branch[-57:]}"
    return tag("span", shown, class_="branch")


def _kind(event: Event) -> str:
    return tag("code", text(event.type), class_="bad" if event.type in _BAD else "")


def _link(event: Event) -> str:
    return f'<a href="#e{event.seq}">{event.seq}</a>'
