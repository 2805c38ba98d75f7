"""Calls that no policy covers: what the door, lock, doctor, explain and the charter say about them is one thing."""

from itertools import product
from typing import Any

import pytest
import workshop
from cases import for_each
from commandline import Place
from workshop import Workshop

from deedbook.charter.changes import compare
from deedbook.contract import ALLOW, GateSpec, Principal
from deedbook.format import canonical
from deedbook.format.files import Folder
from deedbook.policy.bound import EVERYTHING, Caller
from deedbook.policy.charter import DEFAULT, Charter
from deedbook.policy.defaults import describe_default
from deedbook.policy.judge import DecisionContext, Verdict, judge
from deedbook_author.policy_coverage import find_unguarded

WHEN = DecisionContext("2026-01-02T03:04:05.006Z", "s1", {})
EFFECTS = ("none", "read", "write", "irreversible")
DEFAULTS = {
    "unset": "",
    "write: allow": "default: {write: allow}\n",
    "write: ask": "default: {write: ask}\n",
    "both: deny": "default: {write: deny, irreversible: deny}\n",
}
POLICIES = {
    "none": "",
    "covers": "policies: {p: {kind: rules, rules: [], default: allow}}\n",
    "denies": "policies: {p: {kind: rules, rules: [], default: deny}}\n",
    "reads": "policies: {p: {kind: rules, match: {effects: [none, read]}, rules: [], default: allow}}\n",
    "some": "policies: {p: {kind: rules, match: {args: {/text: yes}}, rules: [], default: allow}}\n",
    "limits": "policies: {p: {kind: limit}}\n",
}
"""What covers a call with the text ``no``: `covers` and `denies` always, `reads` those effects, the others nothing."""


class Limit:
    """A kind of policy that only limits calls, and never reaches its limit."""

    spec = GateSpec(pure=True, limits=True)

    def __init__(self, settings, host):
        pass

    def __call__(self, call):
        return ALLOW


@pytest.fixture
def shop(tmp_path):
    made = Workshop(tmp_path)
    made.offer("tool", "echo", workshop.tool(effects="none", gives=workshop.TEXT, takes=workshop.TEXT))
    made.offer("policy", "rules", workshop.Rules)
    made.offer("policy", "limit", Limit)
    made.offer("hook", "guard", workshop.hook())
    yield made
    made.withdraw()


def expected_outcome(effects: str, policy: str, default: str) -> str:
    """Return what the rule says about a call with the text ``no``, under ``enforcement: enforce``."""
    if policy in ("covers", "denies"):
        return "allow" if policy == "covers" else "deny"
    said = {
        "unset": {"write": "deny", "irreversible": "ask"},
        "write: allow": {"write": "allow", "irreversible": "ask"},
        "write: ask": {"write": "ask", "irreversible": "ask"},
        "both: deny": {"write": "deny", "irreversible": "deny"},
    }
    return said[default].get(effects, "allow")


def decide(bindings: Any, ability: str = "echo", text: str = "no", **who: Any) -> Verdict:
    raw = canonical.encode({"text": text})
    caller = Caller(**({"principal": Principal("ada", "cli"), "actor": "user", "scope": EVERYTHING} | who))
    judging = judge(bindings, caller, ability, canonical.decode(raw), raw, WHEN, lambda: 0.0)
    try:
        next(judging)
    except StopIteration as done:
        return done.value
    raise AssertionError("a gate that is not pure was asked")


@for_each("effects, policy, default", list(product(EFFECTS, POLICIES, DEFAULTS)))
def test_calls_with_effects_that_no_policy_covers_ask_or_are_denied(shop, effects, policy, default):
    shop.ability("echo", f"effects: {effects}\n")
    wanted = expected_outcome(effects, policy, default)
    for enforcement in ("enforce", "observe"):
        head = f"{workshop.HEAD}enforcement: {enforcement}\n"
        shop.write("deedbook.yaml", head + DEFAULTS[default] + POLICIES[policy])
        verdict = decide(shop.freeze())
        recorded = max((decision.outcome for _, decision in verdict.policies), key=["allow", "ask", "deny"].index,
                       default="allow")  # fmt: skip
        assert (verdict.outcome, recorded) == (wanted if enforcement == "enforce" else "allow", wanted)


