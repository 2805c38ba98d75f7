"""The methods of the runtime's protocol: sessions, prompts, actions, and information about the runtime."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from deedbook.contract import Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, Err, LedgerError, Result, fault
from deedbook.format.events import new_id
from deedbook.format.release import VERSION
from deedbook.kernel import Kernel
from deedbook_serve import prompt_context
from deedbook_serve.archive import SessionArchive

from .action_records import ActionRecord, read_actions
from .actions import (
    BatchRunner,
    OutcomeSources,
    describe_ended,
    describe_not_started,
    new_request_name,
    rebuild_outcomes,
    record_refusal,
)
from .batches import Step, order_actions
from .prompt_runs import PromptRuns
from .session_table import OpenSession, SessionTable
from .streams import LineTooLongError, Stream
from .wire import REQUEST, RESPONSE, RefusedError, Request, Wire, encode_error, encode_result, to_error

ENDED_BY_CLIENT: Final = "its client ended it"
RECORDED_REFUSALS: Final = frozenset({"BATCH_INVALID", "REQUEST_REUSED", "SESSION_NOT_YOURS"})
"""Refusals that are recorded in the session they concern; the door records its own."""

Method = Callable[["Peer", Mapping[str, Any]], Object]


class Peer:
    """One connection of one principal; *run* is the id of the run in which its sessions begin."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.run = new_id()


