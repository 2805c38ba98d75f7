"""Doing the actions of a request in their order, each recorded before it is begun and before its client is told."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from deedbook import canonical
from deedbook.contracts import Event, Json, Object
from deedbook.errors import CODES, DeedbookError, DomainError, Err, Ok, Result, fault, recordable
from deedbook.events import Entry, label
from deedbook.session import Session

from .acts import DONE, GUARD, PREFLIGHT, RECEIVED, REFUSED, Act, acts
from .batches import Step

OK: Final = "ok"
_DENIED: Final = 3
_MOST: Final = 2000

Work = Callable[[Step, Mapping[str, Any]], dict[str, Any]]


class Doing:
    """Does actions in a session, which nobody else does anything in meanwhile; *end* ends it."""

    def __init__(self, session: Session, end: Callable[[], None]) -> None:
        self._session = session
        self._end = end
        self._work: Mapping[str, Work] = {
            "CALL": self._call,
            "DIRECT_RUN": self._direct,
            "END_SESSION": self._bare,
        }

    def all(self, steps: Sequence[Step], request: str, digest: str) -> dict[str, dict[str, Any]]:
        """Do *steps* in their order; return what came of each, by id. *request* names them in the ledger."""
        done: dict[str, dict[str, Any]] = {}
        for step in steps:
            done[step.id] = {"id": step.id, "action": step.name, **self._one(step, request, digest, done)}
        return done

    def _one(self, step: Step, request: str, digest: str, done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Do one action; whatever goes wrong with it, the others learn of it and the client is told."""
        try:
            if self._session.ended:
                return ended(self._session.id)
            span = self._receive(step, request, digest)
            waits = next((name for name in step.waits if done[name]["status"] != OK), None)
            outcome = _skipped(waits) if waits else self._do(step, span, done)
            self._done(step, span, outcome)
            if step.name == "END_SESSION" and outcome["status"] == OK:
                self._end()
        except DeedbookError as problem:
            return failed(problem.error)
        return outcome

    def _do(self, step: Step, span: str, done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        work = self._work.get(step.name)
        if work is None:
            return failed(fault("NOT_AVAILABLE", f"{step.name} is not in this release"))
        with self._session.under(span):
            try:
                return work(step, done)
            except DeedbookError as problem:
                return failed(problem.error)

    # --- the actions --------------------------------------------------------------------------------------------------

    def _call(self, step: Step, _: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session
        opened = session.door.before(session.caller, step.said["ability"], step.said.get("args", {}), session.cause)
        if isinstance(opened, Err):
            return outcome(opened)
        signals = getattr(opened.value, "signals", {})
        return outcome(session.door.perform(opened.value), signals)

    def _direct(self, step: Step, done: Mapping[str, Any]) -> dict[str, Any]:
        if self._session.caller.actor != "user":
            why = "DIRECT_RUN is for persons; a client makes a task of it, or calls the ability"
            return failed(fault("TOOL_NOT_ALLOWED", why))
        return self._call(step, done)

    def _bare(self, _: Step, __: Mapping[str, Any]) -> dict[str, Any]:
        return {"status": OK}

    # --- the record ---------------------------------------------------------------------------------------------------

    def _receive(self, step: Step, request: str, digest: str) -> str:
        said = {"request": request, "digest": digest, "id": step.id, "action": step.name, "after": list(step.waits)}
        return note(self._session, RECEIVED, self._session.caller.actor, said, self._session.cause)

    def _done(self, step: Step, span: str, outcome: Mapping[str, Any]) -> None:
        said = {"id": step.id, "status": outcome["status"]}
        if "task" in outcome:
            said["task"] = outcome["task"]
        if "error" in outcome:
            said |= outcome["error"]
        note(self._session, DONE, "runtime", said, span)


def note(session: Session, event_type: str, actor: str, said: Object, cause: str, principal: str = "") -> str:
    """Append an event about actions to *session*'s ledger and return its span; raises `LedgerError`."""
    span = session.ledger.span()
    who = label(event_type, actor, principal or session.principal.id)
    session.ledger.append([Entry(who, span, cause, canonical.encode(dict(said)))])
    return span


def refuse(session: Session, error: DomainError, principal: str) -> None:
    """Record that something was asked of *session* by *principal* that was not done; raises `LedgerError`."""
    note(session, REFUSED, "policy", _said(error), session.ledger.root, principal)


def new_request() -> str:
    """Return a name for a request that nobody gave one; no idempotency key is like it."""
    return f"~{os.urandom(16).hex()}"


# --- what came of it --------------------------------------------------------------------------------------------------


def outcome(result: Result[Json], signals: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a call came to, as its client is told."""
    if isinstance(result, Ok):
        return {"status": OK, "result": result.value, **hints(signals or {})}
    known: Mapping[str, Any] = getattr(result, "told", {})
    approval = {"approval": known["approval"]} if "approval" in known else {}
    return {**failed(result.error), **approval, **hints(known.get("signals") or signals or {})}


def failed(error: DomainError) -> dict[str, Any]:
    """Return why nothing came of an action."""
    return {"status": status(error.code), "error": _said(error)}


def _said(error: DomainError) -> dict[str, str]:
    """Return *error* as the ledger and the client are told, word for word."""
    return {"code": error.code, "message": recordable(str(error), _MOST)}


def status(code: str) -> str:
    """Return the status that the stable *code* leads to."""
    if code in ("NEEDS_HUMAN", "TASK_UNAVAILABLE"):
        return "needs_human" if code == "NEEDS_HUMAN" else "unavailable"
    known = CODES.get(code)
    return "denied" if known is not None and known.exit == _DENIED else "failed"


def ended(session: str) -> dict[str, Any]:
    """Return what becomes of an action after its session's end."""
    return failed(fault("SESSION_ENDED", f"session {session} has ended"))


def hints(signals: Mapping[str, Any]) -> dict[str, Any]:
    """Return what hooks said of a task before it was made and of a call before it was made."""
    names = {"preflight": PREFLIGHT, "guard": GUARD}
    return {name: list(signals[signal]) for name, signal in names.items() if signal in signals}


def _skipped(waits: str) -> dict[str, Any]:
    return {"status": "skipped", "error": _said(fault("ACTION_SKIPPED", f"it waits for {waits!r}, which was not ok"))}


# --- again ------------------------------------------------------------------------------------------------------------


def again(
    events: Iterable[Event], steps: Sequence[Step], request: str, digest: str, session: str
) -> dict[str, Any] | None:
    """Return what the ledger says came of the *steps* of *request*, by id; ``None`` if it knows nothing of it.

    Raises `DeedbookError` (``REQUEST_REUSED``) if other actions were asked for under that name.
    """
    known = acts(events, request)
    if not known:
        return None
    if any(act.digest != digest for act in known.values()):
        why = f"the idempotency key {request!r} came with other actions before; take another for these"
        raise DeedbookError(fault("REQUEST_REUSED", why))
    return {
        step.id: {
            "id": step.id,
            "action": step.name,
            **(_again(known[step.id]) if step.id in known else ended(session)),
        }
        for step in steps
    }


def _again(act: Act) -> dict[str, Any]:
    if act.done is None:
        why = "it was begun, and the process ended before its end was recorded; the session's ledger has what is known"
        return {**failed(fault("OUTCOME_UNKNOWN", why)), **hints(act.signals)}
    made: dict[str, Any] = {"status": act.done["status"], **hints(act.signals)}
    if "task" in act.done:
        made["task"] = act.done["task"]
    if "code" in act.done:
        made["error"] = {"code": act.done["code"], "message": act.done.get("message", "")}
    elif act.gave:
        made["result"] = act.result
    if act.approval and made["status"] == "needs_human":
        made["approval"] = act.approval
    return made
