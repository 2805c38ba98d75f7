"""Pending calls, which a person must decide: the request, the applied answer, and the mark that it was used.

The request is in the session's ledger and in the workspace's, where approvers find it. The answer is checked again
here, before it is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from threading import get_ident
from typing import Any, Final, NamedTuple, NoReturn

import attrs

from deedbook.contract import Approval, Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, DeedbookError, DomainError, LedgerError, fault, recordable
from deedbook.format.events import Entry, label, new_id, timestamp
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.bound import BoundAbility, Caller, Scope
from deedbook.policy.callers import requested_limits
from deedbook.policy.charter import Charter
from deedbook.policy.judge import Verdict
from deedbook.policy.requests import (
    ApprovedCall,
    answer_faults,
    approvers,
    call_digest,
    principal_json,
    read_statement,
    shown_digest,
)

from .queue import OPEN, ApprovalQueue, ApprovalRequest, State, refuse_state

EXPIRES_S: Final = 3600
"""How many seconds a request is valid by default."""
RUN_EXPIRES_S: Final = 10 * 365 * 86400
"""How many seconds the request of a run is valid by default: a suspended run waits."""
NO_APPROVER: Final = (
    "there is no approver: no principal has the role approver and a key. Declare one under principals: in "
    ".system/deedbook.yaml, with roles: [approver] and key:; then make the call again"
)
HOW_TO_ANSWER: Final = "an approver runs: deedbook approvals approve %s --as NAME"
"""What to do about a request; its id is inserted."""
_OWN: Final = ("approval", "session", "span", "requested", "expires", "shown")
"""Members that differ between two requests for the same call."""


@attrs.frozen(eq=False)
class PendingCall:
    """A call that waits: the caller, the arguments as *given*, its cause, and the *request*.

    *span* is that of ``approval.requested`` in the session; *queue* is set if the caller waits for the answer.
    *shared*: another call filed the request, and only that one may withdraw it. *thread* made the call.
    """

    verdict: Verdict
    bound: BoundAbility
    caller: Caller
    given: bytes
    cause: str
    span: str
    request: Object
    queue: ApprovalQueue | None = None
    shared: bool = False
    thread: int = attrs.field(factory=get_ident)

    def close(self) -> None:
        """Close the queue."""
        if self.queue is not None:
            self.queue.close()

    def poll_answer(self) -> ApprovalRequest | None:
        """Return the request if it was answered or withdrawn; costs one `fstat` if nothing happened."""
        if self.queue is None:
            return None
        self.queue.refresh()
        found = self.queue.get(self.request["approval"])
        return found if found and (found.answer or found.withdrawn) else None


class Grant(NamedTuple):
    """A checked approval of a request; *record* is its payload in the session's ledger."""

    pending: ApprovalRequest
    queue: ApprovalQueue
    approved: ApprovedCall
    record: Object

    @property
    def approval(self) -> Approval:
        """The answer, as the handler of the call sees it."""
        return read_approval(self.record)


class ExistingRequest(NamedTuple):
    """A *request* in the queue for exactly this call: it waits, or is approved (the *grant*)."""

    request: Object
    grant: Grant | None = None


class OpenAnswer(NamedTuple):
    """The state of a suspended call that may not be judged again: the *error*, and the *record* of a refusal."""

    error: DomainError
    record: Object | None = None


class _AlreadyFiled(Exception):  # noqa: N818 - it carries the found request
    """Another process filed a request for the same call meanwhile."""

    def __init__(self, request: Object) -> None:
        super().__init__()
        self.request = request


