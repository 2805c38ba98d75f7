"""The rules for events that say what a person decided: each rests on a signed answer about the same subject.

`approval_rules` checks the signatures of answers. These rules find the answer behind ``swe.answered`` and behind a
denial because a person refused. They need the events of the same ledger only. The check is independent of the writer.
Sealed and excised values are not compared.
"""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format.families import OUTCOMES

ANSWERED: Final = "swe.answered"
_DENIED: Final = "tool.denied"
_REFUSED: Final = "APPROVAL_REFUSED"
ABOUT: Final = frozenset(
    {
        "approval.requested", "approval.granted", "approval.refused", "call.settled", "session.forked", "call.served",
        _DENIED, ANSWERED, *OUTCOMES,
    }
)  # fmt: skip
"""The event types that these rules check."""
_SUBJECT: Final[Object] = MappingProxyType({"task": "task_id", "phase": "phase", "issue": "issue"})
"""What a question and ``swe.answered`` have in common: the question's arguments, and the members of the event."""
_CONTENT: Final = frozenset({"reason", "seen"})
_OPTIONAL: Final = frozenset({"approves"})
"""The other arguments of a question, and those that may be left out."""
_MARK: Final = "$sealed"
_APPROVED: Final = "go-on"
"""What an approval decides if the question does not say."""
_STOP: Final = "stop"
"""What a refusal decides."""
_ANY: Final[Object] = MappingProxyType({})


@attrs.define(eq=False)
class _Question:
    """A call about which a person was asked: its *branch*, its *name*, and its arguments, as far as they are known.

    *answer* is the type of the event with the answer, and *decision* what it decides; a decision that cannot be read is
    ``None``. An answer is used by one event (*is_used*).
    """

    branch: bytes
    name: Any = None
    args: Any = None
    answer: str = ""
    decision: Any = None
    is_used: bool = False

    def is_about(self, said: Object) -> bool:
        """Return whether the question has the subject of a ``swe.answered``."""
        if not isinstance(self.args, dict) or _MARK in self.args:
            return True
        args = self.args
        known = args.keys() - _OPTIONAL == _SUBJECT.keys() | _CONTENT
        return known and all(_agree(args[own], said.get(other)) for own, other in _SUBJECT.items())

    def decides(self, decision: Any) -> bool:
        """Return whether the answer is *decision*, as far as both are known."""
        return _agree(self.decision, decision) if self.decision is not None else True


class PersonRules:
    """The answers of people in one session: call `check` for every event of `ABOUT` in order.

    Memory grows with the requests, and in a fork with its calls.
    """

    def __init__(self) -> None:
        self._questions: list[_Question] = []
        self._requests: dict[bytes, _Question] = {}
        self._grants: dict[bytes, _Question] = {}
        self._calls: dict[bytes, _Question] = {}
        self._refused: dict[bytes, list[_Question]] = {}
        self._forked = False

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any, intent: bytes | None) -> Iterator[str]:
        """Yield the violations of the next event; *payload* is no object if it was excised.

        *intent* is the span of the call whose outcome came last.
        """
        said: Object = payload if isinstance(payload, dict) else _ANY
        above = parent or b""
        if kind == "approval.requested":
            self._requests[span] = self._add(_Question(above, said.get("name"), said.get("args")))
        elif kind == "session.forked":
            self._forked = True
        elif kind == "call.served":
            self._serve(self._calls.get(intent or b""))
        elif kind == "call.settled":
            self._settle(self._requests.get(above) or self._calls.get(above), said)
        elif kind in OUTCOMES:
            self._call(kind, span, above, said)
        elif kind == ANSWERED:
            yield from self._check_answer(above, said)
        elif kind == _DENIED:
            yield from self._check_denial(above, said)
        elif (question := self._requests.get(above)) is not None:
            self._answer(kind, span, question)

    def _add(self, question: _Question) -> _Question:
        self._questions.append(question)
        return question

    def _answer(self, kind: str, span: bytes, question: _Question) -> None:
        if kind == "approval.granted":
            self._grants[span] = question
        else:
            question.answer, question.decision = kind, _STOP
            self._refused.setdefault(question.branch, []).append(question)

    def _call(self, kind: str, span: bytes, above: bytes, said: Object) -> None:
        """Keep a call under a grant, with which the answer counts; in a fork, keep every call that may be served."""
        question = self._grants.get(above)
        if question is not None:
            question.answer, question.decision = kind, _read(question.args, "approves", _APPROVED)
            self._calls[span] = question
        elif self._forked:
            branch = self._requests[above].branch if above in self._requests else above
            self._calls[span] = self._add(_Question(branch, said.get(_NAMES.get(kind, "tool_name")), said.get("args")))

    def _settle(self, question: _Question | None, said: Object) -> None:
        if question is not None:
            question.answer, question.decision = "call.settled", _read(said.get("result"), "decision", "")

    def _serve(self, question: _Question | None) -> None:
        """Take the outcome of a fork's parent as the answer; `forks` compares it with the parent's ledger."""
        if question is not None and not question.answer:
            question.answer, question.decision = "call.served", None

    def _check_answer(self, branch: bytes, said: Object) -> Iterator[str]:
        about = [each for each in self._questions if each.branch == branch and each.is_about(said)]
        answered = [each for each in about if each.answer]
        free = [each for each in answered if not each.is_used]
        chosen = next((each for each in reversed(free) if each.decides(said.get("decision"))), None)
        if chosen is not None:
            chosen.is_used = True
        elif free:
            yield f"{ANSWERED} says {said.get('decision')!r}, and the person answered {free[-1].decision!r}"
        elif answered:
            yield f"{ANSWERED} rests on an answer that an event before it rests on"
        else:
            found = "has no answer" if about else "is not in this run"
            yield f"{ANSWERED} names a decision of a person, and the request about {said.get('issue')!r} {found}"

    def _check_denial(self, branch: bytes, said: Object) -> Iterator[str]:
        """Check that a person refused what is denied because a person refused; forks repeat what their parent says."""
        if said.get("code") != _REFUSED or self._forked:
            return
        refused = self._refused.get(branch, [])
        chosen = next((each for each in reversed(refused) if _agree(each.name, said.get("name"))), None)
        if chosen is None:
            yield f"a denial with {_REFUSED}, and no approval.refused of a person about {said.get('name')!r} before it"
        else:
            refused.remove(chosen)


_NAMES: Final[Object] = MappingProxyType({"flow.call": "flow", "llm.request": "ability", "memory.call": "ability"})
"""The members of intents that name the ability; ``tool_name`` for others."""


def _read(value: Any, member: str, default: str) -> Any:
    """Return a member of *value*, or *default* if it is missing; ``None`` for a sealed or excised value."""
    return value.get(member, default) if isinstance(value, dict) and _MARK not in value else None


def _agree(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a value that is no text was sealed or excised, and is not compared."""
    return not isinstance(one, str) or not isinstance(other, str) or one == other
