"""What a verifier checks about approvals: who answered signed what was asked, and nothing else was called under it.

It is independent of who wrote the ledger: it takes the recorded events apart and checks the signatures itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from deedbook.contract import Object
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError
from deedbook.policy.requests import BOUND, answer_faults, read_statement, shown_digest

Approvers: TypeAlias = Callable[[str], Mapping[str, str] | None]
"""Returns the verifier keys that a charter, by its digest, declares for approvers; ``None`` where it is not known."""

ANSWERS: Final[Mapping[str, str]] = {"approval.granted": "approve", "approval.refused": "deny"}
"""Events that take an answer over into a session's ledger, and what was answered."""
_NAMED: Final = {
    "tool.call": ("tool_name", "args"),
    "flow.call": ("flow", "args"),
    "llm.request": ("ability", "request"),
    "memory.call": ("ability", "args"),
}
_MARK: Final = "$sealed"


class Consents:
    """The approvals of one ledger: `check` every event in order, and be told what is wrong with it."""

    def __init__(self, approvers: Approvers | None = None) -> None:
        self._approvers = approvers
        self._requests: dict[bytes, Object] = {}
        self._granted: dict[bytes, Object] = {}
        self._called_under: set[bytes] = set()
        self._answers: dict[bytes, Object] = {}
        self._answered_once: set[bytes] = set()
        self._used_once: set[bytes] = set()
        self._lost: set[bytes] = set()
        self._unknown = self._sealed = 0

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield what is wrong with the next event, as far as it is about an approval."""
        above = parent or b""
        if kind == "approval.requested":
            yield from self._asked(span, payload)
        elif above in self._lost and (kind in ANSWERS or kind == "approval.answered"):
            if kind == "approval.answered":
                yield from self._once(span, above, payload)
            yield from self._answered_lost(kind, span, payload)
        elif kind in ANSWERS or kind == "approval.answered":
            if kind == "approval.answered":
                yield from self._once(span, above, payload)
            yield from self._answered(kind, span, self._requests.get(above), payload)
        elif kind == "approval.used":
            yield from self._used(above, payload)
        elif kind in _NAMED and above in self._granted:
            if above in self._called_under:
                yield "a second call under one approval"
            self._called_under.add(above)
            yield from self._called(kind, self._granted[above], payload)
        elif kind in _NAMED and above in self._requests:
            yield "a call under a request that nobody has granted"

    def gone(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Take in the next event where its payload was taken out; a call under an approval still is one."""
        above = parent or b""
        if kind == "approval.requested":
            self._lost.add(span)
        elif kind in _NAMED and above in self._granted:
            if above in self._called_under:
                yield "a second call under one approval"
            self._called_under.add(above)
        elif kind in _NAMED and (above in self._requests or above in self._lost):
            yield "a call under a request that nobody has granted"

    def notes(self) -> Iterator[str]:
        """Yield what could not be checked."""
        if self._unknown:
            yield f"approvals whose charter is not at hand: {self._unknown}; whether the key was declared is not known"
        if self._sealed:
            yield f"approvals with sealed parts: {self._sealed}; their signatures were not compared"

    def _asked(self, span: bytes, payload: Any) -> Iterator[str]:
        self._requests[span] = payload
        if _is_sealed(payload):
            self._sealed += 1
        elif shown_digest(payload) != payload["shown"]:
            yield "what was asked is not what its hash shown commits to"

    def _once(self, span: bytes, above: bytes, payload: Any) -> Iterator[str]:
        """Hold an answer against the rule that a request has one: whoever comes second is refused under the lock."""
        if above in self._answered_once:
            yield "a second answer to one request"
        self._answered_once.add(above)
        self._answers[span] = payload

    def _used(self, above: bytes, payload: Any) -> Iterator[str]:
        """Hold a use against the rule that an answer is used once, and only where it approves."""
        answer = self._answers.get(above)
        if answer is None:
            yield "approval.used under no approval.answered"
            return
        if above in self._used_once:
            yield "one approval used twice"
        self._used_once.add(above)
        if _is_sealed([payload, answer]):
            return
        if answer["approval"] != payload["approval"]:
            yield "approval.used under the answer to another request"
        if answer["answer"] != "approve":
            yield "an answer was used that does not approve"

    def _answered(self, kind: str, span: bytes, request: Object | None, payload: Any) -> Iterator[str]:
        if request is None or request["approval"] != payload["approval"]:
            yield f"{kind} under no approval.requested of the same id"
            return
        if kind == "approval.granted":
            self._granted[span] = request
        if _is_sealed(payload) or _is_sealed(request):
            return
        word = ANSWERS.get(kind) or payload["answer"]
        known = self._approvers(request["charter"]) if self._approvers else None
        key = payload.get("key") if known is None else known.get(payload["approver"])
        if known is None:
            self._unknown += 1
        elif "key" in payload and key != payload["key"]:
            yield f"the key of {payload['approver']!r} is not the one that the charter declares"
        if key is None and known is None:
            return  # an answer in the workspace ledger, whose key only the charter has
        ledger = payload.get("ledger") or _ledger_of(payload)
        answer = {"answer": word, "approver": payload["approver"], "signed": payload["signed"]}
        yield from (f"the answer does not count: {why}" for why in answer_faults(request, answer, key, ledger))
        if payload["approver"] == request["principal"]["id"]:
            yield "who asked has answered"

    def _answered_lost(self, kind: str, span: bytes, payload: Any) -> Iterator[str]:
        """Check an answer to a request that was taken out: what its statement says of that is all there is."""
        try:
            said = {} if _is_sealed(payload) else read_statement(payload["signed"])
        except DeedbookError as problem:
            yield f"the answer does not count: {problem}"
            said = {}
        request = {**dict.fromkeys(BOUND, ""), "approval": payload["approval"], "principal": {"id": ""}}
        if said:
            yield from self._answered(kind, span, request | {name: said.get(name, "") for name in BOUND}, payload)
        elif kind == "approval.granted":
            self._granted[span] = request

    def _called(self, kind: str, request: Object, payload: Any) -> Iterator[str]:
        if "args" not in request:
            return  # it was taken out; that the signed hash is of this call is looked at where decisions are
        name, args = (payload[member] for member in _NAMED[kind])
        if not _is_sealed([payload, request]) and (name, encode(args)) != (request["name"], encode(request["args"])):
            yield "the call is not the one that was approved"


def _is_sealed(value: Any) -> bool:
    """Say whether a payload has anything sealed in it."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if _MARK in item:
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def _ledger_of(payload: Object) -> str:
    """Return the ledger that an answer names itself; in the workspace ledger the statement stands alone."""
    try:
        return str(read_statement(payload["signed"]).get("ledger"))
    except DeedbookError:
        return ""