class PendingCalls:
    """The pending calls of one charter, in the workspace's *ledger*.

    A caller waits for the answer for *wait_seconds* seconds. *deferred*: no request is filed, since the agent asks a
    person.
    """

    def __init__(self, ledger: WorkspaceLedger, charter: Charter, wait_seconds: float = 0.0) -> None:
        self.wait_seconds = wait_seconds
        self._ledger = ledger
        self._charter = charter
        self._seconds: float = charter.document.get("approvals", {}).get("expires_s", EXPIRES_S)
        self._run_seconds: float = charter.document.get("approvals", {}).get("run_expires_s", RUN_EXPIRES_S)

    # --- asking -------------------------------------------------------------------------------------------------------

    def request(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, given: bytes, when: tuple[str, str, str]
    ) -> Object:
        """Return the complete request; *when* is the session, the span and the time.

        Secrets are masked before it is hashed: a person sees exactly what the ledger holds.
        """
        session, span, now = when
        expires = datetime.fromisoformat(now).timestamp() + self._lifetime(caller)
        asked = {
            "approval": new_id(),
            "session": session,
            "span": span,
            "kind": bound.kind,
            "name": bound.id,
            "args": verdict.args,
            "effects": bound.effects,
            "tags": sorted(bound.tags),
            "principal": principal_json(caller.principal),
            "actor": caller.actor,
            "role": caller.role,
            "skill": caller.skill,
            "scope": _scope(caller.scope),
            "reason": recordable(verdict.reason),
            "call": call_digest(bound.id, verdict.raw, caller.principal.id),
            "charter": self._charter.digest,
            "profile": self._charter.document["profile"],
            "requested": now,
            "expires": timestamp(expires),
        }
        if verdict.by is not None:
            asked["by"] = dict(verdict.by)
        if caller.limits:
            limits = [{"branch": each.branch, **each.document} for each in caller.limits]
            asked |= {"mode": caller.mode, "limits": limits, "schema_version": "v3"}
        elif caller.mode != "interactive":
            asked |= {"mode": caller.mode, "schema_version": "v2"}
        if given != verdict.raw:
            asked["given"] = canonical.decode(given)
        raw = self._ledger.scrub(canonical.encode_payload(asked))
        shown: dict[str, Any] = canonical.decode(raw)
        return {**shown, "shown": shown_digest(shown)}

    def open_queue(self, now: str, caller: Caller) -> ApprovalQueue:
        """Return the queue with every request of *caller* that may be valid at *now*; raises `LedgerError`."""
        since = timestamp(max(datetime.fromisoformat(now).timestamp() - self._lifetime(caller), 0))
        return ApprovalQueue.since(_folder(self._ledger), since)

    def _lifetime(self, caller: Caller) -> float:
        """Return for how many seconds a request of *caller* is valid: that of a run waits, unless YAML limits it."""
        return self._seconds if caller.run is None else self._run_seconds

    def find_answer(self, approval: str, now: str) -> "OpenAnswer | None":
        """Return why the call of the request *approval* may not be judged again now: it waits, or was refused.

        An unanswered request of another charter does not hold up the run: it can no longer be answered.
        """
        with closing(ApprovalQueue.since(_folder(self._ledger), "")) as queue:
            pending = queue.get(approval)
            if pending is None:
                return None
            is_current = pending.requested.payload.get("charter") == self._charter.digest
            if pending.state(now) == "waiting" and is_current:
                why = f"approval {approval} waits for an answer; {HOW_TO_ANSWER % approval}"
                return OpenAnswer(fault("NEEDS_HUMAN", why))
            return self._find_refusal(pending, queue, is_current) if pending.state(now) == "denied" else None

    def _find_refusal(self, pending: ApprovalRequest, queue: ApprovalQueue, is_current: bool) -> "OpenAnswer | None":
        """Return the refusal of a request; ``None`` if it does not count under a charter that came later."""
        try:
            record = self.describe_answer(pending, queue)
        except ApprovalError as problem:
            return OpenAnswer(problem.error) if is_current else None
        return OpenAnswer(_refusal(record), record)

    def find_existing(self, request: Object, queue: ApprovalQueue, now: str) -> ExistingRequest | None:
        """Return a valid request in the queue for exactly the same call as *request*, if there is one.

        An approved one comes before a waiting one; an approval that cannot be used does not count.
        """
        for pending, _ in _matching_requests(request, queue, now, "approved"):
            with suppress(ApprovalError):
                grant = self.take(pending, queue, now)
                return ExistingRequest(queue.request(pending), grant)
        return next((ExistingRequest(found) for _, found in _matching_requests(request, queue, now, "waiting")), None)

    def file(self, request: Object, queue: ApprovalQueue, now: str) -> ExistingRequest | None:
        """Add *request* to the queue, durably, unless one for the same call exists; then return that.

        Raises `LedgerError`.
        """

        def check() -> None:
            queue.refresh()
            for _, found in _matching_requests(request, queue, now, "waiting"):
                raise _AlreadyFiled(found)

        entry = self._entry("approval.requested", "policy", request["principal"]["id"], self._ledger.root, request)
        try:
            self._ledger.append([entry], durable=True, check=check)
        except _AlreadyFiled as first:
            return ExistingRequest(first.request)
        return None

    def is_filed(self, request: Object) -> bool:
        """Return whether *request* is in the queue; raises `LedgerError`."""
        with closing(ApprovalQueue.since(_folder(self._ledger), request["requested"])) as queue:
            return queue.get(request["approval"]) is not None

    def withdraw(self, request: Object, reason: str) -> None:
        """Withdraw *request*: no caller waits for the answer any more. Raises `LedgerError`."""
        payload = {"approval": request["approval"], "reason": reason}
        self._ledger.append(
            [self._entry("approval.withdrawn", "runtime", request["principal"]["id"], self._ledger.root, payload)],
            durable=True,
        )

    # --- taking over --------------------------------------------------------------------------------------------------

    def take(self, pending: ApprovalRequest, queue: ApprovalQueue, now: str) -> Grant:
        """Return the checked approval of *pending*; raises `ApprovalError` if there is none."""
        request = queue.request(pending)
        if pending.state(now) == "denied":
            self._raise_refused(pending, queue, request)
        if pending.state(now) in OPEN and request["charter"] != self._charter.digest:
            raise ApprovalError(charter_changed_error(pending.id))
        refuse_state(pending, now, wanted="approved")
        refuse_performed(Path(self._ledger.place).parents[1], pending, queue, now)
        return Grant(pending, queue, ApprovedCall.of(request), self._answer_record(pending, queue, request))

    def use(self, grant: Grant, session: str, now: str) -> None:
        """Mark *grant* as used by *session*, durably; one caller succeeds, the others get `ApprovalError`."""

        def check() -> None:
            grant.queue.refresh()
            refuse_state(grant.pending, now, wanted="approved")

        pending = grant.pending
        assert pending.answer
        who = pending.requested.payload["principal"]["id"]
        payload = {"approval": pending.id, "session": session}
        entry = self._entry("approval.used", "runtime", who, pending.answer.span, payload)
        self._ledger.append([entry], durable=True, check=check)

    def describe_answer(self, pending: ApprovalRequest, queue: ApprovalQueue) -> Object:
        """Return the payload about the answer for a session's ledger; raises `ApprovalError` for an invalid one."""
        return self._answer_record(pending, queue, queue.request(pending))

    def _raise_refused(self, pending: ApprovalRequest, queue: ApprovalQueue, request: Object) -> NoReturn:
        raise ApprovalError(_refusal(self._answer_record(pending, queue, request)))

    def _answer_record(self, pending: ApprovalRequest, queue: ApprovalQueue, request: Object) -> dict[str, Any]:
        assert pending.answer
        answer = queue.open_payload(pending.answer)
        refuse_approver(self._charter.document["principals"], request, answer["approver"])
        key = approvers(self._charter.document["principals"])[answer["approver"]]
        for why in answer_faults(request, answer, key, self._ledger.session_id):
            raise ApprovalError(fault("APPROVAL_FORGED", f"the answer to request {pending.id} does not count: {why}"))
        return {
            "approval": pending.id,
            "approver": answer["approver"],
            "key": key,
            "ledger": self._ledger.session_id,
            "seq": pending.answer.seq,
            "hash": queue.hash_of(pending.answer),
            "signed": answer["signed"],
        }

    def _entry(self, event_type: str, actor: str, who: str, cause: str, payload: Object) -> Entry:
        return Entry(label(event_type, actor, who), self._ledger.span(), cause, canonical.encode_payload(dict(payload)))


