"""What is decided about a call, and from what: order, scope, schemas, rewriters, guards and policies; and no I/O."""

import ast
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from parts import (
    ADA,
    WHEN,
    always,
    bindings,
    bound,
    caller,
    decide,
    gate,
    policy,
    rewriter,
    still,
)  # fmt: skip

from deedbook.contract import ALLOW, Call, Decision, Principal, allow, ask, deny, transform
from deedbook.format import canonical
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook.policy import judge as module
from deedbook.policy.bound import Scope
from deedbook.policy.gates import RANK
from deedbook.policy.judge import MAX_NESTING, DecisionContext, Verdict, judge, make_call
from deedbook.policy.limits import compile_limits

TEXT = foreign(
    {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}, "additionalProperties": False},
    place="echo: takes",
)
DENIED = Schemas.load(data_folder("schemas")).validator("event_tool_denied_v1")


def asking(log: list[Call], decision: Decision = ALLOW) -> Any:
    """Return a gate's function that notes its calls."""

    def ask_it(call: Call) -> Decision:
        log.append(call)
        return decision

    return ask_it


def never_asked(call: Call) -> Decision:
    raise AssertionError(f"asked about {call}")


def ids(asked: list[Any]) -> list[tuple[str, str]]:
    return [(each.id, decision.outcome) for each, decision in asked]


# --- finding, scope, schema -------------------------------------------------------------------------------------------


def test_judge_refuses_an_ability_that_is_not_there_and_names_the_nearest() -> None:
    verdict = decide(bound(), asked="ecko")
    assert (verdict.outcome, verdict.code, verdict.bound) == ("deny", "TOOL_NOT_FOUND", None)
    assert verdict.reason == "no ability 'ecko' is declared; did you mean \"echo\"?"


def test_judge_refuses_what_is_outside_the_scope_before_anything_else_is_looked_at() -> None:
    who = caller(scope=Scope("what skill greet allows", frozenset({"other"})))
    verdict = decide(bound(takes=TEXT, guards=(gate(ask=never_asked),)), {"wrong": 1}, caller=who)
    assert (verdict.outcome, verdict.code) == ("deny", "TOOL_NOT_ALLOWED")
    assert verdict.reason == "'echo' is outside what skill greet allows"
    assert verdict.by == {"scope": "what skill greet allows"}


@pytest.mark.parametrize(("kind", "code"), [("tool", ""), ("flow", ""), ("model", "TOOL_NOT_ALLOWED")])
def test_judge_scopes_models_apart_from_tools_and_flows(kind: str, code: str) -> None:
    who = caller(scope=Scope("tools", frozenset({"echo"}), frozenset()))
    assert decide(bound(kind=kind), caller=who).code == code


@pytest.mark.parametrize(("depth", "code"), [(0, ""), (MAX_NESTING, ""), (MAX_NESTING + 1, "TOOL_NOT_ALLOWED")])
def test_judge_refuses_calls_that_are_nested_too_deeply(depth: int, code: str) -> None:
    assert decide(bound(), caller=caller(depth=depth)).code == code


def test_judge_refuses_arguments_that_do_not_fit_and_asks_nobody() -> None:
    ability = bound(
        takes=TEXT, rewriters=(rewriter(ask=never_asked),), guards=(gate(ask=never_asked),),
        policies=(policy(ask=never_asked),),
    )  # fmt: skip
    verdict = decide(ability, {"text": 1})
    assert (verdict.outcome, verdict.code, verdict.subject) == ("deny", "SCHEMA_VIOLATION", "arguments")
    assert [violation.path for violation in verdict.violations] == ["$.text"]
    assert verdict.reason.startswith("$.text: ")


@pytest.mark.parametrize("args", [[], "text", 1, True], ids=repr)
def test_judge_refuses_arguments_that_are_no_object_whatever_the_schema_takes(args: Any) -> None:
    verdict = decide(bound(takes=foreign({}, place="test"), guards=(gate(ask=never_asked),)), args)
    assert (verdict.code, verdict.reason) == ("SCHEMA_VIOLATION", "$: arguments are an object")


