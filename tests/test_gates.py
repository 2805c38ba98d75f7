"""A gate always decides: whatever it does instead of answering denies, and what was said is written down exactly."""

import asyncio
import gc
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from parts import a_call, always, gate, policy, rewriter, still

from deedbook.contract import ALLOW, Decision, allow, ask, deny, transform
from deedbook.format import canonical
from deedbook.format.schema import Schemas, data_folder
from deedbook.policy.gates import (
    RANK,
    answer,
    checked_answer,
    decision_payload,
    decision_source,
    in_order,
    merge,
    refusal,
    rule_of,
)

SCHEMAS = Schemas.load(data_folder("schemas"))
FIRED = SCHEMAS.validator("event_hook_fired_v1")
CHECKED = SCHEMAS.validator("event_policy_check_v1")
DIGEST = "ab" * 32


def raising(problem: BaseException) -> Any:
    def ask_it(*_: Any) -> Any:
        raise problem

    return ask_it


def asked(the_gate: Any, clock: Any = still) -> Decision:
    return answer(the_gate, clock, a_call())


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Outcome(StrEnum):
    ALLOW = "allow"


@attrs.frozen
class Allowing(Decision):
    """A decision of a plugin's own making."""


class Hostile(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [ALLOW, allow("fine"), ask("who?"), deny("no")], ids=lambda d: d.outcome)
def test_answer_returns_the_very_decision_that_the_gate_gave(decision: Decision) -> None:
    assert asked(gate(ask=decision)) is decision


def test_answer_asks_about_exactly_what_it_was_given() -> None:
    seen: list[Any] = []
    made = answer(gate(ask=lambda *subject: seen.append(subject) or ALLOW), still, "prompt", 2)
    assert made is ALLOW
    assert seen == [("prompt", 2)]


@for_each(
    "problem",
    [
        ValueError("bad"), KeyError("k"), RecursionError(), MemoryError(), SystemExit(0), GeneratorExit(),
        asyncio.CancelledError(), StopIteration(), BaseException("base"), BaseExceptionGroup("g", [SystemExit()]),
    ],
    ids=lambda problem: type(problem).__name__,
)  # fmt: skip
def test_answer_denies_when_the_gate_raises(problem: BaseException) -> None:
    made = asked(gate(ask=raising(problem)))
    assert made.outcome == "deny"
    assert made.reason.startswith(type(problem).__name__)


def test_answer_denies_when_the_exception_cannot_say_what_it_is() -> None:
    made = asked(gate(ask=raising(UnprintableError())))
    assert (made.outcome, made.reason.partition(" ")[0]) == ("deny", "UnprintableError")


def test_answer_lets_a_persons_interrupt_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        asked(gate(ask=raising(KeyboardInterrupt())))


@for_each(
    "given_",
    [
        None, True, "allow", {"outcome": "allow"}, [ALLOW], Decision, object(), NotImplemented, Allowing("allow"),
        Decision("maybe"), Decision(None), Decision(["allow"]), Decision({}), Decision(Outcome.ALLOW),
        Decision("transform", args={}), Decision("allow", None), Decision("allow", b"r"),
        Decision("allow", "", None, None), Decision("allow", "", None, [1]),
    ],
    ids=lambda given_: type(given_).__name__,
)  # fmt: skip
def test_answer_denies_anything_but_a_decision_that_the_gate_may_give(given_: Any) -> None:
    assert asked(gate(ask=always(given_))).outcome == "deny"


@pytest.mark.parametrize("args", [None, [("a", 1)], "a", 1])
def test_answer_denies_a_transform_without_arguments(args: Any) -> None:
    assert asked(rewriter(ask=Decision("transform", "", args))).outcome == "deny"


def test_answer_takes_a_transform_from_a_rewriter_only() -> None:
    decision = transform({"a": 1})
    assert asked(rewriter(ask=decision)) is decision
    assert asked(gate(ask=decision)) == deny("answered transform; it may answer allow, ask, deny")


def test_answer_takes_signals_of_any_mapping() -> None:
    decision = Decision("allow", "", None, MappingProxyType({"hint": "x"}))
    assert asked(gate(ask=decision)) is decision


def test_answer_closes_a_coroutine_that_nobody_will_await() -> None:
    async def late() -> Decision:
        return ALLOW

    assert asked(gate(ask=lambda *_: late())) == deny(
        "answered coroutine, not a Decision; it may answer allow, ask, deny"
    )
    gc.collect()  # "never awaited" would be raised from here


def test_answer_does_not_quote_what_was_answered_instead() -> None:
    assert "4111" not in asked(gate(ask=always({"card": "4111111111111111"}))).reason