def _matching_requests(
    request: Object, queue: ApprovalQueue, now: str, state: State
) -> Iterator[tuple[ApprovalRequest, Object]]:
    """Yield the requests of the queue in *state* that are for exactly the same call as *request*.

    The same call, charter, asking gate and reason, for the same principal at the same position of a run.
    """
    wanted = {name: value for name, value in request.items() if name not in _OWN}
    for pending in list(queue):
        payload = pending.requested.payload
        if payload.get("call") == request["call"] and pending.state(now) == state:
            with suppress(DeedbookError):  # an unreadable one does not count
                found = queue.request(pending)
                if {name: value for name, value in found.items() if name not in _OWN} == wanted:
                    yield pending, found


def withdraw(ledger: WorkspaceLedger, approvals: Sequence[str], reason: str) -> None:
    """Withdraw the requests *approvals* that are still open in the workspace's *ledger*; raises `LedgerError`."""
    if not approvals:
        return
    now, entries = ledger.now(), []
    with ApprovalQueue.since(_folder(ledger), "") as queue:
        for found in filter(None, map(queue.get, approvals)):
            if found.state(now) in OPEN:
                who = queue.request(found)["principal"]["id"]
                payload = {"approval": found.id, "reason": reason}
                entry = label("approval.withdrawn", "runtime", who)
                entries.append(Entry(entry, ledger.span(), ledger.root, canonical.encode_payload(payload)))
    if entries:
        ledger.append(entries, durable=True)