def test_judge_allows_by_itself_what_no_gate_fits() -> None:
    verdict = decide(bound(takes=TEXT), {"text": "hi"})
    assert (verdict.outcome, verdict.code, verdict.args, verdict.raw) == ("allow", "", {"text": "hi"}, b'{"text":"hi"}')


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_judge_asks_hooks_then_policies_each_in_its_order_even_after_a_denial() -> None:
    ability = bound(guards=(gate("a", deny("no")), gate("b")), policies=(policy("c", ask("?")), policy("d")))
    verdict = decide(ability)
    assert ids(verdict.hooks) == [("a", "deny"), ("b", "allow")]
    assert ids(verdict.policies) == [("c", "ask"), ("d", "allow")]
    assert (verdict.outcome, verdict.code, verdict.reason) == ("deny", "GATE_DENIED", "no")
    assert verdict.by == {"hook": "a"}


def test_judge_passes_over_gates_whose_match_does_not_hold_for_the_call() -> None:
    def about(name: str) -> Any:
        return lambda call: call.args["text"] == name

    rewriters = (
        rewriter("r", transform({"text": "b"}), applies=about("a")),
        rewriter("s", never_asked, applies=about("a")),
    )
    ability = bound(
        rewriters=rewriters, guards=(gate("g", applies=about("b")), gate("h", never_asked, applies=about("a")))
    )
    verdict = decide(ability, {"text": "a"})
    assert (ids(verdict.rewrites), ids(verdict.hooks)) == ([("r", "transform")], [("g", "allow")])


def test_judge_yields_impure_gates_with_their_call_and_takes_the_answer() -> None:
    outside = gate("outside", never_asked, pure=False)
    ability = bound(guards=(gate("inside"), outside))
    judging = judge(bindings(ability), caller(), "echo", {"a": 1}, b'{"a":1}', WHEN, still)
    asked, call = next(judging)
    assert asked is outside
    assert (call.ability, call.args, call.now) == ("echo", {"a": 1}, WHEN.now)
    with pytest.raises(StopIteration) as done:
        judging.send(deny("not now"))
    assert (done.value.value.outcome, done.value.value.reason) == ("deny", "not now")


@pytest.mark.parametrize("sent", [None, "allow", Decision("maybe"), transform({})], ids=repr)
def test_judge_denies_when_it_is_sent_what_the_gate_may_not_answer(sent: Any) -> None:
    verdict = decide(bound(guards=(gate("outside", pure=False),)), answers={"outside": sent})
    assert (verdict.outcome, verdict.code, ids(verdict.hooks)) == ("deny", "GATE_DENIED", [("outside", "deny")])


def test_judge_denies_when_a_gate_is_late() -> None:
    times = iter([0.0, 2.0])
    verdict = decide(bound(guards=(gate(limit=1.0),)), clock=times.__next__)
    assert (verdict.code, verdict.reason) == ("GATE_DENIED", "answered after its limit of 1000 ms")


def test_judge_says_who_denied_where_the_gate_gave_no_reason() -> None:
    assert decide(bound(policies=(policy("base", Decision("deny")),))).reason == "policy 'base' answered deny"


def test_judge_gives_a_reason_that_can_be_recorded() -> None:
    assert decide(bound(guards=(gate(ask=deny("\ud800")),))).reason == "\\ud800"


@pytest.mark.parametrize("raises", [SystemExit(0), asyncio.CancelledError(), RuntimeError("x")], ids=repr)
def test_judge_denies_when_a_policy_raises(raises: BaseException) -> None:
    def broken(_: Call) -> Decision:
        raise raises

    assert decide(bound(policies=(policy(ask=broken),))).code == "GATE_DENIED"


# --- observe and enforce ----------------------------------------------------------------------------------------------


def test_judge_records_policies_without_binding_under_observe() -> None:
    ability = bound(policies=(policy("base", deny("no")),))
    verdict = decide(ability, enforcement="observe")
    assert (verdict.outcome, verdict.code, ids(verdict.policies)) == ("allow", "", [("base", "deny")])
    assert decide(ability, enforcement="enforce").code == "GATE_DENIED"


def test_judge_binds_hooks_rewriters_scope_and_schema_under_observe() -> None:
    for ability in (bound(guards=(gate(ask=deny("no")),)), bound(rewriters=(rewriter(ask=deny("no")),))):
        assert decide(ability, enforcement="observe").code == "GATE_DENIED"
    assert decide(bound(takes=TEXT), {}, enforcement="observe").code == "SCHEMA_VIOLATION"
    nothing = caller(scope=Scope("nothing", frozenset()))
    assert decide(bound(), caller=nothing, enforcement="observe").code == "TOOL_NOT_ALLOWED"


def test_judge_tells_gates_which_enforcement_is_in_force() -> None:
    seen: list[Call] = []
    decide(bound(guards=(gate(ask=asking(seen)),)), enforcement="observe")
    assert seen[0].enforcement == "observe"


