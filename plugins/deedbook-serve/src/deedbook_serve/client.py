"""A client of the runtime: a connection to the process that serves a workspace, and what may be asked over it.

Imports next to nothing, so that whoever only asks starts quickly. docs/runtime.md shows how it is used.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from deedbook.format.errors import DeedbookError, DomainError, fault
from deedbook.format.jsontext import load
from deedbook_serve.serving.addresses import connect

SOCKET: Final = "runtime.sock"
_BLOCK: Final = 256 * 1024
_READING: Final = frozenset({"runtime.describe", "runtime.health", "session.list"})
"""The methods that change nothing."""


class Runtime:
    """A connection to the runtime of a workspace; use it as a context manager, from one thread.

    *place* is the workspace, its state folder, or the socket itself; *seconds* is how long an answer may take. Whatever
    the runtime refuses is a `DeedbookError`, whose stable code is ``problem.error.code``; ``RUNTIME_UNREACHABLE`` where
    nobody answers.
    """

    def __init__(self, place: str | Path = ".", *, seconds: float | None = None) -> None:
        self._ids = count(1)
        self._held = bytearray()
        socket = _socket(Path(place))
        try:
            self._socket = connect(socket, seconds)
        except OSError as problem:
            raise DeedbookError(_unreachable(socket, problem)) from None

    # --- what may be asked --------------------------------------------------------------------------------------------

    def open(self, *, client: str | None = None, purpose: str = "open") -> str:
        """Begin a session, on the account of a declared *client* if one is named; return its id."""
        more = {} if client is None else {"client": client}
        session: str = self.ask("session.open", purpose=purpose, **more)["session"]
        return session

    def sessions(self) -> list[dict[str, Any]]:
        """Return the open sessions of this principal."""
        found: list[dict[str, Any]] = self.ask("session.list")["sessions"]
        return found

    def submit(self, session: str, prompt: str) -> dict[str, Any]:
        """Hand in a *prompt*; return it as hooks left it, and what they signalled."""
        return self.ask("prompt.submit", session=session, prompt=prompt)

    def actions(
        self, session: str, actions: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[dict[str, Any]]:
        """Have *actions* done; return what came of each, in their order.

        With an *idempotency_key* the request may be repeated when its answer was lost, **in the same session**, also
        after that has ended: nothing is done twice. In another session the same key is another request, whose effects
        happen again; so keep the session's id before sending. Across sessions only the ``idempotency_key`` of a
        ``CREATE_TASK`` holds, which is the principal's.
        """
        more = {} if idempotency_key is None else {"idempotency_key": idempotency_key}
        found: list[dict[str, Any]] = self.ask("actions", session=session, actions=list(actions), **more)["results"]
        return found

    def call(self, session: str, ability: str, args: Mapping[str, Any] | None = None) -> Any:
        """Use one ability and return its result; raises `DeedbookError` where there is none."""
        (done,) = self.actions(
            session, [{"id": "call", "action": "CALL", "ability": ability, "args": dict(args or {})}]
        )
        if done["status"] != "ok":
            raise DeedbookError(_error({"data": done["error"]}))
        return done["result"]

    def end(self, session: str, *, now: bool = False) -> None:
        """End a session; *now*: without waiting for what is done in it, which becomes unknown."""
        self.ask("session.end", session=session, **({"now": True} if now else {}))

    def describe(self) -> dict[str, Any]:
        """Return what the runtime is, and the schemas of its wire."""
        return self.ask("runtime.describe")

    def health(self) -> dict[str, Any]:
        """Return how the runtime is."""
        return self.ask("runtime.health")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one request and return its result; raises `DeedbookError`."""
        ident = next(self._ids)
        request = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
        repeatable = method in _READING or "idempotency_key" in params
        answer = self._exchange(json.dumps(request, ensure_ascii=False).encode() + b"\n", repeatable=repeatable)
        if "error" in answer:
            raise DeedbookError(_error(answer["error"]))
        result = answer.get("result")
        if answer.get("id") != ident or not isinstance(result, dict):
            self.close()
            raise DeedbookError(fault("RUNTIME_UNREACHABLE", "the answer is to another request; connect again"))
        return result

    def close(self) -> None:
        """End the connection; the sessions that were used over it are kept for a while."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _exchange(self, line: bytes, *, repeatable: bool) -> dict[str, Any]:
        try:
            with suppress(BrokenPipeError):  # who is not let in is told why before anything was asked
                self._socket.sendall(line)
            answer = load(self._line())
        except OSError as problem:
            self.close()
            why = f"the runtime did not answer ({problem.strerror or problem}); what was asked may have been done"
            raise DeedbookError(fault("RUNTIME_UNREACHABLE", why, retryable=repeatable)) from None
        except ValueError as problem:
            self.close()
            why = f"the runtime's answer is not acceptable JSON: {problem}; what was asked may have been done"
            raise DeedbookError(fault("INTAKE_REFUSED", why)) from None
        if not isinstance(answer, dict):
            self.close()
            why = "the runtime's answer is no object; what was asked may have been done"
            raise DeedbookError(fault("RUNTIME_UNREACHABLE", why))
        return answer

    def _line(self) -> bytes:
        seen = 0
        while (end := self._held.find(b"\n", seen)) < 0:
            seen = len(self._held)
            data = self._socket.recv(_BLOCK)
            if not data:
                raise ConnectionResetError("it has ended the connection")
            self._held += data
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        return line


def _socket(place: Path) -> Path:
    """Return the socket of a workspace, of a state folder, or *place* itself."""
    if _is_folder(place):
        inside = place / ".deedbook"
        return (inside if _is_folder(inside) else place) / SOCKET
    return place


def _is_folder(place: Path) -> bool:
    with suppress(PermissionError):  # where one may not look there is nothing to be found
        return place.is_dir()
    return False


def _unreachable(socket: Path, problem: OSError) -> DomainError:
    """Say why there is no connection to *socket*: nobody is there, or whoever is lets this user id not in."""
    if isinstance(problem, PermissionError):
        why = (
            "it is another user's (Permission denied): be the user who runs `deedbook serve`, or connect to a socket "
            "that a service manager opens to your group (for systemd: SocketMode=0660 and SocketGroup=) and hands over"
        )
        return fault("RUNTIME_UNREACHABLE", why, place=str(socket))
    why = f"nobody serves this workspace ({problem.strerror or problem}); start it: deedbook serve"
    return fault("RUNTIME_UNREACHABLE", why, retryable=True, place=str(socket))


def _error(told: Any) -> DomainError:
    said = told.get("data") if isinstance(told, dict) else None
    if not isinstance(said, dict) or not {"code", "message"} <= said.keys():
        return fault("RUNTIME_UNREACHABLE", "the answer is an error in no form that the runtime has")
    return fault(said["code"], said["message"], retryable=bool(said.get("retryable")), place=said.get("place"))