@for_each("effects, policy, default", list(product(EFFECTS, POLICIES, DEFAULTS)))
def test_what_is_reported_about_an_ability_is_the_sentence_of_the_call(shop, effects, policy, default):
    shop.ability("echo", f"effects: {effects}\n")
    shop.write("deedbook.yaml", workshop.HEAD + DEFAULTS[default] + POLICIES[policy])
    bindings = shop.freeze()
    document = bindings.charter.document
    verdict = decide(bindings)
    reported = find_unguarded(document)
    refused = verdict.outcome != "allow" and policy != "denies"
    if refused:
        assert [each.sentence for each in reported] == [verdict.reason]
        assert reported[0].some == (policy == "some")
    else:
        # what is allowed is reported only where no policy has a say at all
        assert [each.outcome for each in reported] in ([], ["allow"])
        assert bool(reported) == (policy == "none" or (policy, effects) in {
            ("reads", "write"), ("reads", "irreversible"), ("limits", effects)
        })  # fmt: skip
    for each in reported:
        assert each.sentence == describe_default(document, "echo", document["abilities"]["echo"])


def test_a_charter_without_the_member_allows_what_no_policy_covers(shop):
    """A recorded call of an older charter is judged by the rule of its time."""
    shop.ability("echo", "effects: irreversible\n")
    new = shop.compile()
    assert new.document[DEFAULT] == {"irreversible": "ask", "write": None}
    old = Charter.of({name: value for name, value in new.document.items() if name != DEFAULT})
    assert decide(shop.freeze(new)).outcome == "ask"
    verdict = decide(shop.freeze(old))
    assert (verdict.outcome, verdict.policies) == ("allow", [])


def test_a_change_of_what_is_not_covered_has_its_direction(shop):
    shop.ability("echo", "effects: write\n")
    unset = shop.compile().document
    shop.settings("default: {write: allow}\n")
    allow = shop.compile().document
    old = {name: value for name, value in unset.items() if name != DEFAULT}
    assert compare(unset, allow).looser == ("default: write that no policy covers: allow, was deny",)
    assert compare(allow, unset).tighter == ("default: write that no policy covers: deny, was allow",)
    assert compare(old, unset).tighter == (
        "default: irreversible that no policy covers: ask, was allow",
        "default: write that no policy covers: deny, was allow",
    )


def test_a_start_compiles_again_what_was_compiled_without_the_rule(shop):
    shop.ability("echo", "effects: write\n")
    new = shop.open().charter
    old = Charter.of({name: value for name, value in new.document.items() if name != DEFAULT})
    with Folder.at(shop.root) as root:
        shop.store().keep(old, root)
    shop.store().adopt(old)
    assert shop.open().charter.digest == new.digest


GUARDS = {
    "a hook": (lambda shop: shop.hook("h", named=True), "hooks/h.yaml:1", "hook 'h' guards nothing"),
    "a hook of results": (
        lambda shop: shop.hook("h", event="PostToolUse", named=True), "hooks/h.yaml:1", "hook 'h' guards nothing",
    ),
    "a policy": (lambda shop: shop.policy("p", "rules: []\n", named=True), "policies/p.yaml:1", "policy 'p' guards"),
    "a hook in the settings": (
        lambda shop: shop.settings("hooks: {h: {event_type: PreToolUse, handler: {hook: guard}}}\n"),
        "deedbook.yaml:2", "hook 'h' guards nothing",
    ),
}  # fmt: skip


