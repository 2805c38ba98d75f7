"""Pending calls, which a person has to decide: the request, the answer taken over, and the mark that it was used.

The request stands in the session's ledger and in the workspace's, where those who may answer it look. What they answer
is checked here once more, by whoever is about to act on it.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import attrs

from deedbook.contract import Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, DeedbookError, LedgerError, fault, recordable
from deedbook.format.events import Entry, label, new_id, timestamp
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.bound import BoundAbility, Caller, Scope
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

from .queue import OPEN, Pending, State, Waiting, refuse_state

EXPIRES_S: Final = 3600
"""How long a request may be answered and performed where the workspace says nothing else."""
NO_APPROVER: Final = (
    "nobody can answer: no principal has the role approver and a key. Declare one under principals: in "
    ".system/deedbook.yaml, with roles: [approver] and key:; then make the call again"
)
_OWN: Final = ("approval", "session", "span", "requested", "expires", "shown")
"""What two requests for the very same call do not share."""


@attrs.frozen(eq=False)
class Parked:
    """A call that waits: who asked for what (*given*: the arguments as they came) because of what, and the *request*.

    *span* is that of ``approval.requested`` in the session; *waiting* is there where somebody waits for the answer.
    *shared* says that somebody else filed the request, who alone may withdraw it.
    """

    verdict: Verdict
    bound: BoundAbility
    caller: Caller
    given: bytes
    cause: str
    span: str
    request: Object
    waiting: Waiting | None = None
    shared: bool = False

    def close(self) -> None:
        """Let go of the queue."""
        if self.waiting is not None:
            self.waiting.close()

    def heard(self) -> Pending | None:
        """Return the request if it was answered, or withdrawn; costs one `fstat` where nothing happened."""
        if self.waiting is None:
            return None
        self.waiting.refresh()
        found = self.waiting.get(self.request["approval"])
        return found if found and (found.answer or found.withdrawn) else None


class Grant(NamedTuple):
    """An approval that was checked: of which request, and *taken*, what the session's ledger says of it."""

    pending: Pending
    waiting: Waiting
    approved: ApprovedCall
    taken: Object


class Standing(NamedTuple):
    """A *request* in the queue for exactly the call that is asked for: waiting, or approved (the *grant*)."""

    request: Object
    grant: Grant | None = None


class _First(Exception):  # noqa: N818 - it carries what was found
    """Somebody else filed a request for the same call meanwhile."""

    def __init__(self, request: Object) -> None:
        super().__init__()
        self.request = request


