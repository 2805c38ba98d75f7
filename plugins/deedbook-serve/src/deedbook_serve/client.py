"""A client of the runtime: one connection to the process that serves a workspace.

This module imports almost nothing, so that a client starts quickly. docs/runtime.md shows its use.
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

    *place* is the workspace, its state folder, or the socket itself; *seconds* is the time limit of one answer. A
    refusal raises `DeedbookError`, whose stable code is ``problem.error.code``; the code is ``RUNTIME_UNREACHABLE`` if
    no runtime answers.
    """

    def __init__(self, place: str | Path = ".", *, seconds: float | None = None) -> None:
        self._ids = count(1)
        self._buffer = bytearray()
        socket = _socket(Path(place))
        try:
            self._socket = connect(socket, seconds)
        except OSError as problem:
            raise DeedbookError(_unreachable(socket, problem)) from None

    # --- requests ----------------------------------------------------------------------------------------------------

    def open(self, *, client: str | None = None, purpose: str = "open") -> str:
        """Begin a session and return its id; with a *client*, on the account of that declared client."""
        more = {} if client is None else {"client": client}
        session: str = self.ask("session.open", purpose=purpose, **more)["session"]
        return session

    def sessions(self) -> list[dict[str, Any]]:
        """Return the open sessions of this principal."""
        result: list[dict[str, Any]] = self.ask("session.list")["sessions"]
        return result

    def submit(self, session: str, prompt: str, context: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Submit a *prompt*; return it as hooks changed it, with the signals of the hooks.

        The *context* is recorded before, and hooks and policies can read it as the fact ``prompts.context``.
        """
        more = {} if context is None else {"context": context}
        return self.ask("prompt.submit", session=session, prompt=prompt, **more)

    def actions(
        self, session: str, actions: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[dict[str, Any]]:
        """Perform *actions* and return the outcome of each, in their order.

        With an *idempotency_key* the request can be repeated when its answer was lost, **in the same session**, also
        after the session has ended: nothing is done twice. The same key in another session is another request, whose
        effects happen again, so keep the session's id before sending. Only the ``idempotency_key`` of a ``CREATE_TASK``
        holds across sessions: it belongs to the principal.
        """
        more = {} if idempotency_key is None else {"idempotency_key": idempotency_key}
        result: list[dict[str, Any]] = self.ask("actions", session=session, actions=list(actions), **more)["results"]
        return result

    def call(self, session: str, ability: str, args: Mapping[str, Any] | None = None) -> Any:
        """Use one ability and return its result; raises `DeedbookError` if there is no result."""
        (outcome,) = self.actions(
            session, [{"id": "call", "action": "CALL", "ability": ability, "args": dict(args or {})}]
        )
        if outcome["status"] != "ok":
            raise DeedbookError(_error({"data": outcome["error"]}))
        return outcome["result"]

    def run(self, session: str, prompt: str, **options: Any) -> dict[str, Any]:
        """Take *prompt* to a reply as `deedbook run` does, and return the outcome of the action ``RUN``.

        *options* are its members ``flow``, ``mode`` and ``context``. The status is ``ok`` with the ``result``, or
        ``needs_human`` with the ``approval``: after a person's answer, `resume_run` of ``run`` goes on. Other statuses
        have an ``error``.
        """
        (outcome,) = self.actions(session, [{"id": "run", "action": "RUN", "prompt": prompt, **options}])
        return outcome

    def resume_run(self, session: str, run: str) -> dict[str, Any]:
        """Go on with a suspended *run*, and return the outcome; that of a run that has ended is only read."""
        (outcome,) = self.actions(session, [{"id": "run", "action": "RESUME_RUN", "run": run}])
        return outcome

    def end(self, session: str, *, now: bool = False) -> None:
        """End a session; with *now*, without waiting for running calls, whose outcomes become unknown."""
        self.ask("session.end", session=session, **({"now": True} if now else {}))

    def describe(self) -> dict[str, Any]:
        """Return the runtime's version, its workspace, and the schemas of its protocol."""
        return self.ask("runtime.describe")

    def health(self) -> dict[str, Any]:
        """Return the health of the runtime."""
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
        """Close the connection; the runtime keeps its sessions open for a while."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _exchange(self, line: bytes, *, repeatable: bool) -> dict[str, Any]:
        try:
            with suppress(BrokenPipeError):  # a refused client gets the reason before it sends anything
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
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            data = self._socket.recv(_BLOCK)
            if not data:
                raise ConnectionResetError("it has ended the connection")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def _socket(place: Path) -> Path:
    """Return the socket of a workspace, of a state folder, or *place* itself."""
    if _is_folder(place):
        inside = place / ".deedbook"
        return (inside if _is_folder(inside) else place) / SOCKET
    return place


def _is_folder(place: Path) -> bool:
    with suppress(PermissionError):  # an unreadable folder counts as absent
        return place.is_dir()
    return False


def _unreachable(socket: Path, problem: OSError) -> DomainError:
    """Return the error for a failed connection to *socket*: no runtime listens, or it refuses this user id."""
    if isinstance(problem, PermissionError):
        why = (
            "it is another user's (Permission denied): be the user who runs `deedbook serve`, or connect to a socket "
            "that a service manager opens to your group (for systemd: SocketMode=0660 and SocketGroup=) and hands over"
        )
        return fault("RUNTIME_UNREACHABLE", why, place=str(socket))
    why = f"no process serves this workspace ({problem.strerror or problem}); start it: deedbook serve"
    return fault("RUNTIME_UNREACHABLE", why, retryable=True, place=str(socket))


def _error(error: Any) -> DomainError:
    data = error.get("data") if isinstance(error, dict) else None
    if not isinstance(data, dict) or not {"code", "message"} <= data.keys():
        return fault("RUNTIME_UNREACHABLE", "the answer is an error in no form that the runtime has")
    return fault(data["code"], data["message"], retryable=bool(data.get("retryable")), place=data.get("place"))
