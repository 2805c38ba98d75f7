"""What a verification found: failures by line, check, expected and found; said for people and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.terminal import excerpt, plain

MAX_FAILURES: Final = 100

UNWITNESSED: Final = (
    "unwitnessed: nobody else holds a checkpoint of this ledger; "
    "whoever can write the file could have cut its end or written it anew"
)


@attrs.frozen
class Failure:
    """One broken rule. *line* counts from 1; 0 means the file as a whole. *check* names the rule."""

    line: int
    check: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "the file"
        return f"{where}: {self.check}: expected {self.expected}, found {self.found}"


@attrs.frozen
class Part:
    """One part of a verification: how many lines were *checked*, what failed, and how many more failures there are.

    ``checked == 0`` with no failure means that the part was not asked for.
    """

    checked: int = 0
    failures: tuple[Failure, ...] = ()
    more: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the part as JSON."""
        return {
            "checked": self.checked,
            "failed": len(self.failures) + self.more,
            "failures": [attrs.asdict(failure) for failure in self.failures],
        }


@attrs.frozen
class Decisions:
    """The third part: how many *calls* are recorded, and of how many everything was judged again to be the *same*.

    *failures* are those decided otherwise. *recorded* counts calls by gates whose recorded answer was taken, with what
    would have to be installed to ask them again; *unknown* by why they were not judged again at all. *unchecked* says
    why none of them could be, such as a charter that is not at hand; empty: they could.
    """

    calls: int = 0
    same: int = 0
    failures: tuple[Failure, ...] = ()
    more: int = 0
    recorded: Mapping[str, int] = attrs.field(factory=dict)
    unknown: Mapping[str, int] = attrs.field(factory=dict)
    unchecked: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the part as JSON."""
        return {
            "calls": self.calls,
            "same": self.same,
            "failed": len(self.failures) + self.more,
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "recorded": [{"who": who, "calls": calls} for who, calls in sorted(self.recorded.items())],
            "unknown": [{"why": why, "calls": calls} for why, calls in sorted(self.unknown.items())],
        }


@attrs.frozen
class Torn:
    """Bytes after the last complete line: their *offset* in the file and how many there are."""

    offset: int
    size: int


@attrs.frozen(kw_only=True)
class Report:
    """What `verify` says about one file.

    *format* is the envelope's version; *level* says how far the checks went; *state* is ``ended``, ``open`` (without
    ``session.end``: running, or interrupted), ``workspace``, or ``unknown`` where only hashes were checked. *head* is
    the stored hash of the last line. *notes* break no rule; the first says what no reader of the file alone can know.
    *decisions* is the third part; ``None`` where nobody asked for it.
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
    torn: Torn | None
    decisions: Decisions | None = None

    @property
    def sound(self) -> bool:
        """Whether every check passed and the file ends with a complete line."""
        failed = self.bytes.failures or self.structure.failures or (self.decisions and self.decisions.failures)
        return self.torn is None and not failed

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        parts = {"bytes", "structure", "notes", "decisions"}
        own = attrs.asdict(self, filter=lambda field, _: field.name not in parts)
        told = {"bytes": self.bytes.as_json(), "structure": self.structure.as_json(), "notes": list(self.notes)}
        decisions = {"decisions": self.decisions.as_json()} if self.decisions else {}
        return {"schema_version": "v1", "sound": self.sound, **own, **told, **decisions}

    def lines(self) -> Iterator[str]:
        """Yield the report for people: notes first, then each part with its failures."""
        yield from map(plain, self.notes)
        yield f"{plain(self.file)}: format {self.format}, {counted(self.events, 'event')}, {self.state}"
        yield from _part("bytes", self.bytes)
        yield from _part("structure", self.structure)
        yield from _decisions(self.decisions) if self.decisions else ()
        if self.torn:
            yield f"torn: {counted(self.torn.size, 'byte')} after the last complete line, at offset {self.torn.offset}"
        yield "sound" if self.sound else "NOT SOUND"


def unreadable(file: str, why: str) -> Report:
    """Return the report on a *file* that was not read at all, since it is no regular file, or cannot be opened."""
    failure = Failure(0, "readable", "a regular file with one name, that can be read", excerpt(why))
    return Report(
        file=file, format="unknown", level="full", session_id=None, state="unknown", events=0, head=None,
        bytes=Part(failures=(failure,)), structure=Part(), notes=(), torn=None,
    )  # fmt: skip


def counted(number: int, noun: str) -> str:
    """Return *number* with its *noun*, in the plural unless it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _part(name: str, part: Part) -> Iterator[str]:
    failed = len(part.failures) + part.more
    if not part.checked and not failed:
        yield f"{name}: not checked"
        return
    lines = counted(part.checked, "line")
    yield f"{name}: {lines} checked, {counted(failed, 'failure')}" if failed else f"{name}: {lines} sound"
    yield from (f"  {failure}" for failure in part.failures)
    if part.more:
        yield f"  and {part.more} more"


def _decisions(told: Decisions) -> Iterator[str]:
    """Say what came of judging again, and what that rests on."""
    failed = len(told.failures) + told.more
    if not told.calls and not failed:
        yield "decisions: no calls"
        return
    unknown = sum(told.unknown.values())
    more = f", {counted(failed, 'failure')}" if failed else ""
    more += f", {unknown} not" if unknown else ""
    yield f"decisions: {told.same} of {counted(told.calls, 'call')} judged again and the same{more}"
    yield from (f"  {failure}" for failure in told.failures)
    if told.more:
        yield f"  and {told.more} more"
    for who, calls in sorted(told.recorded.items()):
        yield plain(f"  {counted(calls, 'call')}: taken from the record what {who} answered")
    for why, calls in sorted(told.unknown.items()):
        yield plain(f"  {counted(calls, 'call')}: {why}")


class Findings:
    """Failures as they come: the first hundred are kept, the rest counted."""

    def __init__(self) -> None:
        self.checked = 0
        self._kept: list[Failure] = []
        self._more = 0

    def add(self, line: int, check: str, expected: str, found: bytes | str) -> None:
        """Take note of a failure; *found* is made safe to print."""
        if len(self._kept) < MAX_FAILURES:
            self._kept.append(Failure(line, check, expected, excerpt(found)))
        else:
            self._more += 1

    def part(self) -> Part:
        """Return what was found."""
        return Part(self.checked, tuple(sorted(self._kept, key=lambda each: each.line)), self._more)