class PendingCalls:
    """Where the calls of one charter are parked: in the workspace's *own* ledger.

    The caller of such a call waits for the answer for *patience* seconds.
    """

    def __init__(self, own: WorkspaceLedger, charter: Charter, patience: float = 0.0) -> None:
        self.patience = patience
        self._own = own
        self._charter = charter
        self._seconds = charter.document.get("approvals", {}).get("expires_s", EXPIRES_S)

    @property
    def own(self) -> WorkspaceLedger:
        """The workspace's own ledger."""
        return self._own

    # --- asking -------------------------------------------------------------------------------------------------------

    def request(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, given: bytes, when: tuple[str, str, str]
    ) -> Object:
        """Return what is asked, complete; *when* is the session, the span and the time.

        The values of secrets are taken out before it is hashed: what a person is shown is what the ledger holds.
        """
        session, span, now = when
        expires = datetime.fromisoformat(now).timestamp() + self._seconds
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
        if given != verdict.raw:
            asked["given"] = canonical.decode(given)
        raw = self._own.scrubbed(canonical.encode_payload(asked))
        shown: dict[str, Any] = canonical.decode(raw)
        return {**shown, "shown": shown_digest(shown)}

    def queue(self, now: str) -> Waiting:
        """Return the queue with every request that may stand at the time *now*; raises `LedgerError`."""
        since = timestamp(datetime.fromisoformat(now).timestamp() - self._seconds)
        return Waiting.since(_folder(self._own), since)

    def standing(self, request: Object, waiting: Waiting, now: str) -> Standing | None:
        """Return the request in the queue *waiting* that asks for just what *request* does and stands, if one does.

        One that is approved comes before one that waits; what cannot be taken over does not stand.
        """
        for pending, _ in _alike(request, waiting, now, "approved"):
            with suppress(ApprovalError):
                grant = self.take(pending, waiting, now)
                return Standing(waiting.request(pending), grant)
        return next((Standing(found) for _, found in _alike(request, waiting, now, "waiting")), None)

    def file(self, request: Object, waiting: Waiting, now: str) -> Standing | None:
        """Put *request* into the queue, durably, unless the same is asked for there already; then return that.

        Raises `LedgerError`.
        """

        def check() -> None:
            waiting.refresh()
            for _, found in _alike(request, waiting, now, "waiting"):
                raise _First(found)

        entry = self._entry("approval.requested", "policy", request["principal"]["id"], self._own.root, request)
        try:
            self._own.append([entry], durable=True, check=check)
        except _First as first:
            return Standing(first.request)
        return None

    def withdraw(self, request: Object, reason: str) -> None:
        """Take *request* back: nobody waits for the answer any more. Raises `LedgerError`."""
        payload = {"approval": request["approval"], "reason": reason}
        self._own.append(
            [self._entry("approval.withdrawn", "runtime", request["principal"]["id"], self._own.root, payload)],
            durable=True,
        )

    # --- taking over --------------------------------------------------------------------------------------------------

    def take(self, pending: Pending, waiting: Waiting, now: str) -> Grant:
        """Return the approval that *pending* was given, checked; raises `ApprovalError` where there is none."""
        request = waiting.request(pending)
        if pending.state(now) == "denied":
            self._refused(pending, waiting, request)
        if pending.state(now) in OPEN and request["charter"] != self._charter.digest:
            raise ApprovalError(charter_changed(pending.id))
        refuse_state(pending, now, wanted="approved")
        refuse_performed(Path(self._own.place).parents[1], pending.id)
        taken = self._taken(pending, waiting, request)
        return Grant(pending, waiting, ApprovedCall.of(request), taken)

    def use(self, grant: Grant, session: str, now: str) -> None:
        """Mark *grant* as used by *session*, durably; of all who try one succeeds, the others get `ApprovalError`."""

        def check() -> None:
            grant.waiting.refresh()
            refuse_state(grant.pending, now, wanted="approved")

        pending = grant.pending
        assert pending.answer
        who = pending.asked.payload["principal"]["id"]
        payload = {"approval": pending.id, "session": session}
        entry = self._entry("approval.used", "runtime", who, pending.answer.span, payload)
        self._own.append([entry], durable=True, check=check)

    def taken(self, pending: Pending, waiting: Waiting) -> Object:
        """Return what a session's ledger says of the answer, if it is one; raises `ApprovalError`."""
        return self._taken(pending, waiting, waiting.request(pending))

    def _refused(self, pending: Pending, waiting: Waiting, request: Object) -> NoReturn:
        taken = self._taken(pending, waiting, request)
        raise ApprovalError(fault("APPROVAL_REFUSED", f"{taken['approver']} refused it{_said(taken['signed'])}"))

    def _taken(self, pending: Pending, waiting: Waiting, request: Object) -> dict[str, Any]:
        assert pending.answer
        answer = waiting.opened(pending.answer)
        refuse_approver(self._charter.document["principals"], request, answer["approver"])
        key = approvers(self._charter.document["principals"])[answer["approver"]]
        for why in answer_faults(request, answer, key, self._own.session_id):
            raise ApprovalError(fault("APPROVAL_FORGED", f"the answer to request {pending.id} does not count: {why}"))
        return {
            "approval": pending.id,
            "approver": answer["approver"],
            "key": key,
            "ledger": self._own.session_id,
            "seq": pending.answer.seq,
            "hash": waiting.hash_of(pending.answer),
            "signed": answer["signed"],
        }

    def _entry(self, event_type: str, actor: str, who: str, cause: str, payload: Object) -> Entry:
        return Entry(label(event_type, actor, who), self._own.span(), cause, canonical.encode_payload(dict(payload)))


