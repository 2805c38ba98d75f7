"""Perform an approved call that no process waits for, in a session of its own."""

import time
from typing import Final

from deedbook.approvals.answering import AGAIN, open_queue
from deedbook.call.handlers import SessionOrigin
from deedbook.call.pending_calls import Grant, principal_of
from deedbook.call.queue import ApprovalQueue, ApprovalRequest
from deedbook.call.session import Session
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, Result, fault
from deedbook.format.events import timestamp
from deedbook.kernel import Kernel
from deedbook.policy.bound import EXTERNAL
from deedbook.policy.callers import LOCAL
from deedbook.policy.requests import call_digest

_EXTERNAL: Final = ["tool", EXTERNAL]


def perform_once(kernel: Kernel, name: str, *, by: str = LOCAL.id) -> Result[Json]:
    """Perform the approved call of the request *name* once, in a session of its own, for its original principal.

    *by* is the principal who runs it now. Raises `DeedbookError` if it may not be performed; then nothing was done.
    """
    with open_queue(kernel.site.state) as waiting:
        session, grant, request = start_session(kernel, waiting, waiting.find(name), by)
        with session:
            return session.resume(request, grant)


def start_session(
    kernel: Kernel, waiting: ApprovalQueue, pending: ApprovalRequest, by: str
) -> tuple[Session, Grant, Object]:
    """Start the session in which the approved call is performed; return it with the grant and the request.

    Raises `DeedbookError` if the call may not be performed; then the approval stays unused.
    """
    grant = kernel.pending_calls().take(pending, waiting, timestamp(time.time()))
    request = waiting.request(pending)
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
