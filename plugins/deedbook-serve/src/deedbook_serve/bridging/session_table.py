"""The agents' sessions in the runtime: each has one Deedbook session, opened at its first event.

The workspace ledger records which Deedbook session belongs to which agent session, so that after a restart a new
session names the one it continues.
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
from deedbook_serve.agents import GATES, CodingAgent, find_agent

from .conversation import Conversation, describe_refusal
from .dialects import Answer, HookEvent, RenderedAnswer, Reply, build_refusal, parse_event, render_answer
from .history import read_sessions
from .installations import SettingsWatch

MAX_SESSIONS: Final = 256
"""The largest number of open agent sessions; beyond it, the session that was idle longest and has no open call is
ended."""
OPENING_TIMEOUT: Final = 10.0
"""Seconds that `AgentSessionTable.close` waits for a session that is just being opened."""

_Key = tuple[str, str, str]


@attrs.define(eq=False)
class _Slot:
    """The place of one session. The thread that opens the session holds *lock*; *refusal*: the session was refused."""

    lock: Any = attrs.field(factory=threading.Lock)
    conversation: Conversation | None = None
    refusal: Err | None = None
    users: int = 0


class AgentSessionTable:
    """All agent sessions of one kernel. Its methods are safe in threads."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._path_mapper = PathMapper(kernel.site.root)
        self._slots: OrderedDict[_Key, _Slot] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._agents: dict[str, CodingAgent | None] = {}
        self._last_sessions: dict[_Key, str] | None = None

    def answer(self, agent: str, event: str, body: bytes, principal: Principal) -> Reply:
        """Answer the hook of *agent* for *event*, on account of *principal*; never raises."""
        known_agent = self._find_agent(agent)
        try:
            hook_event = parse_event(known_agent or self._refuse_unknown(agent), event, body)
            assert known_agent
            return self._answer(agent, known_agent, hook_event, principal)
        except IntakeError as problem:
            self._note(agent, event, problem.error, len(body))
            return build_refusal(known_agent, event, f"{problem.error.code}: {problem.error}")
        except DeedbookError as problem:
            return build_refusal(known_agent, event, f"{problem.error.code}: {problem.error}")
        except Exception as problem:  # noqa: BLE001 - any failure is a refusal
            return build_refusal(known_agent, event, f"FAILED: {type(problem).__name__}: {problem}")

    def count(self) -> int:
        """Return the number of open sessions."""
        with self._lock:
            conversations = [slot.conversation for slot in self._slots.values()]
        return sum(1 for each in conversations if each is not None and not each.session.ended)

    def close(self, reason: str = "the runtime ends") -> int:
        """End every session and open no more; return how many are left for the next start to end.

        A session is left if its end cannot be recorded, or if it is still being opened after `OPENING_TIMEOUT` seconds.
        """
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
            self._slots.clear()
        return sum(not self._end(slot, reason) for slot in slots)

    def _end(self, slot: _Slot, reason: str) -> bool:
        if not slot.lock.acquire(timeout=OPENING_TIMEOUT):
            return False
        try:
            if slot.conversation is not None:
                slot.conversation.end(reason)
        except (DeedbookError, OSError):
            return False
        finally:
            slot.lock.release()
        return True

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _answer(self, agent: str, known_agent: CodingAgent, hook_event: HookEvent, principal: Principal) -> Reply:
        key = (agent, principal.id, hook_event.session)
        slot = self._acquire_slot(key)
        try:
            with slot.lock:
                conversation = self._get_conversation(slot, agent, known_agent, hook_event, principal)
            if isinstance(conversation, Err):
                return self._deny(agent, known_agent, hook_event, conversation)
            rendered = render_answer(known_agent, hook_event, conversation.answer(hook_event))
            if rendered.lost:
                self._record_undelivered(conversation, hook_event, rendered)
            return rendered.reply
        finally:
            self._release_slot(key, slot, ended=hook_event.moment == "end")

    def _deny(self, agent: str, known_agent: CodingAgent, hook_event: HookEvent, refusal: Err) -> Reply:
        """Deny every event of a session that was refused, as far as the agent has a form for it."""
        rendered = render_answer(known_agent, hook_event, Answer(outcome="deny", reason=describe_refusal(refusal)))
        if rendered.lost and hook_event.moment in (*GATES, "begin"):
            payload = {"agent": agent, "event": hook_event.name, "what": list(rendered.lost), "why": rendered.why}
            write(self._kernel.ledger, "bridge.undelivered", payload)
        return rendered.reply

    def _record_undelivered(self, conversation: Conversation, hook_event: HookEvent, rendered: RenderedAnswer) -> None:
        """Record undelivered parts of an answer before the agent goes on; undo the answer if that fails."""
        try:
            conversation.record_undelivered(hook_event, rendered)
        except BaseException:
            rendered.reply.undo()
            raise

    def _get_conversation(
        self, slot: _Slot, agent: str, known_agent: CodingAgent, hook_event: HookEvent, principal: Principal
    ) -> Conversation | Err:
        if hook_event.moment == "begin":
            slot.refusal = None
        if slot.refusal is None and (slot.conversation is None or slot.conversation.session.ended):
            slot.conversation = self._open(slot, agent, known_agent, hook_event, principal)
        if slot.refusal is not None:
            return slot.refusal
        assert slot.conversation is not None
        return slot.conversation

    def _open(
        self, slot: _Slot, agent: str, known_agent: CodingAgent, hook_event: HookEvent, principal: Principal
    ) -> Conversation | None:
        settings = self._kernel.bindings.charter.document["clients"][agent]
        client = self._kernel.client(agent, via="bridge", on_behalf_of=principal.id)
        asks_itself = settings["asks"] == "agent" and known_agent.supports("before", "ask")
        wait = float(settings["wait_s"]) if settings["asks"] == "deedbook" else 0.0
        try:
            session = self._kernel.session("open", principal=client, run=new_id(), wait=None if asks_itself else wait)
        except SessionRefused as problem:
            slot.refusal = problem.refusal
            return None
        key = (agent, principal.id, recordable(hook_event.session))
        try:
            payload = self._build_payload(key, hook_event, session.id)
            session.note("bridge.session", "runtime", payload)
            write(self._kernel.ledger, "bridge.session", payload)
        except BaseException:
            session.end(ok=False, reason="which session of the agent it is could not be recorded")
            raise
        with self._lock:
            if self._last_sessions is not None:
                self._last_sessions[key] = session.id
        watch = (
            SettingsWatch(known_agent, self._kernel.site.root, os.environ) if known_agent.event("settings") else None
        )
        return Conversation(session, known_agent, agent, settings, self._path_mapper, watch)

    def _build_payload(self, key: _Key, hook_event: HookEvent, session: str) -> Object:
        before = self._find_last(key)
        texts = {
            name: hook_event.input[name] for name in ("source", "cwd") if isinstance(hook_event.input.get(name), str)
        }
        return {
            "agent": key[0],
            "agent_session": key[2],
            "on_behalf_of": key[1],
            "session_id": session,
            "said": {name: recordable(text) for name, text in texts.items()},
            **({"continues": before} if before else {}),
        }

    def _find_last(self, key: _Key) -> str | None:
        """Return the last Deedbook session of an agent's session, from the workspace ledger."""
        with self._lock:
            if self._last_sessions is None:
                sessions = read_sessions(Path(self._kernel.ledger.place))
                self._last_sessions = {
                    (each.agent, each.on_behalf_of, each.agent_session): each.session_id for each in sessions
                }
            return self._last_sessions.get(key)

    # --- slots -------------------------------------------------------------------------------------------------------

    def _acquire_slot(self, key: _Key) -> _Slot:
        with self._lock:
            if self._closed:
                raise DeedbookError(fault("RUNTIME_ENDING", "the runtime ends; start it again with: deedbook serve"))
            idle = None if key in self._slots or len(self._slots) < MAX_SESSIONS else self._pop_idle()
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            slot.users += 1
        if idle is not None and idle.conversation is not None:
            idle.conversation.end("it was silent, and another session of an agent needed room")
        return slot

    def _pop_idle(self) -> _Slot | None:
        """Remove and return the slot that was idle longest and has no open call; the caller holds the lock."""
        for key, slot in self._slots.items():
            if not slot.users and (slot.conversation is None or not len(slot.conversation.open_calls)):
                return self._slots.pop(key)
        raise DeedbookError(
            fault("RUNTIME_BUSY", f"{MAX_SESSIONS} sessions of agents are at work; end one", retryable=True)
        )

    def _release_slot(self, key: _Key, slot: _Slot, *, ended: bool) -> None:
        with self._lock:
            slot.users -= 1
            if ended and not slot.users and self._slots.get(key) is slot:
                del self._slots[key]

    # --- unknown agents ----------------------------------------------------------------------------------------------

    def _find_agent(self, agent: str) -> CodingAgent | None:
        """Return the coding agent of a client that the charter declares."""
        if agent not in self._agents:
            declared = self._kernel.bindings.charter.document.get("clients", {}).get(agent)
            if declared is None:
                return None
            self._agents[agent] = find_agent(declared.get("kind", agent))
        return self._agents[agent]

    def _refuse_unknown(self, agent: str) -> NoReturn:
        declared = ", ".join(sorted(self._kernel.bindings.charter.document.get("clients", {}))) or "none"
        why = f"no coding agent {agent!r} is declared under agents: in deedbook.yaml; declared are: {declared}"
        raise IntakeError(fault("BRIDGE_AGENT_UNKNOWN", why))

    def _note(self, agent: str, event: str, error: DomainError, size: int) -> None:
        payload = {
            "agent": recordable(agent, 64), "event": recordable(event, 64), "code": error.code,
            "reason": recordable(str(error)), "bytes": size,
        }  # fmt: skip
        try:
            write(self._kernel.ledger, "bridge.refused", payload)
        except DeedbookError:
            return
