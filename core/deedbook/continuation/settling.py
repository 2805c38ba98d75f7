"""A person's own result for a call of a suspended run: of a request that waits, or of a write whose outcome is lost.

The result is recorded as ``call.settled`` under the request or the intent, signed by an approver. It is no outcome: the
call keeps the one that it has.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import attrs

from deedbook.call.pending_calls import refuse_approver, withdraw
from deedbook.contract import Event, Json, Object
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, LedgerError, SchemaError, fault
from deedbook.format.events import Entry, label, new_id
from deedbook.format.sealed import MASK_PREFIX
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.policy.bindings import Bindings

from .requests import Request
from .resume import Resumption

REASON: Final = "a person gave the result"

Signer = Callable[[Object, Object], str]
"""Signs the members of ``call.settled`` together with what is said about them (`policy.requests.sign_result`)."""


@attrs.frozen
class PersonResult:
    """The result *value* that *approver* gives, whose verifier key is *key*; *sign* signs it.

    *call* is the request, or the span of the lost call, that it is for; it may be empty if there is only one.
    """

    value: Json
    approver: str
    key: str
    sign: Signer
    call: str = ""


@attrs.frozen(eq=False)
class Settlement:
    """The events that settle a call: append them with `record`. *approval* is the request that is withdrawn, if any."""

    entries: list[Entry]
    approval: str = ""

    def record(self, ledger: Ledger, own: WorkspaceLedger) -> None:
        """Withdraw the request in the workspace's *own* ledger, and append the result; raises `LedgerError`."""
        if self.approval:
            withdraw(own, [self.approval], REASON)
        ledger.append(self.entries, durable=True)


def build_settlement(
    found: Resumption, result: PersonResult, ledger: Ledger, own: WorkspaceLedger, bindings: Bindings,
    reconciled: Collection[str],
) -> Settlement:  # fmt: skip
    """Return the settlement of a call of the run by a person's *result*; nothing is recorded yet.

    *reconciled* are the spans of lost calls whose outcome is known by now. Raises `LedgerError` (``RESUME_REFUSED``) if
    no such call waits, `SchemaError` (``SCHEMA_VIOLATION``) for a result that does not fit the ability's output schema,
    `ApprovalError` for a person who may not answer.
    """
    request = _find_call(found, result.call, bindings, reconciled)
    bound, event = bindings.find(request.name), request.event
    if bound is None:
        why = f"the ability {request.name} is not in the charter that is in force"
        raise LedgerError(fault("RESUME_REFUSED", why))
    value = canonical.decode(canonical.admit(result.value))
    if problems := bound.gives.violations(value):
        errors = [fault("SCHEMA_VIOLATION", f"the result for {request.name}: {p.path}: {p.message}") for p in problems]
        raise SchemaError(*errors)
    if MASK_PREFIX.encode() in own.scrub(canonical.encode_payload({"result": value})):
        raise ApprovalError(fault("APPROVAL_INCOMPLETE", "the result holds a secret, which no record keeps"))
    refuse_approver(bindings.charter.document["principals"], _asked_by(found, event), result.approver)
    settled: dict[str, Any] = {
        "ability": request.name,
        "result": value,
        "approver": result.approver,
        "key": result.key,
        "charter": bindings.charter.digest,
    }
    binding = {"session": ledger.session_id, "settles": event.span, "ledger": own.session_id, "at": ledger.now()}
    settled["signed"] = result.sign(settled, {**binding, "nonce": new_id()})
    return _build_entries(ledger, event, settled, request.kind == "approval")


def _build_entries(ledger: Ledger, event: Event, settled: Object, waits: bool) -> Settlement:
    who, entries, approval = event.principal, [], ""
    if waits:
        approval = str(event.payload["approval"])
        payload = canonical.encode_payload({"approval": approval, "reason": REASON})
        entries.append(Entry(label("approval.withdrawn", "runtime", who), ledger.span(), event.span, payload))
    head = label("call.settled", "user", str(settled["approver"]))
    entries.append(Entry(head, ledger.span(), event.span, canonical.encode_payload(dict(settled))))
    return Settlement(entries, approval)


def _asked_by(found: Resumption, event: Event) -> Object:
    """Return who made the call, in the form that `refuse_approver` reads."""
    asked = event.payload.get("principal")
    return {"principal": asked if isinstance(asked, dict) else found.start.payload["principal"]}


def _find_call(found: Resumption, name: str, bindings: Bindings, reconciled: Collection[str]) -> Request:
    """Return the call whose result a person may give: the one that *name* names, or the only one."""
    calls = [each for each in _find_unsettled(found, bindings) if each.event.span not in reconciled]
    chosen = [each for each in calls if _name_of(each).startswith(name)]
    if len(chosen) == 1:
        return chosen[0]
    if not calls:
        why = "no call of the run waits for a person's result; go on with it without --result"
    else:
        named = ", ".join(f"{_name_of(each)} ({each.name})" for each in calls)
        why = f"name the call whose result this is with --for: {named}"
    raise LedgerError(fault("RESUME_REFUSED", why, place=f"session {found.parent.session}"))


def _name_of(request: Request) -> str:
    return str(request.event.payload["approval"]) if request.kind == "approval" else request.event.span


def _find_unsettled(found: Resumption, bindings: Bindings) -> list[Request]:
    """Return the calls that wait for a person: open requests, and lost writes, of all branches."""
    waiting = []
    for branch in found.requests.branches.values():
        for request in branch:
            last = request is branch[-1]
            is_open = request.kind == "approval" and request.settled is None and last
            is_lost = request.is_unknown(last=last) and not request.is_flow
            if is_open or (is_lost and request.may_have_effects(bindings)):
                waiting.append(request)
    return waiting
