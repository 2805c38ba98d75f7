"""The queue of approval requests: a fold of the workspace ledger's ``approval.*`` events.

Of several answers to one request, or several uses, only the first counts; the writers ensure that there is only one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from deedbook.contract import Event
from deedbook.format.errors import ApprovalError, LedgerError, fault
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.format.sealed import open_values
from deedbook.format.tail import lines_from_end
from deedbook.policy.requests import shown_digest

State: TypeAlias = Literal["waiting", "approved", "denied", "expired", "used", "withdrawn"]
LAST: Final = "last"
"""The name of the newest request; another request may become the newest at any time."""
OPEN: Final = ("waiting", "approved")
"""The states in which a request may still be answered or performed."""
STATES: Final = ("waiting", "approved", "denied", "expired", "used", "withdrawn")


@attrs.frozen
class QueueEvent:
    """An event about a request: its payload, and its position in the workspace ledger."""

    payload: Mapping[str, Any]
    span: str
    seq: int
    ts: str


@attrs.define
class ApprovalRequest:
    """One request and its later events. Payloads are as recorded: parts may be sealed."""

    id: str
    requested: QueueEvent
    answer: QueueEvent | None = None
    used: QueueEvent | None = None
    withdrawn: QueueEvent | None = None

    def state(self, now: str) -> State:
        """Return its state at the time *now*."""
        if self.used:
            return "used"
        if self.withdrawn:
            return "withdrawn"
        if self.answer and self.answer.payload["answer"] != "approve":
            return "denied"
        if now >= self.requested.payload["expires"]:
            return "expired"
        return "approved" if self.answer else "waiting"


Queue: TypeAlias = dict[str, ApprovalRequest]


class QueueFold:
    """The fold of the workspace ledger whose state is the queue: requests by id, in the order of the ledger."""

    def start(self) -> Queue:
        """Return an empty queue."""
        return {}

    def step(self, state: Queue, event: Event) -> Queue:
        """Add *event*; irrelevant events change nothing."""
        identity = event.payload.get("approval")
        if not event.type.startswith("approval.") or not isinstance(identity, str):
            return state
        entry = QueueEvent(event.payload, event.span, event.seq, event.ts)
        found = state.get(identity)
        if event.type == "approval.requested":
            state.setdefault(identity, ApprovalRequest(identity, entry))
        elif found and event.type == "approval.answered":
            found.answer = found.answer or entry
        elif found and event.type == "approval.used":
            found.used = found.used or entry
        elif found and event.type == "approval.withdrawn":
            found.withdrawn = found.withdrawn or entry
        return state


class ApprovalQueue:
    """The queue of a state folder, read from the workspace ledger and updated by `refresh`.

    It is read from the byte *start* on, where a line begins.
    """

    def __init__(self, folder: Folder, *, start: int = 0) -> None:
        self._folder = folder
        self._fold = QueueFold()
        self._queue = self._fold.start()
        self._hashes: dict[int, str] = {}
        self._follow = Follower(folder.open(LEDGER_FILE), start=start, place=f"{folder.path}/{LEDGER_FILE}")

    @classmethod
    def of(cls, state: Path) -> Self:
        """Read the queue of the *state* folder; raises `FileNotFoundError` if there is no workspace ledger."""
        made = cls(Folder.at(state / "workspace"))
        made._read()
        return made

    @classmethod
    def since(cls, folder: Folder, moment: str) -> Self:
        """Read only what was recorded in the queue in *folder* from *moment* (RFC 3339) on."""
        place = f"{folder.path}/{LEDGER_FILE}"
        with folder.open(LEDGER_FILE) as file:
            start = end = file.seek(0, SEEK_END)
            for offset, line in lines_from_end(file.fileno(), end, place=place):
                if line.endswith(b"\n"):
                    if split_line(line, place=place).ts < moment:
                        break
                    start = offset
                elif start == end:
                    start = offset  # a line that is being written; it is read when it is complete
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
        """Read what was recorded since; raises `LedgerError` for an invalid line."""
        for line in self._follow():
            if line.event_type.startswith("approval."):
                self._queue = self._fold.step(self._queue, line.event)
                self._hashes[line.seq] = line.envelope_hash

    def __iter__(self) -> Iterator[ApprovalRequest]:
        return iter(self._queue.values())

    def get(self, identity: str) -> ApprovalRequest | None:
        """Return the request with that id, if there is one."""
        return self._queue.get(identity)

    def find(self, name: str) -> ApprovalRequest:
        """Return the request for *name*: an id, its beginning, or ``last``; raises `ApprovalError`."""
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

    def hash_of(self, entry: QueueEvent) -> str:
        """Return the envelope hash of an event of the queue."""
        return self._hashes[entry.seq]

    def open_payload(self, entry: QueueEvent) -> dict[str, Any]:
        """Return the payload with its sealed parts opened; raises `ApprovalError` if something was erased."""
        try:
            payload: dict[str, Any] = open_values(self._folder, entry.payload)
        except FileNotFoundError:
            why = "a sealed value of it was erased; make the call again"
            raise ApprovalError(fault("APPROVAL_INCOMPLETE", f"request {entry.payload['approval']}: {why}")) from None
        return payload

    def request(self, pending: ApprovalRequest) -> dict[str, Any]:
        """Return the request, opened; raises `LedgerError` if it does not match its hash *shown*."""
        request = self.open_payload(pending.requested)
        if shown_digest(request) != request["shown"]:
            why = f"request {pending.id} is not what its hash commits to; verify the ledger, then {_AGAIN}"
            raise LedgerError(fault("LEDGER_UNSOUND", why))
        return request

    def close(self) -> None:
        """Close the files."""
        self._follow.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def open_queue(state: Path) -> Iterator[ApprovalQueue]:
    """Open the queue of a *state* folder; raises `ApprovalError` if no request was ever recorded."""
    try:
        waiting = ApprovalQueue.of(state)
    except FileNotFoundError:
        raise ApprovalError(fault("APPROVAL_NOT_FOUND", "there was never a request in this workspace")) from None
    with waiting:
        yield waiting


def refuse_state(pending: ApprovalRequest, now: str, *, wanted: State) -> None:
    """Raise `ApprovalError` unless the request is in the state *wanted* at the time *now*."""
    state = pending.state(now)
    if state != wanted:
        code, why = _NOT[state]
        reason = pending.withdrawn.payload["reason"] if state == "withdrawn" and pending.withdrawn else None
        text = f"was withdrawn: {reason}; {_AGAIN}" if isinstance(reason, str) else why.format(id=pending.id)
        raise ApprovalError(fault(code, f"request {pending.id} {text}"))


_AGAIN: Final = "make the call again"
_NOT: Final[Mapping[State, tuple[str, str]]] = {
    "waiting": (
        "APPROVAL_NOT_GRANTED",
        "is not answered yet; an approver runs: deedbook approvals approve {id} --as NAME",
    ),
    "approved": ("APPROVAL_ANSWERED", "is approved already, and not performed yet"),
    "denied": ("APPROVAL_ANSWERED", f"was denied; {_AGAIN}"),
    "expired": ("APPROVAL_EXPIRED", f"has expired; {_AGAIN}"),
    "used": ("APPROVAL_USED", f"was approved and has been used; {_AGAIN}"),
    "withdrawn": ("APPROVAL_WITHDRAWN", f"was withdrawn; {_AGAIN}"),
}