# --- approval ---------------------------------------------------------------------------------------------------------


def test_judge_wants_a_person_for_the_tag_approval_gate_whatever_gates_allow() -> None:
    verdict = decide(bound(tags=frozenset({"approval-gate"}), policies=(policy(),)), enforcement="observe")
    assert (verdict.outcome, verdict.code, verdict.by) == ("ask", "NEEDS_HUMAN", {"rule": "approval-gate"})


def test_judge_keeps_a_denial_where_the_tag_wants_a_person() -> None:
    assert decide(bound(tags=frozenset({"approval-gate"}), guards=(gate(ask=deny("no")),))).outcome == "deny"


def test_judge_leaves_to_a_person_what_a_gate_asks_for() -> None:
    verdict = decide(bound(policies=(policy("base", ask("a person looks first"), rules=(), place="f.yaml:3:1"),)))
    assert (verdict.outcome, verdict.code, verdict.reason) == ("ask", "NEEDS_HUMAN", "a person looks first")
    assert verdict.by == {"policy": "base", "place": "f.yaml:3:1"}


# --- rewriters --------------------------------------------------------------------------------------------------------


def test_judge_has_each_rewriter_work_on_the_last_output_and_guards_see_the_final_arguments() -> None:
    seen: list[Call] = []

    def add(letter: str) -> Any:
        return lambda call: transform({"text": call.args["text"] + letter})

    ability = bound(takes=TEXT, rewriters=(rewriter("a", add("a")), rewriter("b", add("b"))),
                    guards=(gate(ask=asking(seen)),), policies=(policy(ask=asking(seen)),))  # fmt: skip
    verdict = decide(ability, {"text": ""})
    assert [call.args for call in seen] == [{"text": "ab"}] * 2
    assert (verdict.original, verdict.raw, verdict.args) == (b'{"text":""}', b'{"text":"ab"}', {"text": "ab"})
    assert ids(verdict.rewrites) == [("a", "transform"), ("b", "transform")]


def test_judge_validates_again_what_rewriters_leave_and_asks_no_guard_about_what_cannot_run() -> None:
    ability = bound(takes=TEXT, rewriters=(rewriter(ask=transform({"text": 1})),), guards=(gate(ask=never_asked),))
    verdict = decide(ability, {"text": "a"})
    assert (verdict.code, verdict.subject) == ("SCHEMA_VIOLATION", "transform")
    assert (verdict.original, verdict.raw) == (b'{"text":"a"}', b'{"text":1}')


LIMITED = compile_limits("src", {"abilities": None, "forbidden": (), "reads": None, "writes": ("src/*",)})


@pytest.mark.parametrize(
    ("who", "more", "why"),
    [
        ({"scope": Scope("skill greet", None, commands={"echo": {"/text": ("git *",)}})}, {}, "skill greet: /text"),
        (
            {"limits": (LIMITED,)},
            {"files": "write", "paths": ("/text",), "durable": True},
            "the limits of branch 'src'",
        ),
        ({}, {"scope_violation": lambda who, args: "a stranger" if "etc" in args["text"] else None}, "a stranger"),
    ],
    ids=["commands", "limits", "owner"],
)
def test_judge_checks_the_scope_of_rewritten_arguments_and_asks_no_guard(who: Any, more: Any, why: str) -> None:
    """A hook cannot lead a call out of the scope that the given arguments were in."""
    inside, outside = ("src/a", "etc/b") if "limits" in who else ("git log", "cat etc")
    assert decide(bound(**more), {"text": inside}, caller=caller(**who)).outcome == "allow"
    ability = bound(rewriters=(rewriter(ask=transform({"text": outside})),), guards=(gate(ask=never_asked),), **more)
    verdict = decide(ability, {"text": inside}, caller=caller(**who))
    assert (verdict.outcome, verdict.code) == ("deny", "TOOL_NOT_ALLOWED")
    assert why in verdict.reason
    assert verdict.hooks == []


def test_judge_lets_a_later_rewriter_mend_what_an_earlier_one_left() -> None:
    broken, mended = rewriter("a", transform({"text": 1})), rewriter("b", transform({"text": "1"}))
    assert decide(bound(takes=TEXT, rewriters=(broken, mended)), {"text": "a"}).outcome == "allow"


