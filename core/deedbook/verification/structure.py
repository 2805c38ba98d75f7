"""What a ledger's events must be to each other: one root, earlier parents, outcomes under intents, payloads by schema.

Bytes are somebody else's business: a `Header` and a parsed payload come in, failures go to the `Findings`. Memory grows
by one set entry per span, and with the calls that are open.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deedbook import events
from deedbook.approvals.consents import ANSWERS, Approvers, Consents
from deedbook.schema import Schemas, Validator
from deedbook.tasks.lives import ABOUT, Lives

from .excisions import EXCISED
from .hierarchy import HEAD, KINDS, Hierarchy
from .report import Findings

ROOTS: Final = ("session.start", "ledger.created")
_UNDECLARED: Final[Mapping[str, Validator]] = MappingProxyType({})
_INTENTS: Final[Mapping[str, str]] = MappingProxyType(
    {outcome: intent for intent, outcomes in events.OUTCOMES.items() for outcome in outcomes}
)
_NONE: Final[frozenset[str]] = frozenset()
_MAX_VIOLATIONS: Final = 5
_CONSENTING: Final = frozenset({"approval.requested", "approval.answered", *ANSWERS, *events.OUTCOMES})


class Header(NamedTuple):
    """The causal fields of one line; *line* counts from 1, *span*, *parent* and *ts* are the bytes that stand there."""

    line: int
    type: str
    span: bytes
    parent: bytes | None
    ts: bytes


class Structure:
    """The structure part over one ledger: `check` every line in order, then ask for `notes`.

    *workspace* says whether it is the workspace ledger or a session's. *declared* holds validators of the event types
    that a charter added (``x.<plugin>.<name>``), *approvers* tells the keys of a charter's approvers.
    """

    def __init__(
        self,
        schemas: Schemas,
        findings: Findings,
        *,
        workspace: bool = False,
        declared: Mapping[str, Validator] = _UNDECLARED,
        approvers: Approvers | None = None,
    ) -> None:
        self.ended = False
        self._schemas = schemas
        self._findings = findings
        self._root_type = ROOTS[workspace]
        self._root: bytes | None = None
        self._spans: set[bytes] = set()
        self._open: dict[bytes, str] = {}
        self._validators: dict[str, Validator | None] = dict(declared)
        self._ts = b""
        self._backwards = 0
        self._consents = Consents(approvers)
        self._hierarchy = Hierarchy(workspace=workspace)
        self._lives = Lives(workspace=workspace)
        self._excised: dict[int, str] = {}
        self._to_excise: list[int] = []

    def check(self, header: Header, payload: Any) -> None:
        """Check the next event; an unsound payload comes as ``None`` and is not validated, nor is ``EXCISED``."""
        self._findings.checked += 1
        self._check_place(header)
        self._check_role(header)
        self._check_time(header)
        if payload is EXCISED:
            self._excised[header.line - 1] = header.type.partition(".")[0]
        elif payload is not None:
            self._check_payload(header, payload)
            if header.type == "ledger.excised" and isinstance(payload, dict):
                self._to_excise.append(payload.get("seq", -1))

    def notes(self) -> Iterator[str]:
        """Yield what breaks no rule but should be known."""
        if not self.ended and self._root_type == ROOTS[0]:
            yield "no session.end: still open, or interrupted; events cut off at the end would not show"
        if self._open:
            yield f"calls without an outcome: {len(self._open)}; what became of them is unknown"
        yield from self._consents.notes()
        if self._excised:
            yield f"payloads taken out of their lines: {len(self._excised)}, of events {_some(self._excised)}"
        if left := [seq for seq in self._to_excise if seq not in self._excised]:
            yield f"excision not finished: the payloads of {len(left)} events still stand, {_some(left)}"
        if self._backwards:
            yield f"ts goes back {self._backwards} times; the order is that of seq"

    def _check_place(self, header: Header) -> None:
        """One root, on the first line; every span once; every parent on an earlier line."""
        line, kind, span, parent, _ = header
        if self._root is None:
            self._root = span
            if parent is not None or kind != self._root_type:
                found = f"{kind} under {_name(parent)}"
                self._findings.add(line, "root", f"{self._root_type} without a parent", found)
        elif parent is None:
            self._findings.add(line, "root", "one event without a parent, the first", f"{kind}, another")
        elif parent not in self._spans:
            self._findings.add(line, "parent", "the span of an earlier line", parent)
        if span in self._spans:
            self._findings.add(line, "span", "a span that no earlier line has", span)
        self._spans.add(span)

    def _check_role(self, header: Header) -> None:
        """Outcomes close the intent they hang under, once; the end hangs under the root, and little follows it."""
        line, kind, span, parent, _ = header
        if self.ended and not kind.startswith(events.AFTER_END):
            self._findings.add(line, "end", "only event.amended, payload.erased or ledger.* after session.end", kind)
        if kind in events.OUTCOMES:
            self._open[span] = kind
        elif kind in _INTENTS:
            self._close(header)
        elif kind in ROOTS and span != self._root:
            self._findings.add(line, "root", f"{kind} on the first line only", "a second one")
        elif kind == "session.end":
            if self._root_type == ROOTS[1]:
                self._findings.add(line, "end", "no session.end in a workspace ledger", kind)
            elif parent != self._root:
                self._findings.add(line, "end", f"session.end under the root {_name(self._root)}", _name(parent))
            self.ended = True

    def _close(self, header: Header) -> None:
        wanted = _INTENTS[header.type]
        found = self._open.get(header.parent or b"")
        if found == wanted:
            del self._open[header.parent or b""]
        else:
            place = f"it under {found}" if found else "it under no open call"
            self._findings.add(header.line, "outcome", f"{header.type} under a {wanted} that is still open", place)

    def _check_time(self, header: Header) -> None:
        ts = header.ts
        if ts[:19] != self._ts[:19]:
            try:
                datetime.fromisoformat(ts.decode())
            except ValueError:
                self._findings.add(header.line, "ts", "a time that exists", ts)
        if ts < self._ts:
            self._backwards += 1
        self._ts = ts

    def _check_payload(self, header: Header, payload: Any) -> None:
        kind = header.type
        if kind not in self._validators:
            self._validators[kind] = self._find(kind)
        validator = self._validators[kind]
        if validator is None:
            self._findings.add(header.line, "event_type", "a type of the catalogue, or one that is declared", kind)
        elif not validator.valid(payload):
            for violation in validator.violations(payload)[:_MAX_VIOLATIONS]:
                self._findings.add(header.line, "payload", f"what {kind} must hold", str(violation))
        else:
            self._check_lives(header, payload)

    def _check_lives(self, header: Header, payload: Any) -> None:
        """Check what goes on for longer than one event: what people are asked, what tasks do, who runs what."""
        line, kind, span, parent, _ = header
        gone = {*self._excised.values()} if self._excised else _NONE
        if kind in _CONSENTING and "approval" not in gone:
            for why in self._consents.check(kind, span, parent, payload):
                self._findings.add(line, "approval", "a call that an approver signed for, and no other", why)
        if kind in ABOUT and "task" not in gone:
            for why in self._lives.check(kind, span, parent, payload):
                self._findings.add(line, "task", "a task that is made once and runs one run at a time", why)
        if kind in KINDS or kind == HEAD:
            for why in self._hierarchy.check(kind, span, parent, payload):
                self._findings.add(line, "hierarchy", "a session of one run of one process that lives", why)

    def _find(self, kind: str) -> Validator | None:
        return self._schemas.validator(events.CATALOGUE[kind]) if kind in events.CATALOGUE else None


def _some(numbers: Iterable[int]) -> str:
    """Return the first of many numbers as text."""
    first = list(islice(numbers, 6))
    return ", ".join(map(str, first[:5])) + (", …" if len(first) > 5 else "")


def _name(span: bytes | None) -> str:
    return span.decode() if span else "nothing"
