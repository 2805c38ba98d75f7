"""Performing a call that a person approved and nobody waits for, in a session of its own."""

import time
from typing import Final

from deedbook.approvals.answering import AGAIN, queue
from deedbook.call.origins import Origin
from deedbook.call.pending_calls import Grant, principal_of
from deedbook.call.queue import Pending, Waiting
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
    """Perform the approved call of the request *name* once, in a session of its own, as who asked for it.

    *by* is the principal who wants that now. Raises `DeedbookError` where it may not be performed; then nothing was.
    """
    with queue(kernel.site.state) as waiting:
        session, grant, request = begin(kernel, waiting, waiting.find(name), by)
        with session:
            return session.resume(request, grant)


def begin(kernel: Kernel, waiting: Waiting, pending: Pending, by: str) -> tuple[Session, Grant, Object]:
    """Begin the session in which the approved call is performed; return it with the grant and the request.

    Raises `DeedbookError` where the call may not be performed; then nothing is used up.
    """
    grant = kernel.parking().take(pending, waiting, timestamp(time.time()))
    request = waiting.request(pending)
    if kernel.bindings.charter.document["abilities"].get(request["name"], {}).get("plugin") == _EXTERNAL:
        why = f"the effect of {request['name']} is the agent's own, and nothing was used up; {AGAIN}"
        raise ApprovalError(fault("EFFECT_ELSEWHERE", why))
    raw = canonical.encode(request["args"])
    if call_digest(request["name"], raw, request["principal"]["id"]) != request["call"]:
        why = f"the arguments of request {pending.id} held a secret, which no record keeps; let it be asked for again"
        raise ApprovalError(fault("APPROVAL_INCOMPLETE", why))
    resumes = {"approval": pending.id, "session": request["session"], "span": request["span"], "by": by}
    origin = Origin("approval.resumed", resumes)
    return kernel.session("call", principal=principal_of(request["principal"]), origin=origin), grant, request