def test_judge_notes_no_change_where_a_transform_changes_nothing() -> None:
    verdict = decide(bound(rewriters=(rewriter(ask=transform({"b": 1, "a": 2})),)), {"a": 2, "b": 1})
    assert (verdict.original, ids(verdict.rewrites)) == (None, [("r", "transform")])


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise SystemError

    def __iter__(self) -> Iterator[str]:
        raise SystemError

    def __len__(self) -> int:
        return 1


@for_each(
    "args",
    [None, [], "x", {"n": float("nan")}, {"n": 2**53}, {"s": "\ud800"}, {"$sealed": "0"}, {1: 2}, {"o": object()},
     Unreadable()],
    ids=lambda args: type(args).__name__,
)  # fmt: skip
def test_judge_denies_a_transform_to_what_cannot_be_arguments(args: Any) -> None:
    ability = bound(rewriters=(rewriter("r", Decision("transform", "", args)), rewriter("s", never_asked)),
                    guards=(gate(ask=never_asked),))  # fmt: skip
    verdict = decide(ability, {"text": "a"})
    assert (verdict.outcome, verdict.code, verdict.by) == ("deny", "GATE_DENIED", {"hook": "r"})
    assert (verdict.original, verdict.args, ids(verdict.rewrites)) == (None, {"text": "a"}, [("r", "deny")])


def test_judge_denies_a_transform_by_a_guard() -> None:
    verdict = decide(bound(guards=(gate("g", transform({"text": "b"})),)), {"text": "a"})
    assert (verdict.code, verdict.args) == ("GATE_DENIED", {"text": "a"})


def test_judge_ends_at_a_rewriter_that_denies_since_the_final_arguments_are_unknown() -> None:
    ability = bound(rewriters=(rewriter("r", deny("no")), rewriter("s", never_asked)), guards=(gate(ask=never_asked),))
    verdict = decide(ability)
    assert (verdict.code, verdict.reason, ids(verdict.rewrites)) == ("GATE_DENIED", "no", [("r", "deny")])


def test_judge_asks_the_guards_also_where_a_rewriter_wants_a_person() -> None:
    wants = rewriter("r", ask("who?"))
    assert decide(bound(rewriters=(wants,))).outcome == "ask"
    assert decide(bound(rewriters=(wants,), guards=(gate(),))).reason == "who?"
    assert decide(bound(rewriters=(wants,), guards=(gate(ask=deny("no")),))).outcome == "deny"


def test_judge_yields_an_impure_rewriter_and_goes_on_with_its_answer() -> None:
    ability = bound(rewriters=(rewriter("r", pure=False),))
    assert decide(ability, answers={"r": transform({"text": "b"})}).args == {"text": "b"}


# --- nobody changes the call ------------------------------------------------------------------------------------------


def changing(call: Call) -> Decision:
    call.args["list"].append("rm -rf")  # type: ignore[index]
    return ALLOW


def test_judge_is_not_touched_by_a_rewriter_that_changes_its_copy() -> None:
    seen: list[Call] = []
    verdict = decide(bound(rewriters=(rewriter(ask=changing),), guards=(gate(ask=asking(seen)),)), {"list": []})
    assert (verdict.outcome, verdict.args, seen[0].args) == ("allow", {"list": []}, {"list": []})


@pytest.mark.parametrize("enforcement", ["observe", "enforce"])
@pytest.mark.parametrize("others", [ALLOW, ask("?")], ids=["allowed", "asked"])
def test_judge_denies_a_call_that_a_guard_changed_under_those_after_it(enforcement: str, others: Decision) -> None:
    ability = bound(guards=(gate("sly", changing), gate("after", others)))
    verdict = decide(ability, {"list": []}, enforcement=enforcement)
    assert (verdict.code, verdict.args, verdict.raw) == ("GATE_DENIED", {"list": []}, b'{"list":[]}')
    assert verdict.reason.startswith("the arguments were changed while they were judged by hook 'sly', hook 'after'; ")


def test_judge_keeps_the_reason_of_a_denial_and_the_true_arguments_where_a_guard_changed_them() -> None:
    verdict = decide(bound(guards=(gate("sly", changing), gate("strict", deny("no")))), {"list": []})
    assert (verdict.reason, verdict.args) == ("no", {"list": []})


# --- facts ------------------------------------------------------------------------------------------------------------


def test_judge_gives_each_gate_exactly_the_facts_that_it_declares() -> None:
    seen: list[Call] = []
    none = gate("none", asking(seen))
    one = gate("one", asking(seen), reads=frozenset({"session.calls"}))
    two = policy("two", asking(seen), reads=frozenset({"session.calls", "context.state"}))
    first = rewriter("first", asking(seen), reads=frozenset({"context.state"}))
    decide(bound(rewriters=(first,), guards=(none, one), policies=(two,)))
    calls, state = {"session.calls": {"echo": 2}}, {"context.state": "PLANNED"}
    assert [call.facts for call in seen] == [state, {}, calls, calls | state]


