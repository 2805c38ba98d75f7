"""The result of a verification: failures by line, check, expected and found, for people and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.format.lines import TornBytes
from deedbook.format.terminal import MOST_OF_A_KIND, excerpt, plain, pluralise

MOST_LISTED: Final = 100
"""How many sessions with gaps, or without events, are listed; the rest are counted."""

UNWITNESSED: Final = (
    "unwitnessed: no other party holds a checkpoint of this ledger; "
    "anyone with write access could have cut its end or rewritten it"
)

UNHASHED: Final = (
    "nothing to verify: this form has no hashes, so nothing here shows whether anything was changed, added or removed"
)


@attrs.frozen
class Failure:
    """One broken rule. *line* counts from 1; 0 means the whole file. *check* names the rule."""

    line: int
    check: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "the file"
        return f"{where}: {self.check}: expected {self.expected}, found {self.found}"


@attrs.frozen
class Part:
    """One part of a verification: how many lines were *checked*, and the failures.

    *failures* holds the first few of each check, *more* the number of others of each check. ``checked == 0`` without
    failures means that the part was not requested.
    """

    checked: int = 0
    failures: tuple[Failure, ...] = ()
    more: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def failure_count(self) -> int:
        """How many failures there are."""
        return len(self.failures) + sum(self.more.values())

    def as_json(self) -> dict[str, Any]:
        """Return the part as JSON."""
        return {"checked": self.checked, **failures_as_json(self)}


@attrs.frozen
class Decisions:
    """The third part: the number of recorded *calls*, and how many were judged again with the *same* result.

    *failures* are those with another result. *recorded* counts calls by gates whose recorded answer was used, with what
    must be installed to ask them again; *unknown* by the reason why they were not judged again. *unchecked* is the
    reason if no call could be judged, such as a missing charter; otherwise empty. *subjects* counts the decisions about
    subjects other than calls, *same_subjects* those with the same result; the other members are also about them.
    """

    calls: int = 0
    same: int = 0
    failures: tuple[Failure, ...] = ()
    more: Mapping[str, int] = attrs.field(factory=dict)
    recorded: Mapping[str, int] = attrs.field(factory=dict)
    unknown: Mapping[str, int] = attrs.field(factory=dict)
    unchecked: str = ""
    subjects: int = 0
    same_subjects: int = 0

    @property
    def failure_count(self) -> int:
        """How many failures there are."""
        return len(self.failures) + sum(self.more.values())

    def as_json(self) -> dict[str, Any]:
        """Return the part as JSON."""
        return {
            "calls": self.calls,
            "same": self.same,
            **failures_as_json(self),
            "recorded": [{"who": who, "calls": calls} for who, calls in sorted(self.recorded.items())],
            "unknown": [{"why": why, "calls": calls} for why, calls in sorted(self.unknown.items())],
            **({"subjects": {"all": self.subjects, "same": self.same_subjects}} if self.subjects else {}),
        }


@attrs.frozen(kw_only=True)
class Report:
    """The result of `verify` for one file.

    *format* is the envelope's version; *level* the depth of the checks; *state* is ``ended``, ``open`` (without
    ``session.end``: running, or interrupted), ``workspace``, or ``unknown`` if only hashes were checked. *head* is the
    stored hash of the last line. *notes* break no rule; the first states what the file alone cannot show. *decisions*
    is the third part, ``None`` if it was not requested. A form that is not *hashed* is never sound. *families* are
    plugins' event types, whose rules are not checked.
    """

    file: str
    format: str
    level: str
    session_id: str | None
    state: str
    events: int
    head: str | None
    bytes: Part
    structure: Part
    notes: tuple[str, ...]
    torn: TornBytes | None
    decisions: Decisions | None = None
    hashed: bool = True
    families: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the lines have hashes, every check passed, and the file ends with a complete line."""
        return self.hashed and self.faultless

    @property
    def faultless(self) -> bool:
        """Whether every check that the form allows passed, and the file ends with a complete line."""
        failed = self.bytes.failures or self.structure.failures or (self.decisions and self.decisions.failures)
        return self.torn is None and not failed

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        parts = {"bytes", "structure", "notes", "decisions", "hashed", "families"}
        own = attrs.asdict(self, filter=lambda field, _: field.name not in parts)
        told = {"bytes": self.bytes.as_json(), "structure": self.structure.as_json(), "notes": list(self.notes)}
        more: dict[str, Any] = {"decisions": self.decisions.as_json()} if self.decisions else {}
        if not self.hashed:
            more["hashed"] = False
        return {"schema_version": "v1", "sound": self.sound, **own, **told, **more}

    def lines(self) -> Iterator[str]:
        """Yield the report for people: notes first, then each part with its failures."""
        yield from map(plain, self.notes)
        yield f"{plain(self.file)}: format {self.format}, {pluralise(self.events, 'event')}, {self.state}"
        good = "sound" if self.hashed else "without faults"
        yield from _part("bytes", self.bytes, good)
        yield from _part("structure", self.structure, good)
        yield from _decisions(self.decisions) if self.decisions else ()
        if self.torn:
            size = pluralise(self.torn.size, "byte")
            yield f"torn: {size} after the last complete line, at offset {self.torn.offset}"
        yield "NOT SOUND" if not self.faultless else "sound" if self.hashed else "nothing to verify"