@pytest.mark.parametrize(("times", "outcome"), [((1.0, 1.5), "allow"), ((1.0, 1.75), "deny"), ((1.0, 99.0), "deny")])
def test_answer_denies_later_than_the_limit(times: tuple[float, float], outcome: str) -> None:
    made = asked(gate(limit=0.5), iter(times).__next__)
    assert made.outcome == outcome
    assert outcome == "allow" or made.reason == "answered after its limit of 500 ms"


def test_answer_denies_when_the_clock_makes_no_sense() -> None:
    assert asked(gate(), iter((0.0, float("nan"))).__next__).outcome == "deny"


def test_answer_that_is_late_and_denies_stays_a_denial() -> None:
    assert asked(gate(ask=deny("no"), limit=0.5), iter((0.0, 1.0)).__next__).outcome == "deny"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
decisions = st.builds(Decision, st.sampled_from([*RANK, "maybe", ""]) | anything, anything, anything, anything)


@given(anything | decisions, st.frozensets(st.sampled_from(sorted(RANK))))
def test_answer_is_always_one_the_gate_may_give_or_a_denial(given_: Any, may: frozenset[str]) -> None:
    made = asked(gate(ask=always(given_), may={"allow", *may}))
    assert type(made) is Decision
    assert made.outcome in {"allow", "deny", *may}
    assert made is given_ or (made.outcome == "deny" and canonical.encode(made.reason))


@given(anything | decisions)
def test_heard_judges_a_recorded_answer_as_it_would_a_spoken_one(given_: Any) -> None:
    assert checked_answer(gate(), given_) == asked(gate(ask=always(given_)))


@given(st.text(st.characters(), max_size=2000) | st.text(st.characters(categories=["Cs"]), min_size=1))
def test_refusal_has_a_reason_that_can_be_recorded_and_is_bounded(reason: str) -> None:
    made = refusal(reason)
    assert canonical.encode(made.reason)
    assert len(made.reason) <= 500 * len("\\udc80")


@given(st.text(max_size=500))
def test_refusal_keeps_a_reason_that_can_be_recorded_as_it_is(reason: str) -> None:
    assert refusal(reason).reason == reason


# --- merging ----------------------------------------------------------------------------------------------------------

rounds = st.lists(st.sampled_from([ALLOW, allow("r"), ask("a"), ask("b"), deny("c"), deny("d"), transform({})]))


def paired(answers: list[Decision]) -> list[tuple[Any, Decision]]:
    return [(gate(f"g{index}"), decision) for index, decision in enumerate(answers)]


@given(rounds)
def test_merge_returns_the_first_of_the_most_conservative_answers(answers: list[Decision]) -> None:
    pairs = paired(answers)
    strictest = max((RANK[decision.outcome] for decision in answers), default=0)
    stops = strictest >= RANK["ask"]
    expected = next((pair for pair in pairs if RANK[pair[1].outcome] == strictest), None) if stops else None
    assert merge(pairs) is expected


@given(rounds, rounds)
def test_merge_never_loosens_when_more_are_asked(some: list[Decision], more: list[Decision]) -> None:
    few, all_ = merge(paired(some)), merge(paired([*some, *more]))
    assert few is None or (all_ is not None and RANK[all_[1].outcome] >= RANK[few[1].outcome])


@given(rounds, st.randoms())
def test_merge_comes_to_the_same_outcome_in_any_order(answers: list[Decision], random: Any) -> None:
    mixed = random.sample(answers, len(answers))
    one, other = merge(paired(answers)), merge(paired(mixed))
    assert (one and one[1].outcome) == (other and other[1].outcome)


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from("abcdef")), unique_by=lambda pair: pair[1]))
def test_in_order_is_by_priority_then_by_id(pairs: list[tuple[int, str]]) -> None:
    ordered = [made.id for made in in_order((priority, gate(name)) for priority, name in pairs)]
    assert ordered == [name for _, name in sorted((-priority, name) for priority, name in pairs)]


# --- who decided ------------------------------------------------------------------------------------------------------


@for_each(
    ("signals", "rule"),
    [
        ({}, None), ({"rule": 0}, "f:1"), ({"rule": 1}, "f:2"), ({"rule": 7}, 7), ({"rule": -1}, None),
        ({"rule": "night"}, "night"), ({"rule": True}, None), ({"rule": 2**53}, None), ({"rule": "\ud800"}, "\\ud800"),
        ({"rule": None}, None),
    ],
    ids=repr,
)  # fmt: skip
def test_rule_of_a_policy_is_its_place_else_its_index_or_name(signals: dict[str, Any], rule: Any) -> None:
    assert rule_of(policy(rules=("f:1", "f:2")), Decision("deny", "", None, signals)) == rule


