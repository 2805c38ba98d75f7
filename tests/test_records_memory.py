"""What the scribe remembers of rounds of answers: the same bytes as without memory, and never another's answer."""

from hashlib import sha256
from itertools import count
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from parts import bound, caller, gate

from deedbook import Decision
from deedbook.call.records import CallRecorder
from deedbook.contract import ALLOW, allow, ask, deny
from deedbook.format.events import Entry
from deedbook.policy.judge import Verdict

HOOKS = [gate("first"), gate("second")]
POLICIES = [gate("base", kind="policy")]
ANSWERS = [ALLOW, allow("fine"), ask("who?"), deny("no"), deny("\ud800"), Decision("allow", "", None, {"hint": [1]})]
ABILITIES = [bound(), bound(id="other")]
ADA, BOB = caller(), caller(principal=SimpleNamespace(id="bob"))


def recorder() -> CallRecorder:
    numbers = count(1)
    return CallRecorder(SimpleNamespace(span=lambda: f"{next(numbers):016x}"), "enforce")  # type: ignore[arg-type]


def judged(
    by: CallRecorder, hooks: Any, policies: Any = (), ability: Any = ABILITIES[0], who: Any = ADA
) -> list[Entry]:
    verdict = Verdict(ability, {}, b"{}", hooks=list(hooks), policies=list(policies))
    return by.decision_entries(verdict, who, {}, "c" * 16)


def without_spans(entries: list[Entry]) -> list[tuple[Any, ...]]:
    return [(each.label, each.parent, each.payload) for each in entries]


answers = st.sampled_from(ANSWERS)
rounds = st.tuples(
    st.lists(st.tuples(st.sampled_from(HOOKS), answers), max_size=3),
    st.lists(st.tuples(st.sampled_from(POLICIES), answers), max_size=2),
    st.sampled_from(ABILITIES),
    st.sampled_from([ADA, BOB]),
)


@given(st.lists(rounds, max_size=20))
def test_scribe_writes_the_same_with_and_without_memory(history: list[Any]) -> None:
    remembering = recorder()
    for each in history:
        entries = judged(remembering, *each)
        assert without_spans(entries) == without_spans(judged(recorder(), *each))
        assert all(entry.payload_hash in (None, sha256(entry.payload).hexdigest()) for entry in entries)
        assert len({entry.span for entry in entries}) == len(entries)


def test_scribe_remembers_no_decision_that_another_one_took_the_address_of() -> None:
    remembering = recorder()
    for index in range(2000):  # each decision dies at once, so that the next may lie where it lay
        (entry,) = judged(remembering, [(HOOKS[0], deny(f"reason {index}"))])
        assert f"reason {index}".encode() in entry.payload


def test_scribe_goes_on_remembering_after_many_rounds_that_never_return() -> None:
    remembering = recorder()
    for index in range(1000):
        judged(remembering, [(HOOKS[0], deny(f"reason {index}"))])
    usual = [(HOOKS[0], ALLOW)]
    assert judged(remembering, usual)[0].payload is judged(remembering, usual)[0].payload