def unreadable(file: str, why: str) -> Report:
    """Return the report on a *file* that was not read: it is no regular file, or cannot be opened."""
    failure = Failure(0, "readable", "a regular file that can be read and has one name", excerpt(_describe_found(why)))
    return Report(
        file=file, format="unknown", level="full", session_id=None, state="unknown", events=0, head=None,
        bytes=Part(failures=(failure,)), structure=Part(), notes=(), torn=None,
    )  # fmt: skip


def _describe_found(why: str) -> str:
    """Return what was found in place of a ledger, from the reason *why* it was not read."""
    what = why.partition("; ")[0]
    if what.startswith("is "):
        return what.removeprefix("is ")
    return f"a path that {what}" if what.startswith(("has ", "leads ", "holds ")) else f"an error: {why}"


def _part(name: str, part: Part, good: str) -> Iterator[str]:
    failed = part.failure_count
    if not part.checked and not failed:
        yield f"{name}: not checked"
        return
    lines = pluralise(part.checked, "line")
    yield f"{name}: {lines} checked, {pluralise(failed, 'failure')}" if failed else f"{name}: {lines} {good}"
    yield from _describe_failures(part)


def _decisions(told: Decisions) -> Iterator[str]:
    """Yield the result of judging again, and its basis."""
    failed = told.failure_count
    if not told.calls and not told.subjects and not failed:
        yield "decisions: no calls"
        return
    unknown = sum(told.unknown.values())
    more = f", {told.same_subjects} of {pluralise(told.subjects, 'subject')}" if told.subjects else ""
    more += f", {pluralise(failed, 'failure')}" if failed else ""
    more += f", {unknown} not" if unknown else ""
    yield f"decisions: {told.same} of {pluralise(told.calls, 'call')} judged again and the same{more}"
    yield from _describe_failures(told)
    for who, calls in sorted(told.recorded.items()):
        yield plain(f"  {pluralise(calls, 'call')}: taken from the record what {who} answered")
    for why, calls in sorted(told.unknown.items()):
        yield plain(f"  {pluralise(calls, 'call')}: {why}")


def _describe_failures(part: Part | Decisions) -> Iterator[str]:
    """Yield the described failures, and the number of further ones of each check."""
    yield from (f"  {failure}" for failure in part.failures)
    if part.more:
        each = ", ".join(f"{check} {number}" for check, number in sorted(part.more.items()))
        yield plain(f"  and {sum(part.more.values())} more: {each}")


def failures_as_json(part: Part | Decisions) -> dict[str, Any]:
    """Return the failures as JSON: their number, the first few of each check, and counts of the rest."""
    more = {"more": dict(sorted(part.more.items()))} if part.more else {}
    return {"failed": part.failure_count, "failures": [attrs.asdict(failure) for failure in part.failures], **more}


class Findings:
    """Collects failures: the first few of each check are kept, the rest are counted."""

    def __init__(self) -> None:
        self.checked = 0
        self._kept: list[Failure] = []
        self._counts: Counter[str] = Counter()

    def add(self, line: int, check: str, expected: str, found: bytes | str) -> None:
        """Add a failure; *found* is made safe to print."""
        self._counts[check] += 1
        if self._counts[check] <= MOST_OF_A_KIND:
            self._kept.append(Failure(line, check, expected, excerpt(found if found.strip() else "nothing but blanks")))

    def is_full(self, check: str) -> bool:
        """Return whether further failures of *check* are only counted, so that they need no description."""
        return self._counts[check] >= MOST_OF_A_KIND

    def count(self, check: str) -> None:
        """Count a further failure of a *check* that is full."""
        self._counts[check] += 1

    def part(self) -> Part:
        """Return the collected part."""
        kept = Counter(failure.check for failure in self._kept)
        return Part(self.checked, tuple(sorted(self._kept, key=lambda each: each.line)), dict(self._counts - kept))
