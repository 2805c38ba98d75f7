"""The rules for approvals in one ledger: an answer is signed for the request, and its call is the approved one.

The check is independent of the writer: it parses the recorded events and verifies the signatures itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from deedbook.contract import Object
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError
from deedbook.policy.requests import BOUND, answer_faults, read_statement, result_faults, shown_digest

Approvers: TypeAlias = Callable[[str], Mapping[str, str] | None]
"""Returns the verifier keys that a charter, by its digest, declares for approvers; ``None`` for an unknown charter."""

ANSWERS: Final[Mapping[str, str]] = {"approval.granted": "approve", "approval.refused": "deny"}
"""Events that copy an answer into a session's ledger, and the answer each stands for."""
SETTLED: Final = "call.settled"
"""The event with a result that a person gave."""
_CALL_MEMBERS: Final = {
    "tool.call": ("tool_name", "args"),
    "flow.call": ("flow", "args"),
    "llm.request": ("ability", "request"),
    "memory.call": ("ability", "args"),
}
_MARK: Final = "$sealed"


class ApprovalRules:
    """The approvals of one ledger: call `check` for every event in order; it yields the violations.

    *session* is the ledger's id, if it is known: a person's result is for a call of that session.
    """

    def __init__(self, approvers: Approvers | None = None, session: str | None = None) -> None:
        self._approvers, self._session = approvers, session
        self._called: set[str] = set()
        self._requests: dict[bytes, Object] = {}
        self._granted: dict[bytes, Object] = {}
        self._called_under: set[bytes] = set()
        self._answers: dict[bytes, Object] = {}
        self._answered_once: set[bytes] = set()
        self._used_once: set[bytes] = set()
        self._lost: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._unknown = self._sealed = 0

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield the violations of the next event, if it concerns an approval."""
        above = parent or b""
        if kind == "approval.requested":
            yield from self._check_request(span, payload)
        elif kind in ANSWERS or kind == "approval.answered":
            yield from self._check_any_answer(kind, span, above, payload)
        elif kind == "approval.used":
            yield from self._check_use(above, payload)
        elif kind == SETTLED:
            yield from self._check_settled(above, payload)
        elif kind in _CALL_MEMBERS and above in self._granted:
            identity = self._granted[above].get("approval")
            if above in self._called_under or identity in self._called:
                yield "a second call under one approval"
            self._called_under.add(above)
            if isinstance(identity, str):
                self._called.add(identity)
            yield from self._check_call(kind, self._granted[above], payload)
        elif kind in _CALL_MEMBERS and above in self._requests:
            yield "a call under a request that was not granted"

    def _check_any_answer(self, kind: str, span: bytes, above: bytes, payload: Any) -> Iterator[str]:
        if above in self._settled:
            yield f"{kind} under a request whose result a person has given"
        if kind == "approval.answered":
            yield from self._check_single_answer(span, above, payload)
        if above in self._lost:
            yield from self._check_answer_to_excised(kind, span, payload)
        else:
            yield from self._check_answer(kind, span, self._requests.get(above), payload)

    def check_excised(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Yield the violations of the next event, whose payload was excised; a call under an approval still counts."""
        above = parent or b""
        if kind == "approval.requested":
            self._lost.add(span)
        elif kind in _CALL_MEMBERS and above in self._granted:
            if above in self._called_under:
                yield "a second call under one approval"
            self._called_under.add(above)
        elif kind in _CALL_MEMBERS and (above in self._requests or above in self._lost):
            yield "a call under a request that was not granted"

    def notes(self) -> Iterator[str]:
        """Yield what could not be checked."""
        if self._unknown:
            yield f"approvals whose charter is not at hand: {self._unknown}; whether the key was declared is not known"
        if self._sealed:
            yield f"approvals with sealed parts: {self._sealed}; their signatures were not compared"

    def _check_request(self, span: bytes, payload: Any) -> Iterator[str]:
        self._requests[span] = payload
        if _is_sealed(payload):
            self._sealed += 1
        elif shown_digest(payload) != payload["shown"]:
            yield "what was asked is not what its hash shown commits to"

    def _check_single_answer(self, span: bytes, above: bytes, payload: Any) -> Iterator[str]:
        """Yield a second answer to one request, which the writer refuses under its lock."""
        if above in self._answered_once:
            yield "a second answer to one request"
        self._answered_once.add(above)
        self._answers[span] = payload

    def _check_use(self, above: bytes, payload: Any) -> Iterator[str]:
        """Yield a second use of an answer, or a use of an answer that does not approve."""
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

    def _check_settled(self, above: bytes, payload: Any) -> Iterator[str]:
        """Yield the faults of a result that a person gave for the request or the call *above*."""
        if above in self._settled:
            yield "a second result that a person gave for one call"
        self._settled.add(above)
        if _is_sealed(payload):
            self._sealed += 1
            return
        declared = self._approvers(payload["charter"]) if self._approvers else None
        key = payload["key"] if declared is None else declared.get(payload["approver"])
        if declared is None:
            self._unknown += 1
        elif key != payload["key"]:
            yield f"the key of {payload['approver']!r} is not the one that the charter declares"
        yield from (
            f"the result does not count: {why}" for why in result_faults(payload, key, above.decode(), self._session)
        )

    def _check_answer(self, kind: str, span: bytes, request: Object | None, payload: Any) -> Iterator[str]:
        if request is None or request["approval"] != payload["approval"]:
            yield f"{kind} under no approval.requested of the same id"
            return
        if kind == "approval.granted":
            self._granted[span] = request
        if _is_sealed(payload) or _is_sealed(request):
            return
        word = ANSWERS.get(kind) or payload["answer"]
        declared = self._approvers(request["charter"]) if self._approvers else None
        key = payload.get("key") if declared is None else declared.get(payload["approver"])
        if declared is None:
            self._unknown += 1
        elif "key" in payload and key != payload["key"]:
            yield f"the key of {payload['approver']!r} is not the one that the charter declares"
        if key is None and declared is None:
            return  # an answer in the workspace ledger: only the charter has its key
        ledger = payload.get("ledger") or _get_ledger(payload)
        answer = {"answer": word, "approver": payload["approver"], "signed": payload["signed"]}
        yield from (f"the answer does not count: {why}" for why in answer_faults(request, answer, key, ledger))
        if payload["approver"] == request["principal"]["id"]:
            yield "who asked has answered"

    def _check_answer_to_excised(self, kind: str, span: bytes, payload: Any) -> Iterator[str]:
        """Check an answer to an excised request: only the answer's signed statement describes the request."""
        try:
            statement = {} if _is_sealed(payload) else read_statement(payload["signed"])
        except DeedbookError as problem:
            yield f"the answer does not count: {problem}"
            statement = {}
        request = {**dict.fromkeys(BOUND, ""), "approval": payload["approval"], "principal": {"id": ""}}
        if statement:
            yield from self._check_answer(
                kind, span, request | {name: statement.get(name, "") for name in BOUND}, payload
            )
        elif kind == "approval.granted":
            self._granted[span] = request

    def _check_call(self, kind: str, request: Object, payload: Any) -> Iterator[str]:
        if "args" not in request:
            return  # the request was excised; the decision check compares the signed hash with this call
        name, args = (payload[member] for member in _CALL_MEMBERS[kind])
        if not _is_sealed([payload, request]) and (name, encode(args)) != (request["name"], encode(request["args"])):
            yield "the call is not the one that was approved"


def _is_sealed(value: Any) -> bool:
    """Return whether a payload holds a sealed value."""
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


def _get_ledger(payload: Object) -> str:
    """Return the ledger that an answer names; in the workspace ledger only its statement names it."""
    try:
        return str(read_statement(payload["signed"]).get("ledger"))
    except DeedbookError:
        return ""