class RuntimeService:
    """The service at the runtime's socket: it answers each connection's requests in order, many connections at once."""

    def __init__(
        self,
        kernel: Kernel,
        sessions: SessionTable,
        runs: PromptRuns,
        *,
        connections: Callable[[], int],
        agents: Callable[[], int],
    ) -> None:
        self._kernel = kernel
        self._sessions, self._runs = sessions, runs
        self._count_connections, self._count_agents = connections, agents
        self._wire = Wire(kernel.schemas)
        self._archive = SessionArchive(kernel.state)
        self._methods: Mapping[str, Method] = {
            "session.open": self._open,
            "session.list": self._list,
            "session.end": self._end,
            "prompt.submit": self._submit,
            "actions": self._actions,
            "runtime.describe": self._describe,
            "runtime.health": self._health,
        }

    # --- a connection ------------------------------------------------------------------------------------------------

    def serve(self, stream: Stream, principal: Principal) -> None:
        """Answer requests until the other side disconnects."""
        peer = Peer(principal)
        try:
            while answer := self._answer_next(stream, peer):
                stream.send(answer)
        finally:
            self._sessions.release(peer)

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Send the reason of a refusal, as an answer without a request."""
        stream.send(encode_error(None, error))

    def _answer_next(self, stream: Stream, peer: Peer) -> bytes:
        """Return the answer to the next request; ``b""`` after the last."""
        try:
            line = stream.read_line()
            return self._answer(self._wire.read(line), peer) if line else b""
        except LineTooLongError:
            return encode_error(None, fault("INTAKE_REFUSED", "a line has at most 16 MiB; this one was skipped"))
        except RefusedError as problem:
            self._record(peer, problem.params, problem.error)
            return encode_error(problem.id, problem.error, problem.violations)

    def _answer(self, request: Request, peer: Peer) -> bytes:
        try:
            return encode_result(request.id, self._methods[request.method](peer, request.params))
        except Exception as problem:  # noqa: BLE001 - any failure is an answer, and the connection goes on
            error = to_error(problem)
            if error.code in RECORDED_REFUSALS:
                self._record(peer, request.params, error)
            return encode_error(request.id, error)

    def _record(self, peer: Peer, params: object, error: DomainError) -> None:
        """Record a refusal, and its sender, in the session that the message concerns."""
        session_id = params.get("session") if isinstance(params, dict) else None
        open_session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if open_session is not None and open_session.count_refusal():
            with suppress(LedgerError):  # the session has ended meanwhile
                record_refusal(open_session.session, error, peer.principal.id)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _open(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        opened = self._sessions.open(
            peer.principal, params.get("purpose", "open"), params.get("client"), peer, peer.run
        )
        session = _unwrap(opened).session
        charter = session.bindings.charter
        return {
            "session": session.id,
            "principal": session.principal.id,
            "charter": charter.digest,
            "enforcement": session.bindings.enforcement,
        }

    def _list(self, peer: Peer, _: Mapping[str, Any]) -> Object:
        sessions = self._sessions.list_sessions(peer.principal)
        return {
            "sessions": [
                {
                    "session": open_session.id,
                    "principal": open_session.session.principal.id,
                    "busy": open_session.lock.locked(),
                }
                for open_session in sessions
            ]
        }

    def _end(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        open_session = self._find_session(peer, params)
        if params.get("now"):
            self._runs.suspend(open_session.id, reason=f"{ENDED_BY_CLIENT} at once")
            self._sessions.end(open_session, ok=False, reason=f"{ENDED_BY_CLIENT} at once")
        else:
            with self._sessions.use(open_session, peer):
                self._sessions.end(open_session, ok=True, reason=ENDED_BY_CLIENT)
        return {"session": open_session.id, "ended": True}

    def _submit(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        open_session = self._find_session(peer, params)
        with self._sessions.use(open_session, peer):
            record_context(open_session, params.get("context"))
            submitted = _unwrap(open_session.session.submit(params["prompt"]))
        return {"prompt": submitted.prompt, "signals": dict(submitted.signals)}

    def _actions(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        steps: list[Step] = _unwrap(order_actions(params["actions"]))
        found = self._sessions.find(params["session"], peer.principal)
        key, digest = params.get("idempotency_key"), canonical.digest(canonical.encode(params["actions"]))
        if isinstance(found, Err):
            outcomes, repeated = self._read_ended(found, peer, params, steps, digest), True
            return {"results": [outcomes[action["id"]] for action in params["actions"]], "repeated": repeated}
        with self._sessions.use(found.value, peer):
            outcomes, repeated = self._run_actions(found.value, steps, key, digest)
        return {"results": [outcomes[action["id"]] for action in params["actions"]], "repeated": repeated}

    def _run_actions(
        self, open_session: OpenSession, steps: list[Step], key: str | None, digest: str
    ) -> tuple[dict[str, Any], bool]:
        """Perform *steps*, or return their recorded outcomes if the request is repeated; and whether it is."""
        if key is not None and key in open_session.requests:
            recorded = read_actions(self._archive.read_events(open_session.id), key)
            if recorded:
                return self._rebuild(recorded, steps, digest, open_session.id, describe_not_started()), True
        if key is not None:
            open_session.requests.add(key)
        runner = BatchRunner(
            open_session.session,
            open_session.tasks,
            self._runs,
            lambda: self._sessions.end(open_session, ok=True, reason=ENDED_BY_CLIENT),
        )
        return runner.run(steps, key or new_request_name(), digest), False

    def _read_ended(
        self, absent: Err, peer: Peer, params: Mapping[str, Any], steps: list[Step], digest: str
    ) -> dict[str, Any]:
        """Return the recorded outcomes of a request in a session that is not open; raises if there are none."""
        session, key = params["session"], params.get("idempotency_key")
        if (
            key is None
            or absent.error.code != "SESSION_NOT_FOUND"
            or self._archive.find_owner(session) != peer.principal.id
        ):
            raise DeedbookError(absent.error)
        recorded = read_actions(self._archive.read_events(session), key)
        if not recorded:
            raise DeedbookError(fault("SESSION_ENDED", f"session {session} is over, and knows nothing of this request"))
        return self._rebuild(recorded, steps, digest, session, describe_ended(session))

    def _rebuild(
        self,
        recorded: Mapping[str, ActionRecord],
        steps: list[Step],
        digest: str,
        session: str,
        absent: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the outcomes of a repeated request of *session*; *absent* is that of actions without a record."""
        sources = OutcomeSources(self._sessions.find_task, partial(self._runs.read, session))
        return rebuild_outcomes(recorded, steps, digest, absent, sources)

    def _find_session(self, peer: Peer, params: Mapping[str, Any]) -> OpenSession:
        found: OpenSession = _unwrap(self._sessions.find(params["session"], peer.principal))
        return found

    # --- information -------------------------------------------------------------------------------------------------

    def _describe(self, _: Peer, __: Mapping[str, Any]) -> Object:
        schemas, charter = self._kernel.schemas, self._kernel.active_charter.charter
        request = schemas.document(REQUEST)
        return {
            "version": VERSION,
            "workspace": {"root": str(self._kernel.site.root), "charter": charter.digest},
            "request": request,
            "response": schemas.document(RESPONSE),
            "methods": request["properties"]["method"]["enum"],
            "actions": request["$defs"]["action"]["properties"]["action"]["enum"],
        }

    def _health(self, _: Peer, __: Mapping[str, Any]) -> Object:
        counts = {
            "sessions": self._sessions.count(),
            "agents": self._count_agents(),
            "connections": self._count_connections(),
        }
        return {"ok": True, "pid": os.getpid(), **counts}


def record_context(open_session: OpenSession, context: Object | None) -> None:
    """Record the *context* of a prompt, or that a prompt after one with a context has none."""
    if context is None and not open_session.has_context:
        return
    prompt_context.record_context(open_session.session, context or {})
    open_session.has_context = context is not None


def _unwrap(result: Result[Any]) -> Any:
    """Return the value of *result*; raises `DeedbookError` for an `Err`."""
    if isinstance(result, Err):
        raise DeedbookError(result.error)
    return result.value
