"""Writes what happens to tasks: into the workspace's ledger, where one of all who try is first, then the session's.

Both get the same event; only results stand in the workspace's alone, since the session has them where the call ended.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from deedbook.call.queue import Waiting
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, TaskError, fault
from deedbook.format.events import Entry, label
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.policy.bound import Caller

from . import pages
from .aftermath import asked_by
from .book import Book, Kept

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class TaskLog:
    """Writes for *caller*, who works in the session of *ledger*, into that and into the workspace's *own*."""

    def __init__(self, own: WorkspaceLedger, ledger: Ledger, caller: Caller, book: Book) -> None:
        self.book = book
        self._own, self._ledger, self._caller = own, ledger, caller

    def create(self, identity: str, said: Object, cause: str, check: Callable[[], None], *, begun: bool = False) -> str:
        """Record that a task is made, durably, and return the span of that in the session.

        *check* is called when nobody else can write any more; *begun*: the first run begins with it. Raises `TaskError`
        where the record would lack a secret's value that the arguments hold.
        """
        span, above = self._ledger.span(), self._own.span()
        payload = self._whole(canonical.encode_payload({**self._named(identity, span), **said}))
        who = self._label("task.created", self._caller.actor)
        entries = [Entry(who, above, self._own.root, payload)]
        mine = [Entry(who, span, cause, payload)]
        if begun:
            run = self._ledger.span()
            start = canonical.encode({**self._named(identity, run), "run": 1, "charter": said["charter"]})
            kind = self._label("task.started", self._caller.actor)
            entries.append(Entry(kind, self._own.span(), above, start))
            mine.append(Entry(kind, run, cause, start))
            span = run
        self._own.append(entries, durable=True, check=check)
        self._ledger.append(mine)
        self._told(identity)
        return span

    def note(
        self, event_type: str, task: Kept, said: Object, cause: str, *, result: Object = _NOTHING, lax: bool = False
    ) -> str:
        """Record an event of *task*, if it is as it was looked at, and return its span in the session.

        Raises `TaskError` where something else was done with it meanwhile. It is durable, unless it is the end of a
        run. *lax*: that the session cannot record it any more keeps nobody from recording it.
        """
        span = self._ledger.span()
        payload = {**self._named(task.id, span), **said}
        if event_type == "task.updated":
            self._whole(canonical.encode_payload(payload))
        ended = event_type == "task.ended"
        who = self._label(event_type, "runtime" if ended else self._caller.actor)
        mark = task.last("task.started" if ended else "task.created")
        assert mark

        def check() -> None:
            self.book.refresh()
            if self.book.get(task.id) is not task:
                why = f"something else was done with task {task.id} at the same time; look at it again"
                raise TaskError(fault("TASK_RUNNING", why, retryable=True))

        entry = Entry(who, self._own.span(), mark.span, canonical.encode_payload({**payload, **result}))
        self._own.append([entry], durable=not ended, check=check)
        with suppress(DeedbookError) if lax else nullcontext():
            self._ledger.append([Entry(who, span, cause, canonical.encode_payload(payload))])
        self._told(task.id)
        return span

    def withdraw(self, task: Kept, reason: str) -> None:
        """Take back what *task* has asked of a person, where that stands; nobody is to perform it any more.

        A request that another call of the same filed is left alone.
        """
        if not task.approvals:
            return
        with Waiting.of(self.book.state) as waiting:
            found = [each for each in map(waiting.get, task.approvals) if each]
        now, runs = self._own.now(), self.book.runs(task)
        standing = [each for each in found if each.state(now) in ("waiting", "approved")]
        for each in standing:
            with suppress(DeedbookError, OSError):  # who cannot tell whose it is leaves it alone
                if asked_by(self.book.state, each.asked.payload, runs):
                    payload = canonical.encode({"approval": each.id, "reason": reason})
                    who = label("approval.withdrawn", "runtime", task.owner[0])
                    self._own.append([Entry(who, self._own.span(), self._own.root, payload)], durable=True)

    def deny(self, entries: list[Entry], said: Object, cause: str) -> None:
        """Record, after *entries*, that a task is not made or not changed; in the session alone, since nothing was."""
        payload = canonical.encode_payload(dict(said))
        self._ledger.append(
            [*entries, Entry(self._label("task.denied", "policy"), self._ledger.span(), cause, payload)]
        )

    def _whole(self, payload: bytes) -> bytes:
        """Return *payload*; raises `TaskError` where the record would lack the value of a secret that it holds."""
        if self._own.scrub(payload) != payload:
            why = "the arguments hold the value of a secret, which no record keeps; name the secret in YAML instead"
            raise TaskError(fault("TASK_INCOMPLETE", why))
        return payload

    def _named(self, identity: str, span: str) -> dict[str, Any]:
        return {"task": identity, "session": self._ledger.session_id, "span": span}

    def _label(self, event_type: str, actor: str) -> str:
        return label(event_type, actor, self._caller.principal.id)

    def _told(self, identity: str) -> None:
        """Take in what was recorded, and write the page anew; a page that cannot be written can be rendered later."""
        self.book.refresh()
        task = self.book.get(identity)
        if task is not None:
            with suppress(DeedbookError, OSError):
                pages.write(self.book, task)


def state_of(own: WorkspaceLedger) -> Path:
    """Return the state folder that the workspace ledger lies in."""
    return Path(own.place).parents[1]
