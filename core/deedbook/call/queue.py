"""What waits for a person: the queue of the workspace ledger, a fold of its ``approval.*`` events.

Of several answers to one request the first counts, and of several uses, too; the writers see to it that there is one.
"""

from collections.abc import Iterator, Mapping
from os import SEEK_END
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from deedbook.contract import Event, Object
from deedbook.format.errors import ApprovalError, LedgerError, fault
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.format.sealed import opened
from deedbook.format.tail import lines_from_end
from deedbook.policy.requests import shown_digest

State: TypeAlias = Literal["waiting", "approved", "denied", "expired", "used", "withdrawn"]
LAST: Final = "last"
"""What people call the newest request; it may be another one a moment later."""
OPEN: Final = ("waiting", "approved")
"""The states in which a request may still be answered or performed."""
STATES: Final = ("waiting", "approved", "denied", "expired", "used", "withdrawn")


@attrs.frozen
class Said:
    """An event about a request: the payload, and where it stands in the workspace ledger."""

    payload: Mapping[str, Any]
    span: str
    seq: int
    ts: str


@attrs.define
class Pending:
    """One request and what became of it. Payloads are as recorded: parts may be sealed."""

    id: str
    asked: Said
    answer: Said | None = None
    used: Said | None = None
    withdrawn: Said | None = None

    def state(self, now: str) -> State:
        """Return how it stands at the time *now*."""
        if self.used:
            return "used"
        if self.withdrawn:
            return "withdrawn"
        if self.answer and self.answer.payload["answer"] != "approve":
            return "denied"
        if now >= self.asked.payload["expires"]:
            return "expired"
        return "approved" if self.answer else "waiting"


Queue: TypeAlias = dict[str, Pending]


class QueueFold:
    """The fold of the workspace ledger whose state is the queue: requests by id, in the order in which they came."""

    def start(self) -> Queue:
        """Return an empty queue."""
        return {}

    def step(self, state: Queue, event: Event) -> Queue:
        """Take *event* in; what it is not about stays as it was."""
        identity = event.payload.get("approval")
        if not event.type.startswith("approval.") or not isinstance(identity, str):
            return state
        said = Said(event.payload, event.span, event.seq, event.ts)
        found = state.get(identity)
        if event.type == "approval.requested":
            state.setdefault(identity, Pending(identity, said))
        elif found and event.type == "approval.answered":
            found.answer = found.answer or said
        elif found and event.type == "approval.used":
            found.used = found.used or said
        elif found and event.type == "approval.withdrawn":
            found.withdrawn = found.withdrawn or said
        return state


class Waiting:
    """The queue of a state folder, read from the workspace ledger and kept up to date by `refresh`.

    From the byte *start* on, where a line begins; what stands before is not seen.
    """

    def __init__(self, folder: Folder, *, start: int = 0) -> None:
        self._folder = folder
        self._fold = QueueFold()
        self._queue = self._fold.start()
        self._hashes: dict[int, str] = {}
        self._follow = Follower(folder.open(LEDGER_FILE), start=start, place=f"{folder.path}/{LEDGER_FILE}")

    @classmethod
    def of(cls, state: Path) -> Self:
        """Read the queue of the *state* folder; raises `FileNotFoundError` where there is no workspace ledger."""
        made = cls(Folder.at(state / "workspace"))
        made._read()
        return made

    @classmethod
    def since(cls, folder: Folder, moment: str) -> Self:
        """Read what was recorded in the queue in *folder* from *moment* (RFC 3339) on, and no more of it."""
        place = f"{folder.path}/{LEDGER_FILE}"
        with folder.open(LEDGER_FILE) as file:
            start = end = file.seek(0, SEEK_END)
            for offset, line in lines_from_end(file.fileno(), end, place=place):
                if line.endswith(b"\n"):
                    if split_line(line, place=place).ts < moment:
                        break
                    start = offset
                elif start == end:
                    start = offset  # a line that somebody is writing; it is read when it is whole
        made = cls(folder, start=start)
        made._read()
        return made

    def _read(self) -> None:
        """Read the queue for the first time; close it if that fails."""
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Take in what was recorded since; raises `LedgerError` where a line is not what was written."""
        for line in self._follow():
            if line.event_type.startswith("approval."):
                self._queue = self._fold.step(self._queue, line.event)
                self._hashes[line.seq] = line.envelope_hash

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._queue.values())

    def get(self, identity: str) -> Pending | None:
        """Return the request with that id, if there is one."""
        return self._queue.get(identity)

    def find(self, name: str) -> Pending:
        """Return the request that *name* is, or begins, or the ``last``; raises `ApprovalError`."""
        if name == LAST and self._queue:
            return list(self._queue.values())[-1]
        found = [each for identity, each in self._queue.items() if identity.startswith(name)] if name else []
        if name in self._queue or len(found) == 1:
            return self._queue.get(name) or found[0]
        why = (
            f"{len(found)} requests begin with {name!r}; give more of the id"
            if found
            else f"there is no request {name!r}"
        )
        raise ApprovalError(fault("APPROVAL_NOT_FOUND", f"{why}; `deedbook approvals list --all` lists them"))

    def hash_of(self, said: Said) -> str:
        """Return the envelope hash of an event of the queue."""
        return self._hashes[said.seq]

    def opened(self, said: Said) -> dict[str, Any]:
        """Return the payload with what is sealed in it; raises `ApprovalError` where something was erased."""
        try:
            payload: dict[str, Any] = opened(self._folder, said.payload)
        except FileNotFoundError:
            why = "a sealed value of it was erased; let the call be asked for again"
            raise ApprovalError(fault("APPROVAL_INCOMPLETE", f"request {said.payload['approval']}: {why}")) from None
        return payload

    def request(self, pending: Pending) -> dict[str, Any]:
        """Return what was asked, opened; raises `LedgerError` if it is not what *shown* commits to."""
        request = self.opened(pending.asked)
        if shown_digest(request) != request["shown"]:
            why = f"request {pending.id} is not what its hash commits to; verify the ledger, then {_AGAIN}"
            raise LedgerError(fault("LEDGER_UNSOUND", why))
        return request

    def close(self) -> None:
        """Let go of the files."""
        self._follow.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_state(pending: Pending, now: str, *, wanted: State) -> None:
    """Raise `ApprovalError` unless the request stands as *wanted* at the time *now*."""
    state = pending.state(now)
    if state != wanted:
        code, why = _NOT[state]
        raise ApprovalError(fault(code, f"request {pending.id} {why.format(id=pending.id)}"))


_AGAIN: Final = "let the call be asked for again"
_NOT: Final[Mapping[State, tuple[str, str]]] = {
    "waiting": (
        "APPROVAL_NOT_GRANTED",
        "is not answered yet; an approver runs: deedbook approvals approve {id} --as NAME",
    ),
    "approved": ("APPROVAL_ANSWERED", "is approved already, and not performed yet"),
    "denied": ("APPROVAL_ANSWERED", f"was denied; {_AGAIN}"),
    "expired": ("APPROVAL_EXPIRED", f"has expired; {_AGAIN}"),
    "used": ("APPROVAL_USED", f"was approved and used, which is once; {_AGAIN}"),
    "withdrawn": ("APPROVAL_WITHDRAWN", f"was withdrawn by who asked; {_AGAIN}"),
}

__all__ = [
    "LAST",
    "OPEN",
    "STATES",
    "Object",
    "Pending",
    "Queue",
    "QueueFold",
    "Said",
    "State",
    "Waiting",
    "refuse_state",
]
