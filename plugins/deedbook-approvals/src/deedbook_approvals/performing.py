"""Perform an approved call that no process waits for, in a session of its own, or find the run that waits for it."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from deedbook.call.pending_calls import Grant, principal_of
from deedbook.call.queue import ApprovalQueue, ApprovalRequest
from deedbook.call.run_requests import RunRequests
from deedbook.continuation.resume import has_open_run, open_requests
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, DeedbookError, fault
from deedbook.format.events import SESSION_ID, timestamp
from deedbook.format.files import Folder
from deedbook.format.reader import is_open, read, summarise
from deedbook.kernel import Kernel
from deedbook.maintenance.liveness import SESSIONS
from deedbook.policy.bound import EXTERNAL
from deedbook.policy.requests import call_digest
from deedbook.sessions.run_journal import SessionOrigin
from deedbook.sessions.session import Session

AGAIN: Final = "let the agent ask again: the same call then uses the approval"
"""How to perform an approved call of an agent's own tool."""
_EXTERNAL: Final = ["tool", EXTERNAL]


def find_run(state: Path, pending: ApprovalRequest) -> str:
    """Return the session whose suspended run waits at the call of *pending*; empty if no run waits there."""
    session = pending.requested.payload.get("session")
    if not isinstance(session, str) or not SESSION_ID.fullmatch(session):
        return ""
    with suppress(DeedbookError, OSError, ValueError):
        with Folder.at(state) as folder:
            if summarise(folder, session).state not in ("suspended", "interrupted"):
                return ""
        events = list(read(state / SESSIONS / session))
        asked = [event.payload.get("approval") for event in open_requests(events)]
        return session if pending.id in asked and has_open_run(events) else ""
    return ""


def start_session(
    kernel: Kernel, waiting: ApprovalQueue, pending: ApprovalRequest, by: str
) -> tuple[Session, Grant, Object]:
    """Start the session in which the approved call is performed; return it with the grant and the request.

    Raises `DeedbookError` if the call may not be performed; then the approval stays unused.
    """
    grant = kernel.pending_calls().take(pending, waiting, timestamp(time.time()))
    request = waiting.request(pending)
    _refuse_dead(Path(kernel.state.path), request)
    if kernel.bindings.charter.document["abilities"].get(request["name"], {}).get("plugin") == _EXTERNAL:
        why = f"only the agent itself can perform {request['name']}; the approval is still unused; {AGAIN}"
        raise ApprovalError(fault("EFFECT_ELSEWHERE", why))
    raw = canonical.encode(request["args"])
    if call_digest(request["name"], raw, request["principal"]["id"]) != request["call"]:
        why = f"the arguments of request {pending.id} held a secret, which no record keeps; make the call again"
        raise ApprovalError(fault("APPROVAL_INCOMPLETE", why))
    resumes = {"approval": pending.id, "session": request["session"], "span": request["span"], "by": by}
    origin = SessionOrigin("approval.resumed", resumes)
    return kernel.session("call", principal=principal_of(request["principal"]), origin=origin), grant, request


def _refuse_dead(state: Path, request: Object) -> None:
    """Raise `ApprovalError` if the process of the run that made *request* has died, and the run cannot be resumed."""
    session = request["session"]
    with suppress(FileNotFoundError), Folder.at(state) as folder:
        if is_open(folder, session):
            return
        made = RunRequests(read(state / SESSIONS / session))
        asked = made.find(request["span"])
        if asked is not None and made.is_running(asked):
            why = f"the process of the run that made request {request['approval']} has died, so the run is over"
            raise ApprovalError(
                fault("APPROVAL_WITHDRAWN", f"{why}; make the call again, and run: deedbook sessions close {session}")
            )
