"""The relations between a ledger's events: one root, earlier parents, outcomes under intents, complete records.

Bytes and schemas are checked elsewhere: this module gets causal fields and a checked payload, and adds failures to the
`Findings`. Memory grows by eight bytes for each span, and with the open calls, tasks, approvals and processes.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from deedbook.format import events
from deedbook.format.families import CATALOGUE, OUTCOMES
from deedbook_audit.approval_rules import ANSWERS, SETTLED, ApprovalRules, Approvers
from deedbook_audit.memory_rules import ABOUT as REMEMBERED
from deedbook_audit.memory_rules import MemoryRules
from deedbook_audit.person_rules import ABOUT as PEOPLE
from deedbook_audit.person_rules import PersonRules
from deedbook_audit.report import Findings
from deedbook_audit.skip_rules import ABOUT as SKIPS
from deedbook_audit.skip_rules import check_skip
from deedbook_audit.task_rules import ABOUT as TASKS
from deedbook_audit.task_rules import TaskRules
from deedbook_audit.workflow_rules import ABOUT as CYCLES
from deedbook_audit.workflow_rules import CHECK, WorkflowRules

from .completeness_rules import ABOUT as AUDITED
from .completeness_rules import CompletenessRules
from .excisions import EXCISED
from .fork_rules import ABOUT as DESCENT
from .fork_rules import ForkRules
from .hierarchy import HEAD, KINDS, Hierarchy
from .spans import Spans

ROOTS: Final = ("session.start", "ledger.created")
_INTENTS: Final[Mapping[str, str]] = MappingProxyType(
    {outcome: intent for intent, outcomes in OUTCOMES.items() for outcome in outcomes}
)
_APPROVAL_EVENTS: Final = frozenset(
    {"approval.requested", "approval.answered", "approval.used", SETTLED, *ANSWERS, *OUTCOMES}
)
_ANSWERS: Final = _APPROVAL_EVENTS | PEOPLE
_WITH_CALLS: Final = _APPROVAL_EVENTS | TASKS | {"session.forked"}
"""The event types after which calls are checked: these may stand under them, or repeat those of a parent."""
_NONE: Final[frozenset[str]] = frozenset()
_SUSPENSION: Final = frozenset({"session.suspended", "session.resumed"})
_ABOUT: Final = (
    _SUSPENSION | _APPROVAL_EVENTS | TASKS | AUDITED | KINDS | REMEMBERED | DESCENT | CYCLES | SKIPS | PEOPLE
)
_RULED: Final = (_ABOUT | {HEAD, "ledger.excised"}) - OUTCOMES.keys()
WATCHED: Final = _RULED | OUTCOMES.keys()
"""The event types whose payloads are checked here; of the others only the causal fields are."""
_PLAIN: Final = frozenset(CATALOGUE) - OUTCOMES.keys() - _INTENTS.keys() - {*ROOTS, "session.end"}
"""Event types that begin and end nothing."""
_SIGNED: Final = "a call that an approver signed for, and no other"
_ONE_LIFE: Final = "a task that is made once and runs one run at a time"
_CYCLE: Final = "a cycle that begins, goes from phase to phase and ends, with every decision that it named"
_PERSON: Final = "a decision of a person that a signed answer in this ledger shows"
_IN_TURN: Final = "what was proposed, checked and in turn"


class Structure:
    """The structure part over one ledger: `check` every line in order, `finish`, then read the `notes`.

    *workspace* is true for the workspace ledger; *approvers* returns the keys of a charter's approvers. *session* is
    the ledger's id, if it is known.
    """

    def __init__(
        self, findings: Findings, *, workspace: bool = False, approvers: Approvers | None = None,
        session: str | None = None,
    ) -> None:  # fmt: skip
        self.ended = False
        self._findings = findings
        self._root_type = ROOTS[workspace]
        self._root: bytes | None = None
        self._parent: bytes | None = None
        self._spans = Spans()
        self._open: dict[bytes, tuple[int, str]] = {}
        self._ts = b""
        self._backwards = 0
        self._approvals = ApprovalRules(approvers, session)
        self._hierarchy = Hierarchy(workspace=workspace)
        self._tasks = TaskRules(workspace=workspace)
        self._completeness = CompletenessRules()
        self._memory = MemoryRules()
        self._fork = ForkRules()
        self._workflows = WorkflowRules()
        self._people = PersonRules()
        self._outcome: bytes | None = None
        self._intent: bytes | None = None
        self._is_plain = True
        self._excised: dict[int, str] = {}
        self._to_excise: list[int] = []
        self._suspended: Any = None

    def check(self, line: int, kind: str, span: bytes, parent: bytes | None, ts: bytes, payload: Any) -> None:
        """Check the next event, on *line* (from 1).

        An unsound payload is ``None``, an excised one ``EXCISED``.
        """
        if parent != self._parent or parent is None:
            if parent is None or parent not in self._spans:
                self._check_root(line, kind, span, parent)
            else:
                self._parent = parent
        if not self._spans.add(span):
            self._findings.add(line, "span", "a span that no earlier line has", span)
        if kind not in _PLAIN or self.ended:
            if self.ended or kind not in OUTCOMES:
                self._check_role(line, kind, span, parent)
            else:
                self._open[span] = line, kind
        if ts != self._ts:
            self._check_time(line, ts)
        if kind == CHECK and payload is not None:
            self._workflows.add_check(span, parent, payload)
        if payload is not None and (kind in _RULED if self._is_plain else kind in WATCHED):
            self._check_rules(line, kind, span, parent, payload)
        elif payload is EXCISED:
            self._excised[line - 1] = kind.partition(".")[0]

    def finish(self) -> Iterator[bytes]:
        """Report what shows only at the end; yield the spans that two distant lines share."""
        if self.ended:
            for line, kind in self._open.values():
                why = f"an outcome of this {kind} before session.end"
                self._findings.add(line, "audit", why, "none")
        yield from self._spans.find_duplicates()

    def notes(self) -> Iterator[str]:
        """Yield deviations that break no rule."""
        if not self.ended and self._suspended is not None:
            yield from _describe_suspension(self._suspended, len(self._open))
        elif not self.ended and self._root_type == ROOTS[0]:
            yield "no session.end: still open, or interrupted; events cut off at the end would not show"
        if self._open and not self.ended and self._suspended is None:
            yield f"calls without an outcome: {len(self._open)}; what became of them is unknown"
        yield from self._approvals.notes()
        yield from self._fork.notes()
        if self._excised:
            yield f"payloads taken out of their lines: {len(self._excised)}, of events {_list_first(self._excised)}"
        if left := [seq for seq in self._to_excise if seq not in self._excised]:
            yield f"excision not finished: the payloads of {len(left)} events still stand, {_list_first(left)}"
        if self._backwards:
            yield f"ts goes back {self._backwards} times; the order is that of seq"

    def _check_root(self, line: int, kind: str, span: bytes, parent: bytes | None) -> None:
        """Check an event without a parent on an earlier line: only the first line may be one."""
        if self._root is None:
            self._root = span
            if parent is not None or kind != self._root_type:
                found = f"{kind} under {_name(parent)}"
                self._findings.add(line, "root", f"{self._root_type} without a parent", found)
        elif parent is None:
            self._findings.add(line, "root", "one event without a parent, the first", f"{kind}, another")
        else:
            self._findings.add(line, "parent", "the span of an earlier line", parent)

    def _check_role(self, line: int, kind: str, span: bytes, parent: bytes | None) -> None:
        """Check that outcomes close their intent once, and that the end hangs under the root and is final."""
        if self.ended and not kind.startswith(events.AFTER_END):
            self._findings.add(line, "end", "only event.amended, payload.erased or ledger.* after session.end", kind)
        if kind in OUTCOMES:
            self._open[span] = line, kind
        elif kind in _INTENTS:
            self._close(line, kind, parent)
            self._outcome, self._intent = span, parent
        elif kind in ROOTS and span != self._root:
            self._findings.add(line, "root", f"{kind} on the first line only", "a second one")
        elif kind == "session.end":
            if self._root_type == ROOTS[1]:
                self._findings.add(line, "end", "no session.end in a workspace ledger", kind)
            elif parent != self._root:
                self._findings.add(line, "end", f"session.end under the root {_name(self._root)}", _name(parent))
            self.ended = True

    def _close(self, line: int, kind: str, parent: bytes | None) -> None:
        wanted = _INTENTS[kind]
        _, found = self._open.get(parent or b"", (0, ""))
        if found == wanted:
            del self._open[parent or b""]
        else:
            place = f"it under {found}" if found else "it under no open call"
            self._findings.add(line, "outcome", f"{kind} under a {wanted} that is still open", place)

    def _check_time(self, line: int, ts: bytes) -> None:
        if ts[:19] != self._ts[:19]:
            try:
                datetime.fromisoformat(ts.decode())
            except ValueError:
                self._findings.add(line, "ts", "a time that exists", ts)
        if ts < self._ts:
            self._backwards += 1
        self._ts = ts

    def _check_rules(self, line: int, kind: str, span: bytes, parent: bytes | None, payload: Any) -> None:
        """Check what spans several events: approvals, tasks, processes, memory, forks.

        Calls are checked once there was a request or a task, which they could hang under. A value whose counterpart was
        excised is not compared.
        """
        if payload is EXCISED:
            self._excised[line - 1] = kind.partition(".")[0]
        elif kind == "ledger.excised":
            self._to_excise.append(payload["seq"])
        if kind in _SUSPENSION:
            self._suspended = payload if kind == "session.suspended" else None
        results = (
            self._run_header_rules(kind, span, parent)
            if payload is EXCISED
            else self._run_rules(line, kind, span, parent, payload)
        )
        for check, wanted, whys in results:
            for why in whys:
                self._findings.add(line, check, wanted, why)

    def _run_header_rules(
        self, kind: str, span: bytes, parent: bytes | None
    ) -> Iterator[tuple[str, str, Iterator[str]]]:
        """Yield the results of the rules for an excised event, from its header alone."""
        self._is_plain = self._is_plain and kind not in _WITH_CALLS
        if kind in _APPROVAL_EVENTS:
            yield "approval", _SIGNED, self._approvals.check_excised(kind, span, parent)
        if kind in PEOPLE:
            yield "approval", _PERSON, self._people.check(kind, span, parent, None, self._intent)
        if kind in TASKS:
            yield "task", _ONE_LIFE, self._tasks.check_excised(kind, span, parent)
        if kind in REMEMBERED:
            yield "memory", _IN_TURN, self._memory.check_excised(kind, span, parent)
        if kind in CYCLES:
            yield "audit", _CYCLE, self._workflows.check(kind, parent, None)

    def _run_rules(
        self, line: int, kind: str, span: bytes, parent: bytes | None, payload: Any
    ) -> Iterator[tuple[str, str, Iterator[str]]]:
        excised = {*self._excised.values()} if self._excised else _NONE
        if kind in _WITH_CALLS:
            self._is_plain = False
        if kind in _ANSWERS:
            yield from self._run_person_rules(kind, span, parent, payload)
        if kind in TASKS:
            yield "task", _ONE_LIFE, self._tasks.check(kind, span, parent, payload)
        if kind in KINDS or kind == HEAD:
            wanted = "a session of one run of one process that lives"
            yield "hierarchy", wanted, self._hierarchy.check(kind, span, parent, payload)
        if kind in REMEMBERED:
            yield "memory", _IN_TURN, self._memory.check(kind, span, parent, payload)
        if kind in DESCENT and "session" not in excised:
            wanted = "a fork that says where it comes from, and serves what was recorded there"
            yield "fork", wanted, self._fork.check(kind, parent, self._root, self._outcome, payload)
        if kind in CYCLES:
            yield "audit", _CYCLE, self._workflows.check(kind, parent, payload)
        if kind in SKIPS:
            wanted = "a model that was left out for a time, under the open call of its tier"
            yield "audit", wanted, check_skip(payload, self._open.get(parent or b"", (0, ""))[1])
        if kind in AUDITED:
            yield "audit", "a record of all that happened", self._completeness.check(line, kind, parent, payload)

    def _run_person_rules(
        self, kind: str, span: bytes, parent: bytes | None, payload: Any
    ) -> Iterator[tuple[str, str, Iterator[str]]]:
        if kind in _APPROVAL_EVENTS:
            yield "approval", _SIGNED, self._approvals.check(kind, span, parent, payload)
        if kind in PEOPLE:
            yield "approval", _PERSON, self._people.check(kind, span, parent, payload, self._intent)


def _describe_suspension(payload: Any, calls: int) -> Iterator[str]:
    """Yield the note on a session whose last event is ``session.suspended``; *calls* are open and can go on."""
    approval = None if payload is EXCISED else payload["approval"]
    waits = f", waits for approval {approval}" if isinstance(approval, str) else ""
    yield f"suspended{waits}; open calls: {calls}. Events cut off at the end would not show"


def _list_first(numbers: Iterable[int]) -> str:
    """Return the first of many numbers as text."""
    first = list(islice(numbers, 6))
    return ", ".join(map(str, first[:5])) + (", …" if len(first) > 5 else "")


def _name(span: bytes | None) -> str:
    return span.decode() if span else "nothing"
