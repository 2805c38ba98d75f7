"""What a proposal rests on, looked at in the ledgers: the event that its provenance names is there, and says so.

A session's ledger is read as it lies there, every line checked and every head that the workspace ledger recorded held
against it: what nobody recorded, or somebody rewrote, proves nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import decode
from deedbook.format.entries import same
from deedbook.format.errors import DeedbookError
from deedbook.format.events import SESSION_ID, Line, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.format.sealed import opened
from deedbook.policy.conditions import ABSENT, glob_test, lookup
from deedbook.policy.requests import answer_faults, approvers, call_digest

_HEAD: Final = b'"event_type":"ledger.session"'
_AGENT: Final = "agent:"
_TOLD: Final = ["tool", "elsewhere"]


class Unproven(Exception):  # noqa: N818 - it says what the proposal is
    """What a proposal rests on is not so; the message says why."""


class Source(NamedTuple):
    """The event that a proposal rests on, and where it stands."""

    session: str
    line: Line

    def as_json(self) -> dict[str, Any]:
        """Return it as ``memory.checked`` has it."""
        line = self.line
        stands = {"seq": line.seq, "span": line.span_id, "hash": line.envelope_hash, "type": line.event_type}
        return {"session": self.session, **stands}


@attrs.frozen(kw_only=True)
class Claim:
    """Who proposes what in which call: what a claim is held against.

    *raw* are the arguments' canonical bytes, *call* the span of the intent, *actor* the class of who asks.
    """

    session: str
    call: str
    ability: str
    raw: bytes
    principal: str
    actor: str
    persona: str | None
    value: Any


class Grounds:
    """Looks at claims: in the *state* folder, under the charter *document*."""

    def __init__(self, state: Path, document: Object, verified_by: Sequence[str]) -> None:
        self._state = state
        self._principals: Mapping[str, Any] = document["principals"]
        self._abilities: Mapping[str, Any] = document["abilities"]
        self._fits = glob_test(list(verified_by))

    def check(self, said: Object, claim: Claim) -> Source:
        """Return the event that the provenance *said* names; raises `Unproven`."""
        try:
            how = {
                "user_declared": self._declared,
                "tool_verified": self._verified,
                "human_approved": self._approved,
            }
            source = how[said["kind"]](said, claim)
        except (DeedbookError, OSError, LookupError, TypeError, ValueError) as problem:
            raise Unproven(f"its grounds cannot be read: {problem}") from None
        return source

    def _declared(self, said: Object, claim: Claim) -> Source:
        """Find a person's own message, named by who is that person and acts without anybody between."""
        if claim.actor != "user" or claim.principal.startswith(_AGENT):
            raise Unproven(f"only a person declares; this was asked by {claim.actor} {claim.principal}")
        session = _named(said, "session")
        line = self._find(session, claim, "span", _named(said, "span"))
        if said.get("hash", line.envelope_hash) != line.envelope_hash:
            raise Unproven("the event that it names has another hash")
        if line.event_type != "user.message":
            raise Unproven(f"the event that it names is {line.event_type}, and no message of a person")
        if line.principal != claim.principal:
            raise Unproven(f"the message that it names is of {line.principal}, not of {claim.principal}")
        return Source(session, line)

    def _verified(self, said: Object, claim: Claim) -> Source:
        """Find a tool's result that holds the value at the pointer, of a tool whose results count as proof."""
        session, pointer = _named(said, "session"), said.get("pointer", "")
        line = self._find(session, claim, "seq", said["seq"])
        if line.envelope_hash != _named(said, "hash"):
            raise Unproven("the event that it names has another hash")
        if line.event_type != "tool.result":
            raise Unproven(f"the event that it names is {line.event_type}, and no result of a tool")
        payload = self._opened(session, line)
        tool = payload["tool_name"]
        declared = self._abilities.get(tool)
        if declared is None or not self._fits(tool):
            raise Unproven(f"results of {tool} prove nothing here; memory.verified_by names the tools whose do")
        if declared["plugin"] == _TOLD:
            raise Unproven(f"{tool} is the agent's own tool: what it gave is what the agent says")
        found = lookup(f"/result{pointer}")(payload)
        if found is ABSENT or not same(found, claim.value):
            raise Unproven(f"the result that it names does not hold the value at {pointer or 'its root'!r}")
        return Source(session, line)

    def _approved(self, _: Object, claim: Claim) -> Source:
        """Find the approval of exactly this call, under which it is performed."""
        asked_or_called = ("memory.call", "approval.requested", "approval.granted")
        found = self._lines(claim.session, claim.persona, lambda line: line.event_type in asked_or_called)
        lines = {line.span_id: line for line in found}
        granted = lines.get(lines[claim.call].parent_span_id or "")
        request = lines.get((granted.parent_span_id if granted else None) or "")
        if granted is None or request is None or granted.event_type != "approval.granted":
            raise Unproven("nobody approved this proposal; let a policy answer ask, so that a person decides")
        asked, answer = self._opened(claim.session, request), self._opened(claim.session, granted)
        if asked["call"] != call_digest(claim.ability, claim.raw, claim.principal):
            raise Unproven("what was approved is another proposal")
        key = approvers(self._principals).get(answer["approver"])
        word = {"answer": "approve", "approver": answer["approver"], "signed": answer["signed"]}
        for why in answer_faults(asked, word, key, answer["ledger"]):
            raise Unproven(f"the approval does not count: {why}")
        return Source(claim.session, granted)

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def _find(self, session: str, claim: Claim, by: str, wanted: object) -> Line:
        found = self._lines(session, claim.persona, lambda line: (line.span_id if by == "span" else line.seq) == wanted)
        if found:
            return found[0]
        raise Unproven(f"session {session} has no event with {by} {str(wanted)[:40]}")

    def _lines(self, session: str, persona: str | None, wanted: Callable[[Line], bool]) -> list[Line]:
        """Return the *wanted* lines of a session of the same persona, once all are checked, and every recorded head."""
        if not SESSION_ID.fullmatch(session):
            raise Unproven("it names no session")
        heads = dict(_heads(self._state, session))
        if not heads:
            raise Unproven(f"the workspace ledger knows no session {session}")
        try:
            folder = Folder.at(self._state / "sessions" / session)
        except FileNotFoundError:
            raise Unproven(f"session {session} has no ledger") from None
        with (
            folder,
            closing(Follower(folder.open(LEDGER_FILE), place=f"{folder.path}/{LEDGER_FILE}", gaps=True)) as follow,
        ):
            return _checked(follow(), session, heads, persona, wanted)

    def _opened(self, session: str, line: Line) -> dict[str, Any]:
        try:
            with Folder.at(self._state / "sessions" / session) as folder:
                found: dict[str, Any] = opened(folder, decode(line.payload))
        except FileNotFoundError:
            raise Unproven("a value that it rests on was erased") from None
        return found


