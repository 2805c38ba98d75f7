"""What may be asked over the wire: sessions, prompts, actions, and what the runtime is."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from deedbook.contract import Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, Err, LedgerError, Result, fault
from deedbook.format.events import new_id
from deedbook.format.release import VERSION
from deedbook.kernel import Kernel

from .actions import BatchRunner, again, ended, new_request, refuse, unbegun
from .acts import acts
from .archive import Archive
from .batches import Step, ordered
from .desk import Desk, OpenSession
from .streams import LineTooLongError, Stream
from .wire import REQUEST, RESPONSE, RefusedError, Request, Wire, answered, failure, refused

ENDED: Final = "its client ended it"
RECORDED: Final = frozenset({"BATCH_INVALID", "REQUEST_REUSED", "SESSION_NOT_YOURS"})
"""Refusals that stand in the ledger of the session that they are about; those of the door are there anyway."""

Method = Callable[["Peer", Mapping[str, Any]], Object]


class Peer:
    """One connection of one principal, as methods see it: one *run* of the process, in which sessions are begun."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.run = new_id()


class Runtime:
    """The service of the wire: one request after the other of each connection, of many connections at once."""

    def __init__(self, kernel: Kernel, desk: Desk, *, present: Callable[[], int], agents: Callable[[], int]) -> None:
        self._kernel = kernel
        self._desk = desk
        self._present, self._agents = present, agents
        self._wire = Wire(kernel.schemas)
        self._archive = Archive(kernel.state)
        self._methods: Mapping[str, Method] = {
            "session.open": self._open,
            "session.list": self._list,
            "session.end": self._end,
            "prompt.submit": self._submit,
            "actions": self._actions,
            "runtime.describe": self._describe,
            "runtime.health": self._health,
        }

    # --- a connection -------------------------------------------------------------------------------------------------

    def attend(self, stream: Stream, principal: Principal) -> None:
        """Answer requests until the other side ends."""
        peer = Peer(principal)
        try:
            while answer := self._next(stream, peer):
                stream.send(answer)
        finally:
            self._desk.gone(peer)

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Say why nothing is answered, in the form of an answer to no request."""
        stream.send(refused(None, error))

    def _next(self, stream: Stream, peer: Peer) -> bytes:
        """Return the answer to the next request; ``b""`` where there is none any more."""
        try:
            line = stream.line()
            return self._answer(self._wire.read(line), peer) if line else b""
        except LineTooLongError:
            return refused(None, fault("INTAKE_REFUSED", "a line has at most 16 MiB; this one was skipped"))
        except RefusedError as problem:
            self._record(peer, problem.params, problem.error)
            return refused(problem.id, problem.error, problem.violations)

    def _answer(self, request: Request, peer: Peer) -> bytes:
        try:
            return answered(request.id, self._methods[request.method](peer, request.params))
        except Exception as problem:  # noqa: BLE001 - whatever it is, the connection goes on and its client is told
            error = failure(problem)
            if error.code in RECORDED:
                self._record(peer, request.params, error)
            return refused(request.id, error)

    def _record(self, peer: Peer, params: object, error: DomainError) -> None:
        """Record in the session that a message is about that nothing came of it, and whose message it was."""
        named = params.get("session") if isinstance(params, dict) else None
        seat = self._desk.named(named) if isinstance(named, str) else None
        if seat is not None and seat.may_refuse():
            with suppress(LedgerError):  # it has ended meanwhile
                refuse(seat.session, error, peer.principal.id)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _open(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        opened = self._desk.open(peer.principal, params.get("purpose", "open"), params.get("client"), peer, peer.run)
        session = _given(opened).session
        charter = session.bindings.charter
        return {
            "session": session.id,
            "principal": session.principal.id,
            "charter": charter.digest,
            "enforcement": session.bindings.enforcement,
        }

    def _list(self, peer: Peer, _: Mapping[str, Any]) -> Object:
        seats = self._desk.of(peer.principal)
        return {
            "sessions": [
                {"session": seat.id, "principal": seat.session.principal.id, "busy": seat.turn.locked()}
                for seat in seats
            ]
        }

    def _end(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        seat = self._seat(peer, params)
        if params.get("now"):
            self._desk.end(seat, ok=False, reason=f"{ENDED} at once")
        else:
            with self._desk.using(seat, peer):
                self._desk.end(seat, ok=True, reason=ENDED)
        return {"session": seat.id, "ended": True}

    def _submit(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        seat = self._seat(peer, params)
        with self._desk.using(seat, peer):
            taken = _given(seat.session.submit(params["prompt"]))
        return {"prompt": taken.prompt, "signals": dict(taken.signals)}

    def _actions(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        steps: list[Step] = _given(ordered(params["actions"]))
        found = self._desk.find(params["session"], peer.principal)
        key, digest = params.get("idempotency_key"), canonical.digest(canonical.encode(params["actions"]))
        if isinstance(found, Err):
            done, repeated = self._over(found, peer, params, steps, digest), True
            return {"results": [done[said["id"]] for said in params["actions"]], "repeated": repeated}
        with self._desk.using(found.value, peer):
            done, repeated = self._done(found.value, steps, key, digest)
        return {"results": [done[said["id"]] for said in params["actions"]], "repeated": repeated}

    def _done(self, seat: OpenSession, steps: list[Step], key: str | None, digest: str) -> tuple[dict[str, Any], bool]:
        """Do *steps*, or say what came of them when the same request came before; say whether it did."""
        if key is not None and key in seat.requests:
            known = acts(self._archive.events(seat.id), key)
            if known:
                return again(known, steps, digest, unbegun(), self._desk.task), True
        if key is not None:
            seat.requests.add(key)
        doing = BatchRunner(seat.session, seat.tasks, lambda: self._desk.end(seat, ok=True, reason=ENDED))
        return doing.all(steps, key or new_request(), digest), False

    def _over(
        self, absent: Err, peer: Peer, params: Mapping[str, Any], steps: list[Step], digest: str
    ) -> dict[str, Any]:
        """Return what the ledger of a session that is not open says of a request; raises where it says nothing."""
        session, key = params["session"], params.get("idempotency_key")
        if key is None or absent.error.code != "SESSION_NOT_FOUND" or self._archive.owner(session) != peer.principal.id:
            raise DeedbookError(absent.error)
        known = acts(self._archive.events(session), key)
        if not known:
            raise DeedbookError(fault("SESSION_ENDED", f"session {session} is over, and knows nothing of this request"))
        return again(known, steps, digest, ended(session), self._desk.task)

    def _seat(self, peer: Peer, params: Mapping[str, Any]) -> OpenSession:
        found: OpenSession = _given(self._desk.find(params["session"], peer.principal))
        return found

    # --- what it is ---------------------------------------------------------------------------------------------------

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
        counts = {"sessions": self._desk.count(), "agents": self._agents(), "connections": self._present()}
        return {"ok": True, "pid": os.getpid(), **counts}


def _given(result: Result[Any]) -> Any:
    """Return what came of it; raises `DeedbookError` where nothing did."""
    if isinstance(result, Err):
        raise DeedbookError(result.error)
    return result.value
