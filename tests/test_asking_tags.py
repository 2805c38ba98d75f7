"""The tags destructive and irreversible ask a person, unless a policy that names the tag allows the call."""

from typing import Any

import pytest
from parts import bound, decide, gate, policy

from deedbook import Decision
from deedbook.contract import ALLOW, ask, deny
from deedbook.kernel import bindings_for_judging
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.rederive import rejudge
from deedbook_author import policy_cases as cases

TAGS = ("destructive", "irreversible")


def named(*tags: str) -> frozenset[str]:
    return frozenset(tags)


def by_rule(index: Any, outcome: str = "allow") -> Decision:
    return Decision(outcome, "", None, {"rule": index})


# --- the judge --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enforcement", ["enforce", "observe"])
@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_that_no_policy_names_asks(tag: str, enforcement: str) -> None:
    for policies in ((), (policy(),), (policy(tags=named("other")),)):
        verdict = decide(bound(tags=named(tag, "x"), policies=policies), enforcement=enforcement)
        assert (verdict.outcome, verdict.code, verdict.by) == ("ask", "NEEDS_HUMAN", {"rule": tag})
        assert verdict.reason == f"its tag {tag} wants a person to decide"


SPEAKS = {
    "its match names the tag": (policy(tags=named("destructive")), "allow"),
    "the rule that decided names it": (
        policy(ask=by_rule(1), rules=("f:1", "f:2"), rule_tags=(named(), named("destructive", "x"))), "allow",
    ),
    "the rule is known by its place": (
        policy(ask=by_rule("f:2"), rules=("f:1", "f:2"), rule_tags=(named(), named("destructive"))), "allow",
    ),
    "another rule names it": (
        policy(ask=by_rule(0), rules=("f:1", "f:2"), rule_tags=(named(), named("destructive"))), "ask",
    ),
    "the default decided": (policy(rules=("f:1",), rule_tags=(named("destructive"),)), "ask"),
    "two rules share a place and one names it": (
        policy(ask=by_rule("f:1"), rules=("f:1", "f:1"), rule_tags=(named(), named("destructive"))), "ask",
    ),
    "it names another tag that asks": (policy(tags=named("irreversible")), "ask"),
    "it asks": (policy(ask=ask("look"), tags=named("destructive")), "ask"),
    "it denies": (policy(ask=deny("no"), tags=named("destructive")), "deny"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "outcome"), SPEAKS.values(), ids=SPEAKS)
def test_a_policy_speaks_of_the_tag_where_it_names_it_and_allows(one: Any, outcome: str) -> None:
    assert decide(bound(tags=named("destructive"), policies=(one,))).outcome == outcome
    assert decide(bound(tags=named("destructive"), policies=(policy("free"), one))).outcome == outcome


def test_where_policies_only_observe_one_that_would_deny_does_not_speak() -> None:
    loud = policy(ask=deny("no"), tags=named("destructive"))
    verdict = decide(bound(tags=named("destructive"), policies=(loud,)), enforcement="observe")
    assert (verdict.outcome, verdict.by) == ("ask", {"rule": "destructive"})


def test_each_tag_wants_a_word_of_its_own_and_approval_gate_none() -> None:
    both = named("destructive", "irreversible")
    assert decide(bound(tags=both, policies=(policy(tags=named("destructive")),))).by == {"rule": "irreversible"}
    assert decide(bound(tags=both, policies=(policy(tags=both),))).outcome == "allow"
    gated = named("destructive", "approval-gate")
    assert decide(bound(tags=gated, policies=(policy(tags=gated),))).by == {"rule": "approval-gate"}


def test_a_hook_does_not_speak_of_a_tag() -> None:
    hook = gate(ask=ALLOW, tags=named("destructive"))
    assert decide(bound(tags=named("destructive"), guards=(hook,))).outcome == "ask"


def test_effects_are_no_tags() -> None:
    assert decide(bound(effects="irreversible")).outcome == "allow"


# --- in a workspace ---------------------------------------------------------------------------------------------------

NAMING = {"kind": "rules", "rules": [{"match": {"tags": ["destructive"], "args": {"/n": 1}}, "then": "allow"}],
          "default": "allow"}  # fmt: skip


@pytest.fixture
def wiping(lab: Any) -> Any:
    lab.tool("wipe", lambda args, ctx: args, tags=["destructive"])
    return lab