def _checked(
    lines: Iterable[Line], session: str, heads: dict[int, str], persona: str | None, wanted: Callable[[Line], bool]
) -> list[Line]:
    """Read a session's lines to the end and return those that are *wanted*; raises `Unproven`."""
    kept, bound = [], None
    for number, line in enumerate(lines):
        if line.session_id != session or line.seq != number:
            raise Unproven(f"the ledger of session {session} holds another session")
        if heads.pop(number + 1, line.envelope_hash) != line.envelope_hash:
            heads[0] = ""
        if line.event_type == "persona.bound" and bound is None:
            bound = decode(line.payload)["persona"]
        if wanted(line):
            kept.append(line)
    if heads:
        raise Unproven(f"the ledger of session {session} is not what the workspace ledger recorded of it")
    if bound != persona:
        raise Unproven(f"session {session} is of another persona")
    return kept


def _heads(state: Path, session: str) -> Iterator[tuple[int, str]]:
    """Yield what the workspace ledger recorded of a session: how many events it had, and the hash of the last."""
    name = session.encode()
    with Folder.at(state / "workspace") as folder, folder.open(LEDGER_FILE) as file:
        for raw in file:
            if _HEAD in raw and name in raw and raw.endswith(b"}\n"):
                said = decode(split_line(raw).payload)
                if said["session_id"] == session:
                    yield said["events"], said["head"]


def _named(said: Object, member: str) -> str:
    found = said.get(member)
    if not isinstance(found, str):
        raise Unproven(f"its provenance has no {member}")
    return found
