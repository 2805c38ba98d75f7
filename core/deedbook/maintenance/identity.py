"""The identity of the writer: the system, its processes, their runs and sessions, each recorded before its children.

A workspace's ledger is the system. A kernel that begins sessions is one process of it, a command or a connection is one
run, and a run has sessions, each with one trace of spans. The workspace ledger holds this hierarchy: ``system.boot``,
below it ``system.run`` for every session, below that the session's heads, and ``system.shutdown``.
"""

import os
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from deedbook.format.canonical import encode
from deedbook.format.errors import BindingError, fault
from deedbook.format.events import TRACE_ID, Entry, label, new_id
from deedbook.format.files import Folder
from deedbook.ledger.chain import translate_errors
from deedbook.ledger.ledger import Ledger, WorkspaceLedger

from .liveness import FOLDER, Lifeline

CLOSED: Final = "closed"
"""The reason of a regular shutdown."""


class Identity:
    """One process: a kernel from its first session to its end. Writes nothing before that session."""

    def __init__(self, ledger: WorkspaceLedger, state: Folder, *, kernel: str, charter: str, warm: bool) -> None:
        self.process_id, self.run_id = new_id(), new_id()
        self._ledger, self._state = ledger, state
        self._begun = {"kernel": kernel, "charter": charter}
        self._kind = "warm" if warm else "cold"
        self._pid = os.getpid()
        self._booting = Lock()
        self._boot = ""
        self._runs: dict[str, str] = {}
        self._lifeline: Lifeline | None = None

    @property
    def system_id(self) -> str:
        """The id of the workspace ledger, to which all processes of the workspace belong."""
        return self._ledger.session_id

    @property
    def is_booted(self) -> bool:
        """Whether ``system.boot`` of this process is written."""
        return bool(self._boot)

    def run(self, run: str | None) -> str:
        """Return the run of a session: *run*, or the process's own.

        Raises `BindingError` for an invalid id: 32 lower-case hex digits, as `events.new_id` makes them.
        """
        if run is None:
            return self.run_id
        if not isinstance(run, str) or not TRACE_ID.fullmatch(run):
            raise BindingError(fault("USAGE", f"run id {str(run)[:80]!r} is not 32 lower-case hex digits"))
        return run

    def boot(self, recovered: Mapping[str, Any] | None = None) -> None:
        """Write ``system.boot`` now, if it is not written yet; *recovered* is what this process found dead and ended.

        Raises `LedgerError`.
        """
        with self._booting:
            if not self._boot:
                self._append_boot(recovered, ())

    def head(self, session: Ledger, state: str, run: str) -> None:
        """Write the head of one of this process's sessions; the first time with its *run*.

        Boot, run and head are one append with one sync. Raises `LedgerError`.
        """
        head = {"session_id": session.session_id, "events": session.size, "head": session.head, "state": state}
        if above := self._runs.get(session.session_id):
            self._append(self._entry("ledger.session", head, above))
        else:
            self._introduce(session, run, head)
        if state != "open":
            self._runs.pop(session.session_id, None)

    def adopt(self, session: Ledger) -> None:
        """Take over a session that another process began: its heads stand under the root of the workspace ledger."""
        self._runs[session.session_id] = self._ledger.root

    def shut_down(self, reason: str = CLOSED) -> None:
        """Write ``system.shutdown`` if this process has booted, and release its lifeline; raises `LedgerError`."""
        if os.getpid() != self._pid:  # a forked process is not in the hierarchy and must not write
            return
        lifeline, self._lifeline = self._lifeline, None
        try:
            if lifeline and self._boot:
                payload = {"process_id": self.process_id, "reason": reason}
                self._append(self._entry("system.shutdown", payload, self._boot))
        finally:
            if lifeline:
                lifeline.release()

    def _introduce(self, session: Ledger, run: str, head: Mapping[str, Any]) -> None:
        payload = {
            "process_id": self.process_id,
            "run_id": run,
            "session_id": session.session_id,
            "trace_id": session.trace_id,
        }
        if not self._boot:
            with self._booting:
                if not self._boot:
                    return self._append_boot(None, (payload, head))
        self._append(*self._beneath(self._boot, payload, head))
        return None

    def _beneath(self, boot: str, run: Mapping[str, Any], head: Mapping[str, Any]) -> tuple[Entry, Entry]:
        """Return a session's run, under the boot, and its head, under the run."""
        entry = self._entry("system.run", run, boot)
        self._runs[run["session_id"]] = entry.span
        return entry, self._entry("ledger.session", head, entry.span)

    def _append_boot(self, recovered: Mapping[str, Any] | None, first: tuple[Mapping[str, Any], ...]) -> None:
        """Append the boot and, with it, the run and the head of the *first* session; the caller holds the lock."""
        if self._lifeline is None and os.getpid() == self._pid:
            with translate_errors(f"{self._state.path}/{FOLDER}"):
                self._lifeline = Lifeline.hold(self._state, self.process_id)
        kind = "recover" if recovered else self._kind
        payload = {"process_id": self.process_id, "kind": kind, "pid": self._pid, **self._begun}
        boot = self._entry("system.boot", {**payload, **(recovered or {})})
        self._append(boot, *(self._beneath(boot.span, *first) if first else ()))
        self._boot = boot.span

    def _entry(self, event_type: str, payload: Mapping[str, Any], parent: str = "") -> Entry:
        who = label(event_type, "runtime", None)
        return Entry(who, self._ledger.span(), parent or self._ledger.root, encode(dict(payload)))

    def _append(self, *entries: Entry) -> None:
        self._ledger.append(entries, durable=True)