def refuse_approver(principals: Mapping[str, Any], request: Object, approver: str) -> None:
    """Raise `ApprovalError` unless *approver* may answer *request*, under the charter with these *principals*.

    A principal may approve calls of agents that act on its behalf, but not its own.
    """
    refuse_unknown(principals, approver)
    if approver == request["principal"]["id"]:
        why = f"{approver!r} made this call and must not answer its own request; another approver must"
        raise ApprovalError(fault("APPROVAL_OWN_REQUEST", why))


def refuse_unknown(principals: Mapping[str, Any], approver: str) -> None:
    """Raise `ApprovalError` unless *approver* is an approver under the charter with these *principals*."""
    known = approvers(principals)
    if not known:
        raise ApprovalError(fault("APPROVAL_NO_APPROVER", NO_APPROVER))
    if approver not in known:
        who = ", ".join(sorted(known))
        why = f"{approver!r} is no principal with the role approver and a key. Who may answer: {who}"
        raise ApprovalError(fault("APPROVAL_NO_APPROVER", why))


def refuse_performed(state: Path, pending: ApprovalRequest, waiting: ApprovalQueue, now: str) -> None:
    """Raise `ApprovalError` if a session of the *state* folder began the call of the request *pending*.

    If the queue does not say so, the workspace's ledger lost the mark of its use. A session that names the request and
    cannot be read counts as having begun it.
    """
    for place in sorted((state / "sessions").glob(f"*/{LEDGER_FILE}")):
        if is_performed(place, pending.id):
            waiting.refresh()  # another process may have marked its use since the queue was read
            refuse_state(pending, now, wanted="approved")
            why = f"session {place.parent.name} began the call of request {pending.id}, and the workspace ledger does"
            raise ApprovalError(fault("APPROVAL_USED", f"{why} not say so; run: deedbook verify"))


def is_performed(place: Path, identity: str) -> bool:
    """Return whether the session's ledger at *place* has a call under an approval of the request *identity*."""
    name = identity.encode()
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        if not any(name in line for line in file):
            return False
    try:
        return _has_call_under(place, identity)
    except LedgerError:
        return True


def _has_call_under(place: Path, identity: str) -> bool:
    grants: set[str] = set()
    with Folder.at(place.parent) as folder, closing(Follower(folder.open(place.name), place=str(place))) as follow:
        for line in follow():
            event = line.event
            if event.type == "approval.granted" and event.payload.get("approval") == identity:
                grants.add(event.span)
            elif event.type in OUTCOMES and event.parent in grants:
                return True
    return False


def charter_changed_error(identity: str) -> Any:
    """Return the error that the charter of the request *identity* is no longer in force."""
    why = f"another charter is in force than when request {identity} was made; make the call again"
    return fault("APPROVAL_CHARTER_CHANGED", why)


def read_approval(recorded: Object) -> Approval:
    """Return the answer that *recorded*, a payload of ``approval.granted``, describes."""
    return Approval(id=str(recorded["approval"]), approver=str(recorded["approver"]))


def principal_of(recorded: Object) -> Principal:
    """Return the principal that `approvals.requests.principal_json` describes."""
    return Principal(recorded["id"], recorded["via"], frozenset(recorded["roles"]), recorded["on_behalf_of"])


def caller_of(request: Object) -> Caller:
    """Return the caller of *request*, with its scope."""
    scope = request["scope"]
    names, models = (None if part is None else frozenset(part) for part in (scope["names"], scope["models"]))
    return Caller(
        principal=principal_of(request["principal"]),
        actor=request["actor"],
        scope=Scope(scope["why"], names, models),
        role=request["role"],
        skill=request["skill"],
        mode=request.get("mode", "interactive"),
        limits=requested_limits(request),
    )


def _scope(scope: Scope) -> dict[str, Any]:
    names, models = (None if part is None else sorted(part) for part in (scope.names, scope.models))
    return {"why": scope.why, "names": names, "models": models}


def _refusal(record: Object) -> DomainError:
    """Return the error that a person refused a call, from the record of the answer."""
    note = read_statement(record["signed"]).get("note")
    return fault("APPROVAL_REFUSED", f"{record['approver']} refused it{f': {note}' if note else ''}")


def _folder(ledger: WorkspaceLedger) -> Folder:
    return Folder.at(Path(ledger.place).parent)