def test_judge_gives_each_gate_facts_of_its_own_so_that_the_record_stays_what_was_read() -> None:
    def greedy(call: Call) -> Decision:
        call.facts["session.calls"].clear()
        return ALLOW

    when, seen = DecisionContext("now", "s1", {"session.calls": {"echo": 2}}), list[Call]()
    reads = frozenset({"session.calls"})
    decide(bound(guards=(gate("a", greedy, reads=reads), gate("b", asking(seen), reads=reads))), when=when)
    assert seen[0].facts == when.facts == {"session.calls": {"echo": 2}}


def test_judge_cannot_go_on_without_a_fact_that_a_gate_reads() -> None:
    reading = gate(ask=never_asked, reads=frozenset({"session.calls"}))
    with pytest.raises(KeyError, match=r"session\.calls"):
        decide(bound(guards=(reading,)), when=DecisionContext("now", "s1", {}))


# --- the call ---------------------------------------------------------------------------------------------------------


def test_call_tells_gates_who_asks_for_what_under_which_circumstances() -> None:
    seen: list[Call] = []
    about: dict[str, Any] = {"tags": frozenset({"destructive"}), "scopes": frozenset({"text"}), "paths": ("/file",)}
    ability = bound(guards=(gate(ask=asking(seen)),), effects="write", **about)
    decide(ability, {"a": [1]}, caller=caller(role="worker", skill="greet"))
    assert attrs.asdict(seen[0], recurse=False) == {
        "ability": "echo", "kind": "tool", "args": {"a": [1]}, "effects": "write", **about,
        "principal": ADA, "role": "worker", "skill": "greet", "enforcement": "enforce", "session": "s1",
        "now": WHEN.now, "raw": b'{"a":[1]}', "facts": {}, "mode": "interactive",
    }  # fmt: skip


scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5)
objects = st.dictionaries(st.text(max_size=4), scalars | st.lists(scalars, max_size=2), max_size=3)
principals = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:@/-]{0,20}\Z")
names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,9}(/[A-Za-z0-9][A-Za-z0-9._-]{0,9})?\Z")


@given(names, objects, principals)
def test_call_digest_is_that_of_the_canonical_ability_args_and_principal(name: str, args: Any, who: str) -> None:
    ability, raw = bound(id=name), canonical.encode(args)
    call = make_call(bindings(ability), caller(principal=Principal(who, "cli")), ability, args, raw, WHEN)
    identity = canonical.encode({"ability": name, "args": args, "principal": who})
    assert call.digest == canonical.digest(identity)


# --- laws -------------------------------------------------------------------------------------------------------------

answers = st.sampled_from([ALLOW, allow("r"), ask("a"), deny("d"), transform({"t": 1}), transform({"t": 2}), None])
gates_of = st.lists(st.tuples(answers, st.booleans()), max_size=3)
cases = st.tuples(
    gates_of, gates_of, gates_of, st.sampled_from(["observe", "enforce"]), st.booleans(), objects
)  # fmt: skip


def an_ability(rewriters: Any, guards: Any, policies: Any, *, tagged: bool) -> tuple[Any, dict[str, Any]]:
    """Return an ability with gates that give these answers, and the answers of those that are not pure."""
    said: dict[str, Any] = {}

    def made(make: Any, letter: str, given_: Any) -> tuple[Any, ...]:
        said.update({f"{letter}{index}": answer for index, (answer, _) in enumerate(given_)})
        return tuple(make(f"{letter}{i}", always(answer), pure=pure) for i, (answer, pure) in enumerate(given_))

    ability = bound(
        rewriters=made(rewriter, "r", rewriters), guards=made(gate, "g", guards), policies=made(policy, "p", policies),
        tags=frozenset({"approval-gate"} if tagged else ()),
    )  # fmt: skip
    return ability, said


def seen(verdict: Verdict) -> Any:
    """Return all of a verdict that can be compared."""
    rounds_ = [ids(verdict.rewrites), ids(verdict.hooks), ids(verdict.policies)]
    return (
        verdict.outcome,
        verdict.code,
        verdict.reason,
        verdict.by,
        verdict.original,
        verdict.raw,
        verdict.args,
        rounds_,
    )


