"""At the start of the process: runs whose people have answered meanwhile go on, one after the other."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

from deedbook.call.queue import ApprovalQueue, open_queue
from deedbook.continuation.resume import open_requests
from deedbook.format.errors import DeedbookError, Err, fault
from deedbook.format.events import timestamp
from deedbook.format.reader import read, summarise
from deedbook.kernel import Kernel
from deedbook.maintenance.liveness import SESSIONS
from deedbook.sessions.session import Session

_ANSWERED: Final = ("approved", "denied")


class RunResumer:
    """Goes on with suspended runs in the background; *report* receives one line for each, errors become notices."""

    def __init__(self, kernel: Kernel, sessions: Iterable[str], report: Callable[[str], None]) -> None:
        self._kernel, self._sessions, self._report = kernel, list(sessions), report
        self._stopping = Event()
        self._lock = Lock()
        self._session: Session | None = None
        self._thread = Thread(target=self._run, name="deedbook-resume", daemon=True)

    def start(self) -> None:
        """Begin; nothing is started if no run waits."""
        if self._sessions:
            self._thread.start()

    def stop(self, seconds: float) -> None:
        """Begin no more runs; give the present one *seconds* to end, then suspend it again."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        with self._lock:
            session = self._session
        if session is not None and self._thread.is_alive():
            with suppress(DeedbookError):
                session.suspend(fault("CANCELLED", "the process that ran it was stopped"))

    def _run(self) -> None:
        for name in find_answered(self._kernel, self._sessions):
            if self._stopping.is_set():
                return
            with self._kernel.notices.collect(f"session {name}"):
                self._resume(name)

    def _resume(self, name: str) -> None:
        with self._kernel.resume(name) as session:
            with self._lock:
                self._session = session
            result = session.go_on()
            state = result.error.code if isinstance(result, Err) else result.value.state
            session.end(ok=state == "COMPLETED", reason=state)
        with self._lock:
            self._session = None
        self._report(f"session {name} was resumed; its run is {'suspended again' if session.suspended else state}")


def find_answered(kernel: Kernel, sessions: Iterable[str]) -> Iterator[str]:
    """Yield those suspended *sessions* for which a person has answered, under the charter that is in force."""
    with suppress(DeedbookError, OSError), open_queue(kernel.site.state) as waiting:
        for name in sessions:
            with suppress(DeedbookError, OSError, ValueError):
                if _is_answered(kernel, waiting, name):
                    yield name


def _is_answered(kernel: Kernel, waiting: ApprovalQueue, session: str) -> bool:
    if summarise(kernel.state, session).state != "suspended":
        return False
    now, charter = timestamp(time.time()), kernel.bindings.charter.digest
    asked = open_requests(list(read(kernel.site.state / SESSIONS / session)))
    found = [waiting.get(str(event.payload.get("approval"))) for event in asked]
    return any(
        each is not None and each.state(now) in _ANSWERED and each.requested.payload.get("charter") == charter
        for each in found
    )