def _alike(request: Object, waiting: Waiting, now: str, state: State) -> Iterator[tuple[Pending, Object]]:
    """Yield the requests of the queue that stand as *state* and ask for exactly what *request* does.

    The same call, charter, asking gate and reason, for the same principal in the same place of a run.
    """
    wanted = {name: value for name, value in request.items() if name not in _OWN}
    for pending in waiting:
        said = pending.asked.payload
        if said.get("call") == request["call"] and pending.state(now) == state:
            with suppress(DeedbookError):  # one that cannot be read does not stand
                found = waiting.request(pending)
                if {name: value for name, value in found.items() if name not in _OWN} == wanted:
                    yield pending, found


def refuse_approver(principals: Mapping[str, Any], request: Object, approver: str) -> None:
    """Raise `ApprovalError` unless *approver* may answer *request*, under the charter that declares *principals*.

    Who acts on somebody's behalf may be approved by that somebody; nobody approves what they ask themselves.
    """
    known = approvers(principals)
    if not known:
        raise ApprovalError(fault("APPROVAL_NO_APPROVER", NO_APPROVER))
    if approver not in known:
        who = ", ".join(sorted(known))
        why = f"{approver!r} is no principal with the role approver and a key. Who may answer: {who}"
        raise ApprovalError(fault("APPROVAL_NO_APPROVER", why))
    if approver == request["principal"]["id"]:
        why = f"{approver!r} asked for this call, and nobody answers a request of their own; another approver has to"
        raise ApprovalError(fault("APPROVAL_OWN_REQUEST", why))


def refuse_performed(state: Path, identity: str) -> None:
    """Raise `ApprovalError` if a session of the *state* folder began the call of the request *identity*.

    That is so where the workspace's ledger lost the mark that says it. A session that names the request and cannot be
    read may have been the one.
    """
    for place in sorted((state / "sessions").glob(f"*/{LEDGER_FILE}")):
        if performed(place, identity):
            why = f"session {place.parent.name} began the call of request {identity}, and the workspace ledger does not"
            raise ApprovalError(fault("APPROVAL_USED", f"{why} say so; run: deedbook verify"))


def performed(place: Path, identity: str) -> bool:
    """Say whether the session's ledger at *place* has a call under an approval of the request *identity*."""
    name = identity.encode()
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        if not any(name in line for line in file):
            return False
    try:
        return _began(place, identity)
    except LedgerError:
        return True


def _began(place: Path, identity: str) -> bool:
    grants: set[str] = set()
    with Folder.at(place.parent) as folder, closing(Follower(folder.open(place.name), place=str(place))) as follow:
        for line in follow():
            event = line.event
            if event.type == "approval.granted" and event.payload.get("approval") == identity:
                grants.add(event.span)
            elif event.type in OUTCOMES and event.parent in grants:
                return True
    return False


def charter_changed(identity: str) -> Any:
    """Return the error that the charter of the request *identity* is not in force any more."""
    why = f"another charter is in force than when request {identity} was made; make the call again"
    return fault("APPROVAL_CHARTER_CHANGED", why)


def principal_of(said: Object) -> Principal:
    """Return the principal that `approvals.requests.principal_json` describes."""
    return Principal(said["id"], said["via"], frozenset(said["roles"]), said["on_behalf_of"])


def caller_of(request: Object) -> Caller:
    """Return who asked for *request*, with the scope that they had."""
    scope = request["scope"]
    names, models = (None if part is None else frozenset(part) for part in (scope["names"], scope["models"]))
    return Caller(
        principal=principal_of(request["principal"]),
        actor=request["actor"],
        scope=Scope(scope["why"], names, models),
        role=request["role"],
        skill=request["skill"],
    )


def _scope(scope: Scope) -> dict[str, Any]:
    names, models = (None if part is None else sorted(part) for part in (scope.names, scope.models))
    return {"why": scope.why, "names": names, "models": models}


def _said(signed: str) -> str:
    note = read_statement(signed).get("note")
    return f": {note}" if note else ""


def _folder(own: WorkspaceLedger) -> Folder:
    return Folder.at(Path(own.place).parent)
