"""The rules for processes: each run belongs to one living process, each session to one run.

The check is independent of the writer, and keeps one entry for each process, run and session. Sealed values are not
compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

KINDS: Final = frozenset({"system.boot", "system.run", "system.shutdown"})
"""The events of the hierarchy; only the workspace ledger has them."""
HEAD: Final = "ledger.session"


class Hierarchy:
    """The processes, runs and sessions of one ledger: call `check` for every event in order; it yields violations."""

    def __init__(self, *, workspace: bool) -> None:
        self._workspace = workspace
        self._booted: set[str] = set()
        self._down: set[str] = set()
        self._boots: dict[bytes, Any] = {}
        self._sessions: dict[bytes, Any] = {}
        self._of: dict[str, dict[str, str]] = {"run": {}, "session": {}, "trace": {}}

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Mapping[str, Any]) -> Iterator[str]:
        """Yield the violations of the next event of `KINDS`, or the next head."""
        above = parent or b""
        if kind == HEAD:
            yield from self._head(above, payload)
        elif not self._workspace:
            yield f"{kind} in the ledger of a session"
        elif kind == "system.boot":
            yield from self._boot(span, payload)
        elif above not in self._boots:
            yield f"{kind} under no system.boot"
        elif kind == "system.run":
            yield from self._run(span, self._boots[above], payload)
        else:
            yield from self._shutdown(self._boots[above], payload)

    def _boot(self, span: bytes, payload: Mapping[str, Any]) -> Iterator[str]:
        process = self._boots[span] = payload["process_id"]
        if isinstance(process, str):
            if process in self._booted:
                yield f"a second boot of process {process}"
            self._booted.add(process)

    def _run(self, span: bytes, booted: Any, payload: Mapping[str, Any]) -> Iterator[str]:
        process, run, session, trace = (payload[name] for name in ("process_id", "run_id", "session_id", "trace_id"))
        self._sessions[span] = session
        yield from self._check_process(booted, process)
        if isinstance(process, str) and process in self._down:
            yield f"a run of process {process}, which has shut down"
        if (other := self._register("run", run, process)) is not None:
            yield f"run {run} of a second process, after {other}"
        if (other := self._register("session", session, span.decode())) is not None:
            yield f"session {session} in a second run"
        if (other := self._register("trace", trace, session)) is not None:
            yield f"trace {trace} of a second session, after {other}"

    def _shutdown(self, booted: Any, payload: Mapping[str, Any]) -> Iterator[str]:
        process = payload["process_id"]
        yield from self._check_process(booted, process)
        if isinstance(process, str):
            if process in self._down:
                yield f"a second shutdown of process {process}"
            self._down.add(process)

    def _head(self, above: bytes, payload: Mapping[str, Any]) -> Iterator[str]:
        session = self._sessions.get(above)
        if isinstance(session, str) and isinstance(payload["session_id"], str) and payload["session_id"] != session:
            yield f"the head of session {payload['session_id']} under the run of session {session}"

    def _check_process(self, booted: Any, process: Any) -> Iterator[str]:
        if isinstance(booted, str) and isinstance(process, str) and booted != process:
            yield f"process {process} under the boot of process {booted}"

    def _register(self, what: str, name: Any, owner: Any) -> str | None:
        """Register *name* for *owner*. Return the previous owner if there is another one."""
        if not isinstance(name, str) or not isinstance(owner, str):
            return None
        known = self._of[what].setdefault(name, owner)
        return known if known != owner else None