@for_each("write, place, why", GUARDS.values(), GUARDS)
def test_a_guard_that_nothing_names_and_that_has_no_match_is_an_error(tmp_path_factory, write, place, why):
    shop = Workshop(tmp_path_factory.mktemp("guard"))
    shop.offer("tool", "echo", workshop.Echo)
    shop.offer("policy", "rules", workshop.Rules)
    shop.offer("hook", "guard", workshop.hook())
    shop.ability("echo")
    write(shop)
    [(code, where, message)] = shop.faults()
    assert (code, where) == ("BINDING_INVALID", f".system/{place}")
    assert message.startswith(why)
    assert "add match:" in message
    shop.withdraw()


def test_a_guard_that_an_ability_names_or_that_hears_no_calls_needs_no_match(shop):
    shop.hook("h", named=True)
    shop.policy("p", "rules: []\n", named=True)
    shop.hook("ends", event="SessionStop")
    shop.ability("echo", "hooks: {pre_call: [h]}\npolicies: [p]\n")
    shop.ability("other")
    abilities = shop.freeze().abilities
    assert [gate.id for gate in abilities["other"].guards + abilities["other"].policies] == []


def test_the_default_principal_has_no_roles(shop):
    shop.settings("principals:\n  local: {roles: [owner]}\n")
    [(code, place, message)] = shop.faults()
    assert (code, place) == ("BINDING_INVALID", ".system/deedbook.yaml:3:11")
    assert "act for it with --as ID" in message


# --- the commands -----------------------------------------------------------------------------------------------------

PAY = """\
schema_version: v1
enforcement: {enforcement}
{default}
abilities:
  pay: {{summary: Pay an invoice., handler: {{tool: echo}}, effects: {effects}}}
"""


@pytest.fixture
def paying(tmp_path_factory):
    """Give a function that writes a workspace whose only ability is `pay`."""

    def write(effects: str, enforcement: str = "enforce", default: str = "") -> Place:
        made = Place(tmp_path_factory.mktemp("paying"))
        made.system("deedbook.yaml", PAY.format(effects=effects, enforcement=enforcement, default=default))
        return made

    return write


@for_each("effects, default, code", [
    ("irreversible", "", "NEEDS_HUMAN"),
    ("irreversible", "default: {irreversible: deny}", "GATE_DENIED"),
    ("write", "", "GATE_DENIED"),
    ("write", "default: {write: ask}", "NEEDS_HUMAN"),
])  # fmt: skip
def test_call_lock_doctor_lint_and_explain_say_the_same_sentence(paying, effects, default, code):
    place = paying(effects, default=default)
    place.here("call", "pay", "text=hi", status=3)
    [denied] = place.payloads("tool.denied")
    sentence, _, _ = denied["reason"].partition("; approval ")
    assert denied["code"] == code
    assert denied["by"] == {"policy": "deedbook:default", "place": ".system/deedbook.yaml"}
    assert sentence.startswith(f"no policy covers pay, whose effects are {effects}: ")
    assert sentence in place.here("lock", status=0).out
    assert sentence in place.here("doctor").out
    assert sentence in place.here("policy", "list", status=0).err
    assert sentence in place.here("abilities", "show", "pay", status=0).out
    assert sentence in place.here("registry", "lint").out
    explained = place.here("explain", "pay", "text=hi", "--json").json
    assert (explained["code"], explained["reason"]) == (code, sentence)
    assert "add a policy with match: {abilities: pay}" in explained["remedy"]
    place.here("verify", status=0)


@for_each("effects, decision", [("irreversible", "ask"), ("write", "deny")])
def test_under_observe_the_answer_is_recorded_and_the_call_runs(paying, effects, decision):
    place = paying(effects, "observe")
    place.here("call", "pay", "text=hi", status=0)
    [check] = place.payloads("policy.check")
    assert (check["decision"], check["enforcement"]) == (decision, "observe")
    assert check["asked"][0]["policy"] == "deedbook:default"
    assert check["asked"][0]["reason"].endswith("under enforcement: observe this is only recorded")
    assert check["asked"][0]["reason"] in place.here("lock", status=0).out
    place.here("verify", status=0)
