"""The bridge's side in the runtime: every agent's session here has one session of ours, opened when it is first heard.

Which of ours went on with which of theirs stands in the workspace ledger, so that after a restart a new session says
which one it continues.
"""

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from deedbook.contract import Object, Principal
from deedbook.format.errors import DeedbookError, DomainError, Err, IntakeError, SessionRefused, fault, recordable
from deedbook.format.events import new_id
from deedbook.kernel import Kernel, write
from deedbook.policy.path_mapping import PathMapper
from deedbook_serve.agents import GATES, Known, known

from .conversation import Conversation, why_refused
from .dialects import Answer, Heard, Reply, Said, hear, refusing, say
from .history import begun
from .installations import Watch

MOST: Final = 256
"""Sessions of agents at once; then one that has been silent longest, and has nothing open, makes room."""
OPENING: Final = 10.0
"""Seconds that `Desk.close` waits for a session that is just being opened."""

_Key = tuple[str, str, str]


@attrs.define(eq=False)
class _Place:
    """Where a session is, or is to be: whoever opens it holds *turn*. *refusal*: it was not allowed to begin."""

    turn: Any = attrs.field(factory=threading.Lock)
    conversation: Conversation | None = None
    refusal: Err | None = None
    users: int = 0


class Desk:
    """All sessions of agents of one kernel. Its methods may be called by several threads at once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._ways = PathMapper(kernel.site.root)
        self._places: OrderedDict[_Key, _Place] = OrderedDict()
        self._turn = threading.Lock()
        self._closed = False
        self._known: dict[str, Known | None] = {}
        self._before: dict[_Key, str] | None = None

    def answer(self, agent: str, event: str, body: bytes, principal: Principal) -> Reply:
        """Answer what *agent* says by its hook for *event*, on account of *principal*; never raises."""
        known_ = self._agent(agent)
        try:
            heard = hear(known_ or self._stranger(agent), event, body)
            assert known_
            return self._heard(agent, known_, heard, principal)
        except IntakeError as problem:
            self._note(agent, event, problem.error, len(body))
            return refusing(known_, event, f"{problem.error.code}: {problem.error}")
        except DeedbookError as problem:
            return refusing(known_, event, f"{problem.error.code}: {problem.error}")
        except Exception as problem:  # noqa: BLE001 - whatever it is, nobody has allowed anything
            return refusing(known_, event, f"FAILED: {type(problem).__name__}: {problem}")

    def count(self) -> int:
        """Return how many sessions are open."""
        with self._turn:
            held = [place.conversation for place in self._places.values()]
        return sum(1 for each in held if each is not None and not each.session.ended)

    def close(self, reason: str = "the runtime ends") -> int:
        """End every session, and open none any more; return how many are left to the next start.

        That is so where the end cannot be recorded, and where a session is still being opened after `OPENING` seconds.
        """
        with self._turn:
            self._closed = True
            places = list(self._places.values())
            self._places.clear()
        return sum(not self._ends(place, reason) for place in places)

    def _ends(self, place: _Place, reason: str) -> bool:
        if not place.turn.acquire(timeout=OPENING):
            return False
        try:
            if place.conversation is not None:
                place.conversation.end(reason)
        except (DeedbookError, OSError):
            return False
        finally:
            place.turn.release()
        return True

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _heard(self, agent: str, known_: Known, heard: Heard, principal: Principal) -> Reply:
        key = (agent, principal.id, heard.session)
        place = self._place(key)
        try:
            with place.turn:
                opened = self._opened(place, agent, known_, heard, principal)
            if isinstance(opened, Err):
                return self._refused(agent, known_, heard, opened)
            said = say(known_, heard, opened.answer(heard))
            if said.lost:
                self._undelivered(opened, heard, said)
            return said.reply
        finally:
            self._leave(key, place, ended=heard.moment == "end")

    def _refused(self, agent: str, known_: Known, heard: Heard, refusal: Err) -> Reply:
        """Deny whatever happens in a session that was not allowed to begin, where that can be said."""
        said = say(known_, heard, Answer(outcome="deny", reason=why_refused(refusal)))
        if said.lost and heard.moment in (*GATES, "begin"):
            told = {"agent": agent, "event": heard.event, "what": list(said.lost), "why": said.why}
            write(self._kernel.ledger, "bridge.undelivered", told)
        return said.reply

    def _undelivered(self, conversation: Conversation, heard: Heard, said: Said) -> None:
        """Record what could not be told before the agent goes on; what it was allowed is taken back if that fails."""
        try:
            conversation.undelivered(heard, said)
        except BaseException:
            said.reply.undo()
            raise

    def _opened(
        self, place: _Place, agent: str, known_: Known, heard: Heard, principal: Principal
    ) -> Conversation | Err:
        if heard.moment == "begin":
            place.refusal = None
        if place.refusal is None and (place.conversation is None or place.conversation.session.ended):
            place.conversation = self._open(place, agent, known_, heard, principal)
        if place.refusal is not None:
            return place.refusal
        assert place.conversation is not None
        return place.conversation

    def _open(
        self, place: _Place, agent: str, known_: Known, heard: Heard, principal: Principal
    ) -> Conversation | None:
        settings = self._kernel.bindings.charter.document["clients"][agent]
        client = self._kernel.client(agent, via="bridge", on_behalf_of=principal.id)
        asks_itself = settings["asks"] == "agent" and known_.understands("before", "ask")
        wait = float(settings["wait_s"]) if settings["asks"] == "deedbook" else 0.0
        try:
            session = self._kernel.session("open", principal=client, run=new_id(), wait=None if asks_itself else wait)
        except SessionRefused as problem:
            place.refusal = problem.refusal
            return None
        key = (agent, principal.id, recordable(heard.session))
        try:
            told = self._told(key, heard, session.id)
            session.note("bridge.session", "runtime", told)
            write(self._kernel.ledger, "bridge.session", told)
        except BaseException:
            session.end(ok=False, reason="which session of the agent it is could not be recorded")
            raise
        with self._turn:
            if self._before is not None:
                self._before[key] = session.id
        watch = Watch(known_, self._kernel.site.root, os.environ) if known_.event("settings") else None
        return Conversation(session, known_, agent, settings, self._ways, watch)

    def _told(self, key: _Key, heard: Heard, session: str) -> Object:
        before = self._last(key)
        said = {name: heard.said[name] for name in ("source", "cwd") if isinstance(heard.said.get(name), str)}
        return {
            "agent": key[0],
            "agent_session": key[2],
            "on_behalf_of": key[1],
            "session_id": session,
            "said": {name: recordable(text) for name, text in said.items()},
            **({"continues": before} if before else {}),
        }

    def _last(self, key: _Key) -> str | None:
        """Return which of our sessions went on last with one of theirs, as the workspace ledger has it."""
        with self._turn:
            if self._before is None:
                found = begun(Path(self._kernel.ledger.place))
                self._before = {(each.agent, each.on_behalf_of, each.agent_session): each.session_id for each in found}
            return self._before.get(key)

    # --- places -------------------------------------------------------------------------------------------------------

    def _place(self, key: _Key) -> _Place:
        with self._turn:
            if self._closed:
                raise DeedbookError(fault("RUNTIME_ENDING", "the runtime ends; start it again with: deedbook serve"))
            idle = None if key in self._places or len(self._places) < MOST else self._idle()
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            place.users += 1
        if idle is not None and idle.conversation is not None:
            idle.conversation.end("it was silent, and another session of an agent needed room")
        return place

    def _idle(self) -> _Place | None:
        """Take the place out that was silent longest and has nothing open; the caller has the turn."""
        for key, place in self._places.items():
            if not place.users and (place.conversation is None or not len(place.conversation.tickets)):
                return self._places.pop(key)
        raise DeedbookError(fault("RUNTIME_BUSY", f"{MOST} sessions of agents are at work; end one", retryable=True))

    def _leave(self, key: _Key, place: _Place, *, ended: bool) -> None:
        with self._turn:
            place.users -= 1
            if ended and not place.users and self._places.get(key) is place:
                del self._places[key]

    # --- strangers ----------------------------------------------------------------------------------------------------

    def _agent(self, agent: str) -> Known | None:
        """Return what is known of a client that the charter declares to be an agent."""
        if agent not in self._known:
            declared = self._kernel.bindings.charter.document.get("clients", {}).get(agent)
            if declared is None:
                return None
            self._known[agent] = known(declared.get("kind", agent))
        return self._known[agent]

    def _stranger(self, agent: str) -> NoReturn:
        declared = ", ".join(sorted(self._kernel.bindings.charter.document.get("clients", {}))) or "none"
        why = f"no coding agent {agent!r} is declared under agents: in deedbook.yaml; declared are: {declared}"
        raise IntakeError(fault("BRIDGE_AGENT_UNKNOWN", why))

    def _note(self, agent: str, event: str, error: DomainError, size: int) -> None:
        told = {
            "agent": recordable(agent, 64), "event": recordable(event, 64), "code": error.code,
            "reason": recordable(str(error)), "bytes": size,
        }  # fmt: skip
        try:
            write(self._kernel.ledger, "bridge.refused", told)
        except DeedbookError:
            return
