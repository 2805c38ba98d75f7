"""What an approval binds: the displayed request, the signed statement, and the check that they belong together.

A request is a document; *shown* is the SHA-256 of its canonical bytes, which contain everything that ``approvals show``
displays. The approver signs a statement with the call, the charter and *shown*, as a C2SP signed note. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.contract import Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, SignatureError, fault

if TYPE_CHECKING:
    from deedbook.format.notes import SigningKey

ROLE: Final = "approver"
"""The role of a principal who may answer requests."""
ANSWERS: Final = ("approve", "deny")

_HEADING: Final = "deedbook approval v1\n"
_RESULT_HEADING: Final = "deedbook result v1\n"
BOUND: Final = ("approval", "call", "charter", "shown", "expires")
"""The members of a request that a statement repeats."""


class ApprovedCall(NamedTuple):
    """An approved call: its digest (*call*), the *charter*, and the gate that asked (*by*) with its *reason*.

    Together with the request's own id and times these determine what was shown: a request with another reason is
    another approval.
    """

    call: str
    charter: str
    reason: str
    by: Object | None

    @classmethod
    def of(cls, request: Object) -> "ApprovedCall":
        """Return what the approval of *request* (a payload of ``approval.requested``) approves."""
        return cls(request["call"], request["charter"], request["reason"], request.get("by"))


def call_digest(ability: str, raw: bytes, principal: str) -> str:
    """Return the digest of a call, equal to `contracts.Call.digest`; *raw* are the arguments' canonical bytes."""
    return canonical.digest(
        b'{"ability":"%b","args":%b,"principal":"%b"}' % (ability.encode(), raw, principal.encode())
    )


def shown_digest(request: Object) -> str:
    """Return the SHA-256 of the canonical document that is shown: all of *request* except that hash."""
    return canonical.digest(
        canonical.encode_payload({name: value for name, value in request.items() if name != "shown"})
    )


def principal_json(principal: Principal) -> dict[str, Any]:
    """Return a principal in the form of records."""
    return {
        "id": principal.id,
        "via": principal.via,
        "roles": sorted(principal.roles),
        "on_behalf_of": principal.on_behalf_of,
    }


# --- answering --------------------------------------------------------------------------------------------------------


def sign_answer(request: Object, key: "SigningKey", binding: Object) -> dict[str, Any]:
    """Return the payload of ``approval.answered``: the statement, signed, and what it comes to.

    *binding* holds ``answer`` (of `ANSWERS`), ``approver``, the id of the workspace ``ledger``, the time (``at``), a
    ``nonce`` that makes each answer unique, and the approver's ``note``.
    """
    from deedbook.format.notes import sign

    statement = {**{name: request[name] for name in BOUND}, **binding}
    signed = sign(f"{_HEADING}{canonical.encode(statement).decode()}\n", [key])
    who = {name: binding[name] for name in ("answer", "approver")}
    return {"approval": request["approval"], **who, "signed": str(signed)}


def answer_faults(request: Object, answer: Object, key: str | None, ledger: str) -> Iterator[str]:
    """Yield why *answer* (a payload of ``approval.answered``) is not valid for *request*; nothing if it is.

    *key* is the declared verifier key of the approver, if there is one, *ledger* the workspace ledger's id.
    """
    wanted = {name: request[name] for name in BOUND}
    wanted |= {"answer": answer["answer"], "approver": answer["approver"], "ledger": ledger}
    return _statement_faults(answer, key, _HEADING, wanted, "another: it was made for another request")


def _statement_faults(
    signed: Object, key: str | None, heading: str, wanted: Mapping[str, Any], other: str
) -> Iterator[str]:
    from deedbook.format.notes import Note, VerifierKey

    try:
        statement = read_statement(signed["signed"], heading)
        valid = key is not None and Note.parse(signed["signed"]).is_signed_by(VerifierKey.parse(key))
    except SignatureError as problem:
        yield str(problem)
        return
    if not valid:
        yield f"it is not signed with the declared key of {signed['approver']!r}"
    yield from (f"its {name} is {other}" for name in wanted if statement.get(name) != wanted[name])


def read_statement(signed: str, heading: str = _HEADING) -> dict[str, Any]:
    """Return the statement in a signed note, without checking any signature; raises `SignatureError`."""
    from deedbook.format.notes import Note

    text = Note.parse(signed).text
    try:
        statement = canonical.parse(text.removeprefix(heading)) if text.startswith(heading) else None
        exact = statement is not None and text == f"{heading}{canonical.encode(statement).decode()}\n"
    except IntakeError:
        exact = False
    if not exact or not isinstance(statement, dict):
        raise SignatureError(fault("NOTE_INVALID", "it is not an approval statement in canonical form"))
    return statement


# --- a person's own result --------------------------------------------------------------------------------------------


def sign_result(settled: Object, key: "SigningKey", binding: Object) -> str:
    """Return the signed statement of ``call.settled``, whose other members are *settled*.

    *binding* holds the ``session``, the span that is settled (``settles``), the id of the workspace ``ledger``, the
    time (``at``), and a ``nonce``.
    """
    from deedbook.format.notes import sign

    statement = {**_result_statement(settled), **binding}
    return str(sign(f"{_RESULT_HEADING}{canonical.encode(statement).decode()}\n", [key]))


def result_faults(settled: Object, key: str | None, settles: str, session: str | None = None) -> Iterator[str]:
    """Yield why *settled* (a payload of ``call.settled`` under the span *settles*) does not count; nothing if it does.

    *key* is the declared verifier key of the approver, if there is one; *session* is the session of the call.
    """
    wanted = {**_result_statement(settled), "settles": settles}
    wanted |= {} if session is None else {"session": session}
    return _statement_faults(settled, key, _RESULT_HEADING, wanted, "another than was signed")


def _result_statement(settled: Object) -> dict[str, Any]:
    """Return the members of a statement that follow from the event; it has the hash of the result."""
    names = ("ability", "approver", "charter")
    result = canonical.digest(canonical.encode_payload({"result": settled["result"]}))
    return {**{name: settled[name] for name in names}, "result": result}


def approvers(principals: Mapping[str, Any]) -> dict[str, str]:
    """Return the verifier key of every principal of a charter who may answer requests, by id."""
    return {name: entry["key"] for name, entry in principals.items() if ROLE in entry["roles"] and entry["key"]}
