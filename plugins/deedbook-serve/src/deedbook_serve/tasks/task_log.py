"""Records task events: first in the workspace ledger, where one of several writers wins, then in the session's.

Both get the same event; only results stand in the workspace ledger alone, since the session has them in the end of the
call.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from deedbook.call.queue import ApprovalQueue
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, TaskError, fault
from deedbook.format.events import Entry, label
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.policy.bound import Caller

from . import pages
from .book import TaskBook, TaskRecord
from .run_outcome import was_requested_by

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class TaskLog:
    """Writes events of *caller*, who works in the session of *ledger*, into both ledgers."""

    def __init__(self, workspace_ledger: WorkspaceLedger, ledger: Ledger, caller: Caller, book: TaskBook) -> None:
        self.book = book
        self._workspace_ledger, self._ledger, self._caller = workspace_ledger, ledger, caller

    def create(
        self, identity: str, members: Object, cause: str, check: Callable[[], None], *, started: bool = False
    ) -> str:
        """Record durably that a task is created, and return the span of that event in the session.

        *check* is called under the ledger's lock; *started*: the first run begins with it. Raises `TaskError` if the
        record would lack the value of a secret in the arguments.
        """
        span, above = self._ledger.span(), self._workspace_ledger.span()
        payload = self._require_complete(canonical.encode_payload({**self._build_reference(identity, span), **members}))
        who = self._label("task.created", self._caller.actor)
        entries = [Entry(who, above, self._workspace_ledger.root, payload)]
        session_entries = [Entry(who, span, cause, payload)]
        if started:
            run = self._ledger.span()
            start = canonical.encode({**self._build_reference(identity, run), "run": 1, "charter": members["charter"]})
            kind = self._label("task.started", self._caller.actor)
            entries.append(Entry(kind, self._workspace_ledger.span(), above, start))
            session_entries.append(Entry(kind, run, cause, start))
            span = run
        self._workspace_ledger.append(entries, durable=True, check=check)
        self._ledger.append(session_entries)
        self._refresh(identity)
        return span

    def note(
        self,
        event_type: str,
        task: TaskRecord,
        members: Object,
        cause: str,
        *,
        result: Object = _NOTHING,
        lax: bool = False,
    ) -> str:
        """Record an event of *task* if it is unchanged, and return the event's span in the session.

        Raises `TaskError` if the task was changed meanwhile. The event is durable unless it is the end of a run. *lax*:
        record it even if the session's ledger cannot.
        """
        span = self._ledger.span()
        payload = {**self._build_reference(task.id, span), **members}
        if event_type == "task.updated":
            self._require_complete(canonical.encode_payload(payload))
        ended = event_type == "task.ended"
        who = self._label(event_type, "runtime" if ended else self._caller.actor)
        mark = task.last("task.started" if ended else "task.created")
        assert mark

        def check() -> None:
            self.book.refresh()
            if self.book.get(task.id) is not task:
                why = f"something else was done with task {task.id} at the same time; look at it again"
                raise TaskError(fault("TASK_RUNNING", why, retryable=True))

        entry = Entry(who, self._workspace_ledger.span(), mark.span, canonical.encode_payload({**payload, **result}))
        self._workspace_ledger.append([entry], durable=not ended, check=check)
        with suppress(DeedbookError) if lax else nullcontext():
            self._ledger.append([Entry(who, span, cause, canonical.encode_payload(payload))])
        self._refresh(task.id)
        return span

    def withdraw(self, task: TaskRecord, reason: str) -> None:
        """Withdraw the open approval requests of *task*, so that they are never performed.

        A request that another equal call has made stays.
        """
        if not task.approvals:
            return
        with ApprovalQueue.of(self.book.state) as waiting:
            found = [each for each in map(waiting.get, task.approvals) if each]
        now, runs = self._workspace_ledger.now(), self.book.list_runs(task)
        open_requests = [each for each in found if each.state(now) in ("waiting", "approved")]
        for each in open_requests:
            with suppress(DeedbookError, OSError):  # a request of unknown origin stays
                if was_requested_by(self.book.state, each.requested.payload, runs):
                    payload = canonical.encode({"approval": each.id, "reason": reason})
                    who = label("approval.withdrawn", "runtime", task.owner[0])
                    self._workspace_ledger.append(
                        [Entry(who, self._workspace_ledger.span(), self._workspace_ledger.root, payload)], durable=True
                    )

    def deny(self, entries: list[Entry], members: Object, cause: str) -> None:
        """Record, after *entries*, that a task is not created or changed; in the session alone."""
        payload = canonical.encode_payload(dict(members))
        self._ledger.append(
            [*entries, Entry(self._label("task.denied", "policy"), self._ledger.span(), cause, payload)]
        )

    def _require_complete(self, payload: bytes) -> bytes:
        """Return *payload*; raises `TaskError` if the record would lack the value of a secret in it."""
        if self._workspace_ledger.scrub(payload) != payload:
            why = "the arguments hold the value of a secret, which no record keeps; name the secret in YAML instead"
            raise TaskError(fault("TASK_INCOMPLETE", why))
        return payload

    def _build_reference(self, identity: str, span: str) -> dict[str, Any]:
        return {"task": identity, "session": self._ledger.session_id, "span": span}

    def _label(self, event_type: str, actor: str) -> str:
        return label(event_type, actor, self._caller.principal.id)

    def _refresh(self, identity: str) -> None:
        """Apply the new event, and write the task's page; a page that cannot be written can be rendered later."""
        self.book.refresh()
        task = self.book.get(identity)
        if task is not None:
            with suppress(DeedbookError, OSError):
                pages.write(self.book, task)


def get_state_folder(workspace_ledger: WorkspaceLedger) -> Path:
    """Return the state folder of the workspace ledger."""
    return Path(workspace_ledger.place).parents[1]
