"""An approver's own result for a call of a suspended run."""

import os
from collections.abc import Mapping
from typing import Any

from deedbook.continuation.settling import PersonResult
from deedbook.contract import Json
from deedbook.policy.requests import approvers, sign_result

from .answering import choose_approver, load_key
from .keys import KeyRing


def sign_as(principals: Mapping[str, Any], value: Json, approver: str | None = None, call: str = "") -> PersonResult:
    """Return the result *value* of an approver whose private key is here, for `Kernel.resume`.

    *principals* are those of the charter in force. Without *approver*, the only approver with a key here gives it.
    *call* is the request, or the span of the call, that it is for. Raises `ApprovalError`, `SignatureError`.
    """
    ring = KeyRing.of(os.environ)
    who = approver or choose_approver(approvers(principals), ring)
    key = load_key(principals, who, ring)
    return PersonResult(value, who, str(key.public), lambda settled, said: sign_result(settled, key, said), call)
