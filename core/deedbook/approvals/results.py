"""An approver's own result for a call of a suspended run."""

import os
from collections.abc import Mapping
from typing import Any

from deedbook.call.pending_calls import NO_APPROVER, refuse_unknown
from deedbook.continuation.settling import PersonResult
from deedbook.contract import Json
from deedbook.format.errors import ApprovalError, fault
from deedbook.format.notes import SigningKey, VerifierKey
from deedbook.policy.requests import approvers, sign_result

from .keys import KeyRing


def sign_as(principals: Mapping[str, Any], value: Json, approver: str | None = None, call: str = "") -> PersonResult:
    """Return the result *value* of an approver whose private key is here, for `Kernel.resume`.

    *principals* are those of the charter in force. Without *approver*, the only approver with a key here gives it.
    *call* is the request, or the span of the call, that it is for. Raises `ApprovalError`, `SignatureError`.
    """
    ring = KeyRing.of(os.environ)
    who = approver or choose_approver(approvers(principals), ring)
    key = load_key(principals, who, ring)
    return PersonResult(value, who, str(key.public), lambda settled, binding: sign_result(settled, key, binding), call)


def load_key(principals: Mapping[str, Any], who: str, ring: KeyRing) -> SigningKey:
    """Return the private key of the approver *who*; raises `ApprovalError` if it is not the declared one."""
    refuse_unknown(principals, who)
    declared = VerifierKey.parse(approvers(principals)[who])
    key = ring.load(declared.name)
    if key.public != declared:
        why = f"the private key {declared.name!r} here is {key.public}; the charter declares {declared} for {who!r}"
        raise ApprovalError(fault("APPROVAL_WRONG_KEY", why, place=str(ring.place / declared.name)))
    return key


def choose_approver(known: dict[str, str], ring: KeyRing) -> str:
    """Return the approver whose private key is here, if there is exactly one."""
    if not known:
        raise ApprovalError(fault("APPROVAL_NO_APPROVER", NO_APPROVER))
    here = [who for who, key in known.items() if VerifierKey.parse(key).name in ring.names()]
    if len(here) == 1:
        return here[0]
    why = (
        f"the private keys of {', '.join(sorted(here))} are here"
        if here
        else f"no approver's private key is in {ring.place}"
    )
    raise ApprovalError(fault("APPROVAL_NO_APPROVER", f"{why}; name the approver with --as NAME"))
