"""People with keys, as tests need them: approvers in a workspace of the lab, or of the command line."""

import os
import time
from typing import Any

from deedbook.approvals.keys import KeyRing
from deedbook.call.queue import open_queue, refuse_state
from deedbook.cli.resume import resume_session
from deedbook.contract import Json
from deedbook.format.errors import Err, Ok, Result
from deedbook.format.events import timestamp
from deedbook.format.notes import SigningKey
from deedbook.kernel import Kernel
from deedbook.policy.callers import LOCAL
from deedbook_approvals.performing import find_run, start_session


def approving(lab: Any, *names: str) -> list[SigningKey]:
    """Declare approvers with keys (ada, unless there are *names*), whose private halves are here; return these."""
    keys = [KeyRing.of(os.environ).create(name, force=True) for name in names or ("ada",)]
    for key in keys:
        name = key.public.name
        lab.write(f"{name}.pub", f"{key.public}\n")
        lab.settings(principals={name: {"key": f"{name}.pub", "roles": ["approver"]}})
    return keys


def perform_once(kernel: Kernel, name: str, *, by: str = LOCAL.id) -> Result[Json]:
    """Perform the approved call of the request *name* once, in a session of its own, for its original principal.

    *by* is the principal who runs it now. If a suspended run waits at that call, the run goes on instead; the result is
    then its ``session``, ``state`` and ``reply``. Raises `DeedbookError` if it may not be performed; then nothing was
    done.
    """
    with open_queue(kernel.site.state) as waiting:
        pending = waiting.find(name)
        run = find_run(kernel.site.state, pending)
        if run:
            refuse_state(pending, timestamp(time.time()), wanted="approved")
            return _go_on(kernel, run)
        session, grant, request = start_session(kernel, waiting, pending, by)
        with session:
            return session.resume(request, grant)


def _go_on(kernel: Kernel, run: str) -> Result[Json]:
    with resume_session(kernel, run) as session:
        result = session.go_on()
        if isinstance(result, Err):
            session.end(ok=False, reason=result.error.code)
            return result
        reply = result.value
        session.end(ok=reply.state == "COMPLETED", reason=reply.state)
        return Ok({"session": run, "state": reply.state, "reply": reply.text})
