"""What an upgrade of a pack changes: in the charter, and in the decisions about recorded calls and subjects."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.charter.changes import compare
from deedbook.charter.difference import Difference
from deedbook.kernel import bindings_for_judging
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bindings import Bindings
from deedbook.policy.judge import Verdict
from deedbook.workspace.workspace import load_workspace
from deedbook_audit.rederive import Change, RejudgedCall
from deedbook_audit.subjects import RejudgedSubject, compare_answers, rejudge_decisions
from deedbook_inspect.rejudging.whatif import WhatIf

from .packages import Pack
from .scratch import open_scratch

_CHANGES: Final[dict[str, Change]] = {"allow": "allowed", "ask": "asks", "deny": "denied"}


@attrs.frozen
class Comparison:
    """An upgrade from one pack to another: the *changes* of the charter, and the changed *decisions* of *sessions*.

    *charters* are the digests before and after.
    """

    changes: Difference
    decisions: WhatIf
    sessions: int
    charters: tuple[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "charters": dict(zip(("old", "new"), self.charters, strict=True)),
            "charter_changes": {
                "looser": list(self.changes.looser),
                "tighter": list(self.changes.tighter),
                "other": list(self.changes.other),
            },
            "sessions": self.sessions,
            **self.decisions.as_json(),
        }


def compare_packs(
    old: Pack, new: Pack, catalogue: Catalogue, *, root: Path | None, ledgers: Iterable[Path] = (), limit: int = 0
) -> Comparison:
    """Compare two versions of a pack in the workspace at *root*, or in a scratch workspace where it is ``None``.

    The calls and subjects in *ledgers* are judged under both, and those with two different decisions are changes; so a
    change that is due to something else is not counted. Raises `DeedbookError` where the workspace does not compile
    with one.
    """
    decisions, sessions = WhatIf(limit), 0
    with ExitStack() as held:
        before = held.enter_context(_bindings(old, catalogue, root, held))
        after = held.enter_context(_bindings(new, catalogue, root, held))
        for ledger in ledgers:
            sessions += 1
            decisions.add(_find_changes(ledger, before, after))
        changes = compare(before.charter.document, after.charter.document)
        charters = (before.charter.digest, after.charter.digest)
    return Comparison(changes, decisions, sessions, charters)


def _bindings(pack: Pack, catalogue: Catalogue, root: Path | None, held: ExitStack) -> Any:
    used = pack.use_in(catalogue)
    if root is None:
        root = held.enter_context(open_scratch(pack, catalogue)).root
    return bindings_for_judging(load_workspace(root, catalogue=used), used)


def _find_changes(ledger: Path, before: Bindings, after: Bindings) -> Iterator[RejudgedCall | RejudgedSubject]:
    for was, now in zip(rejudge_decisions(ledger, before), rejudge_decisions(ledger, after), strict=True):
        if isinstance(was, RejudgedCall) and isinstance(now, RejudgedCall):
            yield _difference(was, now)
        elif isinstance(was, RejudgedSubject) and isinstance(now, RejudgedSubject):
            yield _subject_difference(was, now)


def _subject_difference(was: RejudgedSubject, now: RejudgedSubject) -> RejudgedSubject:
    """Return the decision about a subject, compared with that under the old pack instead of the recorded one."""
    unknown = next((each for each in (now, was) if each.change == "undetermined"), None)
    if unknown is not None:
        return attrs.evolve(now, change="undetermined", why=unknown.why)
    if was.change == "missing":
        return attrs.evolve(now, change="same" if now.change == "missing" else "changed")
    subject = attrs.evolve(now.subject, line=was.record)
    change = "missing" if now.change == "missing" else compare_answers(was.record, now.record)
    return attrs.evolve(now, subject=subject, change=change)


def _difference(was: RejudgedCall, now: RejudgedCall) -> RejudgedCall:
    """Return the call with its decision under the old pack as the recorded one."""
    if was.verdict is None or now.verdict is None or "undetermined" in (was.change, now.change):
        return RejudgedCall(now.call, None, "undetermined", now.why or was.why)
    old, new = was.verdict, now.verdict
    call = attrs.evolve(
        now.call,
        code=old.code or "",
        reason=old.reason,
        by=dict(old.by) if old.by else None,
        approved=None,
        deferred=False,
    )
    return RejudgedCall(call, new, _change(old, new))


def _change(old: Verdict, new: Verdict) -> Change:
    if old.outcome == new.outcome:
        return "rewritten" if new.outcome != "deny" and old.raw != new.raw else "same"
    return "missing" if new.code == "TOOL_NOT_FOUND" else _CHANGES[new.outcome]
