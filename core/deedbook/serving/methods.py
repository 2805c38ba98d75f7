"""What may be asked over the wire: sessions, prompts, actions, and what the runtime is."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from deedbook.contracts import Object, Principal
from deedbook.errors import DeedbookError, DomainError, Err, Result, fault
from deedbook.kernel import VERSION, Kernel

from .desk import Desk, Seat
from .streams import LineTooLongError, Stream
from .wire import REQUEST, RESPONSE, RefusedError, Request, Wire, answered, failure, refused

Method = Callable[["Peer", Mapping[str, Any]], Object]


class Peer:
    """One connection of one principal, as methods see it."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal


class Runtime:
    """The service of the wire: one request after the other of each connection, of many connections at once."""

    def __init__(self, kernel: Kernel, desk: Desk, *, present: Callable[[], int]) -> None:
        self._kernel = kernel
        self._desk = desk
        self._present = present
        self._wire = Wire(kernel.schemas)
        self._methods: Mapping[str, Method] = {
            "session.open": self._open,
            "session.list": self._list,
            "session.end": self._end,
            "prompt.submit": self._submit,
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
            return refused(None, fault("MESSAGE_UNREADABLE", "a line has at most 16 MiB; this one was skipped"))
        except RefusedError as problem:
            return refused(problem.id, problem.error, problem.violations)

    def _answer(self, request: Request, peer: Peer) -> bytes:
        try:
            return answered(request.id, self._methods[request.method](peer, request.params))
        except Exception as problem:  # noqa: BLE001 - whatever it is, the connection goes on and its client is told
            return refused(request.id, failure(problem))

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _open(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        opened = self._desk.open(peer.principal, params.get("purpose", "open"), params.get("client"), peer)
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
        with self._desk.using(seat, peer):
            self._desk.end(seat, ok=True, reason="its client ended it")
        return {"session": seat.id, "ended": True}

    def _submit(self, peer: Peer, params: Mapping[str, Any]) -> Object:
        seat = self._seat(peer, params)
        with self._desk.using(seat, peer):
            taken = _given(seat.session.submit(params["prompt"]))
        return {"prompt": taken.prompt, "signals": dict(taken.signals)}

    def _seat(self, peer: Peer, params: Mapping[str, Any]) -> Seat:
        found: Seat = _given(self._desk.find(params["session"], peer.principal))
        return found

    # --- what it is ---------------------------------------------------------------------------------------------------

    def _describe(self, _: Peer, __: Mapping[str, Any]) -> Object:
        schemas, charter = self._kernel.schemas, self._kernel.opened.charter
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
        return {"ok": True, "pid": os.getpid(), "sessions": self._desk.count(), "connections": self._present()}


def _given(result: Result[Any]) -> Any:
    """Return what came of it; raises `DeedbookError` where nothing did."""
    if isinstance(result, Err):
        raise DeedbookError(result.error)
    return result.value