def strictest(answers_: Any, *, may_transform: bool = False) -> str:
    """Say what answers come to, by the words of the design: deny over ask over allow, and a wrong answer denies."""
    outcomes = [
        "deny" if answer is None or (answer.outcome == "transform" and not may_transform) else answer.outcome
        for answer, _ in answers_
    ]
    return max(outcomes, key=lambda outcome: RANK[outcome], default="allow")


@given(cases)
def test_judge_gives_the_same_verdict_on_the_same_inputs(case: Any) -> None:
    rewriters, guards, policies, enforcement, tagged, args = case
    (one, said), (other, _) = (an_ability(rewriters, guards, policies, tagged=tagged) for _ in range(2))
    first, second = (decide(each, args, answers=said, enforcement=enforcement) for each in (one, other))
    assert seen(first) == seen(second)


@given(cases)
def test_judge_comes_to_what_the_answers_say(case: Any) -> None:
    rewriters, guards, policies, enforcement, tagged, args = case
    ability, said = an_ability(rewriters, guards, policies, tagged=tagged)
    verdict = decide(ability, args, answers=said, enforcement=enforcement)
    binding = [strictest(rewriters, may_transform=True), strictest(guards)]
    binding += [strictest(policies)] if enforcement == "enforce" else []
    binding += ["ask"] if tagged else []
    strict = max(binding, key=lambda outcome: RANK[outcome])
    assert verdict.outcome == {"transform": "allow"}.get(strict, strict)
    assert verdict.code == {"allow": "", "ask": "NEEDS_HUMAN", "deny": "GATE_DENIED"}[verdict.outcome]
    assert verdict.raw == canonical.encode(verdict.args)


@given(cases)
def test_judge_loosens_nothing_when_a_guard_is_added(case: Any) -> None:
    rewriters, guards, policies, enforcement, tagged, args = case
    ability, said = an_ability(rewriters, guards, policies, tagged=tagged)
    without = decide(attrs.evolve(ability, guards=()), args, answers=said, enforcement=enforcement)
    assert RANK[decide(ability, args, answers=said, enforcement=enforcement).outcome] >= RANK[without.outcome]


@given(cases)
def test_judge_names_deciders_as_the_frozen_schema_of_a_denial_has_them(case: Any) -> None:
    rewriters, guards, policies, enforcement, tagged, args = case
    ability, said = an_ability(rewriters, guards, policies, tagged=tagged)
    verdict = decide(ability, args, answers=said, enforcement=enforcement)
    payload = {"kind": "tool", "name": "echo", "code": verdict.code or "NONE", "reason": verdict.reason}
    assert DENIED.violations(payload | ({"by": verdict.by} if verdict.by else {})) == ()


# --- no I/O -----------------------------------------------------------------------------------------------------------


def test_judge_imports_nothing_that_reads_writes_waits_or_tells_the_time() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    pure = {
        "collections.abc",
        "hashlib",
        "typing",
        "attrs",
        ".",
        "bindings",
        "bound",
        "deedbook.contract",
        "deedbook.format",
        "deedbook.format.errors",
        "deedbook.format.schema",
        "gates",
        "kinds",
        "limits",
        "requests",
    }
    assert imported <= pure


_AUDITED: list[str] = []
_LISTENING = False


def _listen(event: str, _: Any) -> None:
    if _LISTENING:
        _AUDITED.append(event)


def test_judge_does_no_io_and_asks_no_clock_but_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.addaudithook(_listen)
    reads = frozenset({"session.calls"})
    guards = (gate(), gate(ask=lambda _: 1 / 0, reads=reads))
    rewriters = (rewriter(ask=transform({"text": "b"})),)
    ability = bound(takes=TEXT, rewriters=rewriters, guards=guards, policies=(policy(ask=deny("no")),))
    given_ = [(ability, {"text": "a"}), (ability, {"text": 1})]
    decide(*given_[0])  # what Python sets up at the first time is not the judge's
    for name in ("time", "monotonic", "perf_counter", "sleep", "time_ns", "gmtime"):
        monkeypatch.setattr(time, name, never_asked)
    monkeypatch.setattr(sys.modules[__name__], "_LISTENING", True)
    made = [decide(*each) for each in given_]
    monkeypatch.undo()
    assert set(_AUDITED) <= {"builtins.id", "object.__getattr__"}  # looking at objects is no I/O
    assert [verdict.code for verdict in made] == ["GATE_DENIED", "SCHEMA_VIOLATION"]