def outcomes(lab: Any, *numbers: int) -> list[str]:
    """Return what becomes of calls with these arguments."""
    session = lab.session()
    found = [session.call("wipe", {"n": number}) for number in numbers]
    session.end(ok=True, reason="done")
    return [getattr(getattr(each, "error", None), "code", "done") for each in found]


def again(lab: Any) -> list[tuple[str, str]]:
    """Return how the calls of the first session are judged now: the outcome then, and the change."""
    first = min(lab.state.glob("sessions/*/.events.jsonl"), key=lambda place: place.stat().st_mtime_ns)
    with bindings_for_judging(read_workspace(lab.path), lab.catalogue()) as bindings:
        return [(each.call.outcome, each.change) for each in rejudge(first, bindings)]


def test_the_door_asks_and_the_record_is_judged_alike(wiping: Any) -> None:
    assert outcomes(wiping, 1, 2) == ["NEEDS_HUMAN", "NEEDS_HUMAN"]
    assert wiping.all("approval.requested")[0].payload["by"] == {"rule": "destructive"}
    assert again(wiping) == [("ask", "same"), ("ask", "same")]
    wiping.settings(policies={"wipes": NAMING})
    assert again(wiping) == [("ask", "allowed"), ("ask", "same")], "what-if says what the rule would change"
    assert outcomes(wiping, 1, 2) == ["done", "NEEDS_HUMAN"]


def test_what_ran_under_a_rule_that_names_the_tag_would_ask_without_it(wiping: Any) -> None:
    wiping.settings(policies={"wipes": NAMING})
    assert outcomes(wiping, 1, 2) == ["done", "NEEDS_HUMAN"]
    assert again(wiping) == [("allow", "same"), ("ask", "same")]
    wiping.settings(policies={"wipes": {**NAMING, "rules": []}})
    assert again(wiping) == [("allow", "asks"), ("ask", "same")]


def test_a_policy_in_code_whose_match_names_the_tag_speaks(wiping: Any) -> None:
    wiping.policy("mine", lambda call: ALLOW, match={"tags": ["destructive"]})
    assert outcomes(wiping, 1) == ["done"]
    wiping.settings(enforcement="observe")
    assert outcomes(wiping, 1) == ["done"]
    assert again(wiping) == [("allow", "same")], "its recorded answer counts, though nobody asks it again"


def test_a_policy_that_nobody_can_ask_again_leaves_it_open(wiping: Any) -> None:
    wiping.settings(enforcement="observe")
    assert outcomes(wiping, 1) == ["NEEDS_HUMAN"]
    wiping.policy("mine", lambda call: ALLOW, match={"tags": ["destructive"]})
    assert again(wiping) == [("ask", "undetermined")]


def test_explain_says_which_tag_asks_or_which_policy_names_it(place: Any) -> None:
    text = (place.path / ".system/deedbook.yaml").read_text()
    place.system(
        "registry/low-level/wipe.yaml",
        "schema_version: v1\nid: wipe\nsummary: Wipe.\nhandler: {tool: echo}\ntags: [destructive]\n",
    )
    args = ("explain", "wipe", "--args", '{"text": "x"}', "--json")
    found = place.run(*args, status=3).fits("output_explain_v1")
    assert (found["outcome"], found["by"]) == ("ask", {"rule": "destructive"})
    assert found["steps"][-1]["place"] == ".system/registry/low-level/wipe.yaml:5"
    assert "such as {match: {tags: [destructive]}, then: allow}" in found["remedy"]
    rule = "policies: {wipes: {kind: rules, rules: [{match: {tags: destructive}, then: allow}]}}\n"
    place.system("deedbook.yaml", text + rule)
    (step,) = (step for step in place.run(*args).fits("output_explain_v1")["steps"] if step["step"] == "tag")
    assert (step["says"], step["reason"]) == ("allow", "policy wipes names it and allows the call")


def test_a_policy_test_expects_the_question(wiping: Any) -> None:
    wiping.settings(policies={"wipes": NAMING})
    with bindings_for_judging(read_workspace(wiping.path), wiping.catalogue()) as bindings:
        found = [
            cases.run_case(
                bindings, cases.Case(name="x", place="x:1", ability="wipe", expect=expect, args={"n": number})
            )
            for number, expect in ((1, "allow"), (2, "ask"))
        ]
    assert [each.problem for each in found] == ["", ""]