def test_rule_of_a_hook_is_none_since_its_signals_are_its_own() -> None:
    assert rule_of(gate(rules=("f:1",)), Decision("deny", "", None, {"rule": 0})) is None


def test_by_names_gate_rule_and_place() -> None:
    decision = Decision("deny", "", None, {"rule": 0})
    assert decision_source(policy("base", rules=("f:1",), place="f"), decision) == {
        "policy": "base",
        "rule": "f:1",
        "place": "f",
    }
    assert decision_source(gate("keep-out"), deny("no")) == {"hook": "keep-out"}


# --- minutes ----------------------------------------------------------------------------------------------------------

GATES = [gate("first", digest=DIGEST), gate("second", digest="cd" * 32)]
POLICIES = [policy("base", digest=DIGEST, rules=("f:1:1",)), policy("night", digest=DIGEST)]
texts = st.text(st.characters(codec=None), max_size=20)
said = st.builds(
    Decision,
    st.sampled_from(sorted(RANK.keys() - {"advisory"})),
    texts,
    st.none(),
    st.dictionaries(texts, anything, max_size=3) | st.just({"rule": 0}) | st.just({"$sealed": "0", "size": 1}),
)


@given(st.lists(st.tuples(st.sampled_from(GATES), said), max_size=4))
def test_minutes_of_hooks_are_canonical_and_fit_the_frozen_schema(pairs: list[Any]) -> None:
    raw = decision_payload(pairs, event="PreToolUse", ability="echo")
    value = canonical.parse(raw)
    assert canonical.encode(value) == raw
    assert FIRED.violations(value) == ()
    assert [line["hook"] for line in value["asked"]] == [each.id for each, _ in pairs]
    assert [line["decision"] for line in value["asked"]] == [decision.outcome for _, decision in pairs]


@given(st.lists(st.tuples(st.sampled_from(POLICIES), said), max_size=4))
def test_minutes_of_policies_are_canonical_and_fit_the_frozen_schema(pairs: list[Any]) -> None:
    raw = decision_payload(pairs, ability="echo", enforcement="observe", facts={"session.calls": {"echo": 1}})
    value = canonical.parse(raw)
    assert canonical.encode(value) == raw
    assert CHECKED.violations(value) == ()
    assert value["facts"] == {"session.calls": {"echo": 1}}


@pytest.mark.parametrize(
    ("outcomes", "all_in_all"),
    [
        ([], "allow"),
        (["allow"], "allow"),
        (["allow", "transform"], "transform"),
        (["transform", "ask", "allow"], "ask"),
        (["ask", "deny", "transform"], "deny"),
    ],
)
def test_minutes_say_what_a_round_came_to(outcomes: list[Any], all_in_all: str) -> None:
    pairs = [(GATES[0], Decision(outcome)) for outcome in outcomes]
    assert canonical.parse(decision_payload(pairs, event="PreToolUse"))["decision"] == all_in_all


@pytest.mark.parametrize(
    "signals",
    [{"n": float("nan")}, {"$sealed": "x"}, {"o": object()}, {"s": "\udfff"}, {1: 2}, {"deep": [[]]}, Hostile()],
    ids=lambda signals: type(signals).__name__ + str(list(signals) if isinstance(signals, dict) else ""),
)
def test_minutes_leave_out_signals_that_cannot_be_recorded_but_never_the_line(signals: Any) -> None:
    if "deep" in list(signals if isinstance(signals, dict) else ()):
        for _ in range(70):
            signals = {"deep": signals}
    raw = decision_payload([(GATES[0], Decision("deny", "why", None, signals))], event="Stop")
    line = {"hook": "first", "digest": DIGEST, "decision": "deny", "reason": "why"}
    assert canonical.parse(raw)["asked"] == [line]


def test_minutes_hold_input_and_output_as_deep_as_intake_accepts() -> None:
    deep: Any = {}
    for _ in range(canonical.MAX_DEPTH - 1):
        deep = {"a": deep}
    bytes_ = canonical.admit(deep)
    raw = decision_payload([], event="PreToolUse", ability="echo", input=deep, output={})
    assert b'"input":' + bytes_ + b',"output":{}}' in raw


def test_minutes_shorten_what_a_gate_went_on_about() -> None:
    raw = decision_payload([(GATES[0], deny("x" * 10_000))], event="Stop")
    assert len(canonical.parse(raw)["asked"][0]["reason"]) == 500
