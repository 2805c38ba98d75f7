"""What an approval binds: the request that is shown, the statement that is signed, and whether one answers the other.

A request is a document; *shown* is the SHA-256 of its canonical bytes, which hold everything that ``approvals show``
displays. The approver signs a statement that names the call, the charter and *shown*, as a C2SP signed note. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.contract import Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, SignatureError, fault

if TYPE_CHECKING:
    from deedbook.format.notes import SigningKey

ROLE: Final = "approver"
"""The role that a principal has who may answer requests."""
ANSWERS: Final = ("approve", "deny")

_HEADING: Final = "deedbook approval v1\n"
BOUND: Final = ("approval", "call", "charter", "shown", "expires")
"""What a statement repeats of its request."""


class Approved(NamedTuple):
    """What was approved: the *call*'s digest, under which *charter*, and who had asked for a person (*by*) and why.

    Together with the request's own id and times these fix what was shown: whoever asks for a person in other words
    asks for another approval.
    """

    call: str
    charter: str
    reason: str
    by: Object | None

    @classmethod
    def of(cls, request: Object) -> "Approved":
        """Return what the approval of *request* (a payload of ``approval.requested``) approves."""
        return cls(request["call"], request["charter"], request["reason"], request.get("by"))


def call_digest(ability: str, raw: bytes, principal: str) -> str:
    """Return the digest of a call, as `contracts.Call.digest` has it; *raw* are the arguments' canonical bytes."""
    return canonical.digest(
        b'{"ability":"%b","args":%b,"principal":"%b"}' % (ability.encode(), raw, principal.encode())
    )


def shown_of(request: Object) -> str:
    """Return the SHA-256 of the canonical document that is shown: all of *request* but that hash itself."""
    return canonical.digest(
        canonical.encode_payload({name: value for name, value in request.items() if name != "shown"})
    )


def principal_json(principal: Principal) -> dict[str, Any]:
    """Return a principal as records have it."""
    return {
        "id": principal.id,
        "via": principal.via,
        "roles": sorted(principal.roles),
        "on_behalf_of": principal.on_behalf_of,
    }


# --- answering --------------------------------------------------------------------------------------------------------


def answered(request: Object, key: "SigningKey", said: Object) -> dict[str, Any]:
    """Return the payload of ``approval.answered``: the statement, signed, and what it comes to.

    *said* holds ``answer`` (of `ANSWERS`), ``approver``, the id of the workspace ``ledger``, the time (``at``), a
    ``nonce`` that makes each answer another, and a ``note`` of the approver's own.
    """
    from deedbook.format.notes import sign

    statement = {**{name: request[name] for name in BOUND}, **said}
    signed = sign(f"{_HEADING}{canonical.encode(statement).decode()}\n", [key])
    who = {name: said[name] for name in ("answer", "approver")}
    return {"approval": request["approval"], **who, "signed": str(signed)}


def faults(request: Object, answer: Object, key: str | None, ledger: str) -> Iterator[str]:
    """Yield why *answer* (a payload of ``approval.answered``) is none to *request*; nothing where it is one.

    *key* is the verifier key that is declared for the approver, if there is one, *ledger* the workspace ledger's id.
    """
    from deedbook.format.notes import Note, VerifierKey

    try:
        statement = read_statement(answer["signed"])
        signed = key is not None and Note.parse(answer["signed"]).signed_by(VerifierKey.parse(key))
    except SignatureError as problem:
        yield str(problem)
        return
    if not signed:
        yield f"it is not signed with the declared key of {answer['approver']!r}"
    wanted = {name: request[name] for name in BOUND}
    wanted |= {"answer": answer["answer"], "approver": answer["approver"], "ledger": ledger}
    yield from (
        f"its {name} is another: it was made for another request"
        for name in wanted
        if statement.get(name) != wanted[name]
    )


def read_statement(signed: str) -> dict[str, Any]:
    """Return the statement in a signed note, without checking any signature; raises `SignatureError`."""
    from deedbook.format.notes import Note

    text = Note.parse(signed).text
    try:
        statement = canonical.parse(text.removeprefix(_HEADING)) if text.startswith(_HEADING) else None
        exact = statement is not None and text == f"{_HEADING}{canonical.encode(statement).decode()}\n"
    except IntakeError:
        exact = False
    if not exact or not isinstance(statement, dict):
        raise SignatureError(
            fault("NOTE_INVALID", "it is no statement about an approval, in the one form that they have")
        )
    return statement


def approvers(principals: Mapping[str, Any]) -> dict[str, str]:
    """Return the verifier key of every principal of a charter who may answer, by id."""
    return {name: entry["key"] for name, entry in principals.items() if ROLE in entry["roles"] and entry["key"]}
