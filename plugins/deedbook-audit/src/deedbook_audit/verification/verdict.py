"""The one-sentence verdict of a verification, with its reasons; never a bare OK."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.format.events import FORMAT
from deedbook.format.terminal import pluralise
from deedbook_audit.report import UNHASHED, Failure, Report

from .excisions import EXCISION

Kind: TypeAlias = Literal["checkpointed", "unwitnessed", "torn", "broken", "rolled_back", "unseen", "unhashed"]

UNCOVERED: Final = "anyone with write access could have cut its end or rewritten it"
_RANK: Final[Mapping[str, int]] = MappingProxyType({"rolled_back": 0, "broken": 1, "unseen": 2})


@attrs.frozen
class Contradiction:
    """A contradiction in the ledger *ledger*, at or before event *seq* if that is known; *why* is the reason.

    ``unseen`` is no contradiction: a witness that the reader named could not be asked, or does not know the log.
    """

    kind: Literal["broken", "rolled_back", "unseen"]
    ledger: str
    seq: int | None
    why: str


@attrs.frozen
class Coverage:
    """The newest checkpoint of a log whose signature holds, and the number of events *after* it, by ledger.

    *key* describes the signer and why it is trusted, *witness* the cosigning witness and the time; empty: none. *size*
    counts leaves. No checkpoint covers a ledger that is not in *after*.
    """

    size: int
    ts: str
    key: str
    witness: str
    after: Mapping[str, int]


@attrs.frozen
class Verdict:
    """The verdict of a verification: *summary* is for people, and begins with the words for *kind*.

    *unchecked* says why decisions were not checked; *summary* gives the first reason.
    """

    kind: Kind
    summary: str
    checkpoint: Coverage | None = None
    after: int | None = None
    unchecked: Sequence[str] = ()

    @property
    def sound(self) -> bool:
        """Whether no contradiction was found."""
        return self.kind in ("checkpointed", "unwitnessed")

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        found = self.checkpoint
        checkpoint = (
            None if found is None else {"size": found.size, "ts": found.ts, "key": found.key, "seen": found.witness}
        )
        by_ledger = dict(found.after) if found else {}
        document = {
            "kind": self.kind,
            "said": self.summary,
            "checkpoint": checkpoint,
            "after": self.after,
            "ledgers": by_ledger,
        }
        return document | {"unchecked": list(self.unchecked)}


def conclude(
    reports: Sequence[Report],
    contradictions: Iterable[Contradiction] = (),
    covered: Coverage | None = None,
    unchecked: Iterable[str] = (),
) -> Verdict:
    """Return the verdict: the worst finding, else the coverage by checkpoints.

    *unchecked* adds to the reports' reasons why decisions were not checked.
    """
    alone = len(reports) == 1
    if first := _find_first_failure(reports):
        report, failure = first
        of = "" if alone else f" of {_name(report)}"
        at = f" at event {failure.line - 1}{of}" if failure.line else of.replace(" of", " in", 1)
        return Verdict("broken", f"BROKEN{at}: {failure.check}: expected {failure.expected}, found {failure.found}")
    worst = min(contradictions, key=lambda each: _RANK[each.kind], default=None)
    if worst is not None:
        return Verdict(worst.kind, _describe_contradiction(worst))
    for report in reports:
        if report.torn:
            of = "" if alone else f" of {_name(report)}"
            where = f"after event {report.events - 1}" if report.events else "before the first event"
            stands = "what was written before them stands" if report.events else "nothing was recorded"
            size = pluralise(report.torn.size, "byte")
            return Verdict("torn", f"torn {where}{of}: {size} that are no line; {stands}")
    if not reports:
        return Verdict("unwitnessed", "no ledgers yet")
    if any(not report.hashed for report in reports):
        return Verdict("unhashed", UNHASHED)
    reasons = dict.fromkeys((*unchecked, *filter(None, map(_find_unchecked_reason, reports))))
    families = sorted({name for report in reports for name in report.families})
    return attrs.evolve(_describe_coverage(reports, covered, [*reasons], families), unchecked=tuple(reasons))


def _describe_contradiction(found: Contradiction) -> str:
    if found.kind == "rolled_back":
        return f"ROLLED BACK: {found.why}"
    if found.kind == "unseen":
        return f"UNSEEN: {found.why}; nothing that was asked for vouches for what is here, and nothing else was found"
    at = f" at or before event {found.seq} of" if found.seq is not None else " in"
    return f"BROKEN{at} {found.ledger}: {found.why}"


def _describe_coverage(
    reports: Sequence[Report], covered: Coverage | None, unchecked: Sequence[str], families: Sequence[str]
) -> Verdict:
    names = [report.session_id or "" for report in reports]
    more = (
        f"; not checked: the plugins' own rules for {', '.join(f'{name}.*' for name in families)}" if families else ""
    )
    more += f"; decisions not checked: {unchecked[0]}" if unchecked else ""
    if covered is None or (names and not any(name in covered.after for name in names)):
        none = f"no checkpoint covers it; the newest is of {covered.ts}" if covered else "no checkpoint"
        summary = f"unwitnessed: sound as far as it goes, {none}; {UNCOVERED}{more}"
        return Verdict("unwitnessed", summary, covered)
    after = sum(covered.after.get(name, report.events) for name, report in zip(names, reports, strict=True))
    seen = f"witnessed {covered.witness}" if covered.witness else "unwitnessed"
    upto = f"up to checkpoint {covered.size} ({covered.ts}, {covered.key}; {seen})"
    sound = "sound" if unchecked or families else "sound and complete"
    return Verdict("checkpointed", f"{sound} {upto}, and {pluralise(after, 'event')} after it{more}", covered, after)


def _find_unchecked_reason(report: Report) -> str:
    """Return why no decision of a ledger was checked; empty if they were."""
    if report.decisions is not None:
        return report.decisions.unchecked
    return f"a ledger of format {report.format} names no charter" if report.format != FORMAT else ""


def _find_first_failure(reports: Sequence[Report]) -> tuple[Report, Failure] | None:
    """Return the first damaged line of all ledgers; if no line is damaged, the first failure of a ledger.

    A damaged line can make rules fail on earlier lines, and in other ledgers.
    """
    damage = [(each, failure) for each in reports for failure in each.bytes.failures if failure.check != EXCISION]
    if damage:
        return _find_earliest(damage)
    return _find_earliest([(each, failure) for each in reports for failure in _failures(each)])


def _find_earliest(found: Sequence[tuple[Report, Failure]]) -> tuple[Report, Failure] | None:
    """Return the failure on the first line of the first report."""
    own = (each for each in found if each[0] is found[0][0])
    return min(own, key=lambda each: each[1].line, default=None)


def _failures(report: Report) -> Iterator[Failure]:
    yield from report.bytes.failures
    yield from report.structure.failures
    yield from report.decisions.failures if report.decisions else ()


def _name(report: Report) -> str:
    return f"session {report.session_id}" if report.session_id and report.state != "workspace" else report.file
