"""Policies in Cedar: what decides, what is refused at load, and what denies."""

import subprocess
import sys

import pytest

from deedbook.contract import Call, PolicyTarget, Principal
from deedbook.format.errors import BindingError, Ok
from deedbook_policy_cedar.kind import Cedar

PERMIT = '@id("all") permit(principal, action, resource);'
FILES = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"$ref": "#/$defs/count"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "deep": {"type": "object", "properties": {"on": {"type": ["boolean", "null"]}}, "required": ["on"]},
        "ratio": {"type": "number"},
    },
    "required": ["path"],
    "$defs": {"count": {"type": "integer"}},
}


def policy(*texts):
    return Cedar({"rules": [{"cedar": text} for text in texts]}, None)


def call(ability="file-write", args=None, **more):
    who = Principal("ann", "cli", frozenset(more.pop("roles", ())), more.pop("on_behalf_of", None))
    given = {"kind": "tool", "effects": "write", "tags": frozenset(), "role": None, "skill": None, **more}
    return Call(ability=ability, args=args or {}, principal=who, enforcement="enforce", session="s",
                now="2026-01-02T03:04:05.006Z", raw=b"{}", facts={}, **given)  # fmt: skip


def target(name="file-write", takes=(FILES,)):
    return PolicyTarget(id=name, kind="tool", effects="write", tags=frozenset(), scopes=frozenset(), paths=(),
                        takes=takes)  # fmt: skip


def problems(*texts, abilities=None):
    body = {"rules": [{"cedar": text} for text in texts]}
    return list(Cedar.check(body, abilities or [target()]))


# --- decisions --------------------------------------------------------------------------------------------------------


def test_forbid_overrides_permit_and_each_names_its_rule():
    kind = policy(
        PERMIT, '@id("no") @reason("not here") forbid(principal, action, resource) when {context.args.n > 2};'
    )
    allowed, denied = kind(call(args={"n": 2})), kind(call(args={"n": 3}))
    assert (allowed.outcome, allowed.reason, allowed.signals["rule"]) == ("allow", "permit 'all'", 0)
    assert (denied.outcome, denied.reason, denied.signals["rule"]) == ("deny", "forbid 'no': not here", 1)


def test_nothing_is_allowed_without_a_permit():
    decision = policy('@id("x") permit(principal, action == Action::"other", resource);')(call())
    assert (decision.outcome, decision.reason, dict(decision.signals)) == ("deny", "no permit applies", {})
    assert policy()(call()).outcome == "deny"


def test_failing_forbid_denies_although_cedar_allows():
    kind = policy(PERMIT, '@id("no") forbid(principal, action, resource) when { context.args.missing };')
    decision = kind(call())
    assert decision.outcome == "deny"
    assert "Cedar reports an error" in decision.reason
    assert "`no`" in decision.reason


def test_failing_permit_beside_one_that_applies_denies():
    assert policy(PERMIT, '@id("p") permit(principal, action, resource) when { context.args.x };')(call()).outcome == (
        "deny"
    )


@pytest.mark.parametrize(
    ("when", "given"),
    [
        ('principal in Role::"editor"', {"roles": ["editor", "reader"]}),
        ('principal == Principal::"ann" && principal.via == "cli"', {}),
        ('principal has on_behalf_of && principal.on_behalf_of == "bob"', {"on_behalf_of": "bob"}),
        ('resource == Ability::"file-write" && resource.effects == "write"', {}),
        ('resource.tags.contains("slow")', {"tags": frozenset({"slow"})}),
        ('context has role && context.role == "worker"', {"role": "worker"}),
        ('context.now < datetime("2026-01-03") && context.session == "s"', {}),
        ('context.args.deep.on && context.args.tags.containsAll(["a"])',
         {"args": {"deep": {"on": True}, "tags": ["a"]}}),
    ],
)  # fmt: skip
def test_policy_sees_caller_ability_arguments_and_circumstances(when, given):
    kind = policy(f'@id("x") permit(principal, action == Action::"file-write", resource) when {{ {when} }};')
    assert kind(call(**given)).outcome == "allow"
    assert kind(call(ability="other")).outcome == "deny"


@pytest.mark.parametrize(
    ("args", "pointer"),
    [
        ({"a": None}, "/args/a is null"),
        ({"a": [1, {"b/c": 1.0}]}, "/args/a/1/b~1c is a number with a fraction"),
        ({"a": 2**63}, "/args/a is a number beyond 64 bits"),
        ({"a": -(2**63) - 1}, "/args/a is a number beyond 64 bits"),
        ({"a": {"__entity": {"type": "Role", "id": "admin"}}}, "/args/a/__entity is a name that Cedar reserves"),
        ({"__extn": {"fn": "ip", "arg": "127.0.0.1"}}, "/args/__extn is a name that Cedar reserves"),
    ],
)
def test_value_that_cedar_lacks_denies_with_its_pointer(args, pointer):
    decision = policy(PERMIT)(call(args=args))
    assert decision.outcome == "deny"
    assert pointer in decision.reason


def test_greatest_numbers_and_long_names_are_judged():
    who = {"roles": ['a"b\n', "ü"]}
    args = {"a": 2**63 - 1, "b": -(2**63), "c": [True, "\n\u2028"], "d": {}}
    assert policy(PERMIT)(call(args=args, **who)).outcome == "allow"


# --- before any call --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('@id("x") permit(principal, action, resource) when { context.args.pth == "a" };', "pth"),
        ('@id("x") permit(principal, action, resource) when { context.args.path == 3 };', "type"),
        ('@id("x") permit(principal, action, resource) when { context.args.count == 3 };', "optional attribute"),
        ('@id("x") permit(principal, action, resource) when { context.args has ratio && context.args.ratio == 3 };',
         None),
        ('@id("x") permit(principal, action == Action::"fil-write", resource);', "unrecognized action"),
        ('@id("x") permit(principal == Prncipal::"x", action, resource);', "Prncipal"),
        ('@id("x") permit(principal, action', "unexpected end of input"),
        ("permit(principal, action, resource);", "the policy has no name"),
        ('@id("") permit(principal, action, resource);', "the policy has no name"),
        (PERMIT + PERMIT, "expected one policy"),
        ("// nothing", "expected one policy"),
        ('@id("x") permit(principal == ?principal, action, resource);', "expected one policy"),
    ],
)  # fmt: skip
def test_faulty_policy_is_found_with_its_place(text, why):
    found = problems(PERMIT, text)
    if why is None:  # an argument without a type is absent for Cedar, so the rest of the condition is never read
        assert found == []
        return
    assert found, text
    assert {(each.pointer, each.rule) for each in found} == {("/rules/1/cedar", 1)}
    assert why in found[0].message


def test_types_of_arguments_come_from_all_schemas_of_the_ability():
    narrowed = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
    text = '@id("x") permit(principal, action, resource) when { context.args.count > 1 };'
    assert problems(text)
    assert problems(text, abilities=[target(takes=(FILES, narrowed))]) == []


def test_two_policies_of_one_name_are_refused():
    (found,) = problems(PERMIT, PERMIT)
    assert (found.rule, found.other_rules) == (1, (0,))
    with pytest.raises(BindingError, match="same @id"):
        policy(PERMIT, PERMIT)


def test_only_an_unknown_ability_is_tolerated_in_a_pack():
    unknown, misspelt = problems(
        '@id("x") permit(principal, action == Action::"nothing", resource);',
        '@id("y") permit(principal, action, resource) when { context.args.pth == "a" };',
    )
    assert (unknown.own, misspelt.own) == (True, False)


def test_workspace_with_a_faulty_policy_does_not_start(lab):
    lab.tool("write", lambda args, ctx: {}, takes=FILES)
    lab.settings(policies={"filing": {"kind": "cedar", "rules": [
        {"cedar": PERMIT}, {"cedar": '@id("x") permit(principal, action, resource) when { context.args.pth == "" };'},
    ]}})  # fmt: skip
    with pytest.raises(BindingError) as caught:
        lab.kernel()
    (error,) = caught.value.errors
    assert "pth" in error.message
    assert str(error.place).startswith(".system/deedbook.yaml:")


def test_denial_names_rule_file_and_line(lab):
    lab.tool("write", lambda args, ctx: {}, takes=FILES)
    forbid = '@id("env") forbid(principal, action, resource) when { context.args.path like "*.env" };'
    lab.settings(policies={"filing": {"kind": "cedar", "rules": [
        {"cedar": PERMIT}, {"cedar": forbid},
    ]}})  # fmt: skip
    with lab.session() as session:
        assert isinstance(session.call("write", {"path": "a.txt"}), Ok)
        denied = session.call("write", {"path": "a.env"}).error
    places = lab.kernel().bindings.charter.document["policies"]["filing"]["rules"]
    assert denied.code == "GATE_DENIED"
    assert "forbid 'env'" in denied.message
    checks = [each.payload for each in lab.all("policy.check")]
    assert [each["asked"][0]["rule"] for each in checks] == places
    assert all(place.startswith(".system/deedbook.yaml:") for place in places)
    assert lab.payload("tool.denied")["by"]["rule"] == places[1]


# --- the engine -------------------------------------------------------------------------------------------------------


def test_missing_engine_is_one_error_that_names_the_extra(lab, monkeypatch):
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    (found,) = problems(PERMIT, '@id("x") permit(principal, action, resource);')
    assert found.code == "NOT_AVAILABLE"
    with pytest.raises(BindingError) as caught:
        policy(PERMIT)
    assert caught.value.error.code == "NOT_AVAILABLE"
    lab.settings(policies={"filing": {"kind": "cedar", "rules": [{"cedar": PERMIT}]}})
    with pytest.raises(BindingError) as refused:
        lab.kernel()
    (error,) = refused.value.errors
    assert error.code == "NOT_AVAILABLE"
    assert "pip install 'deedbook-policy-cedar[cedar]'" in error.message


def test_engine_is_imported_only_where_there_is_a_policy():
    code = (
        "import sys; from deedbook_policy_cedar.kind import Cedar; print('cedarpy' in sys.modules);"
        "Cedar({'rules': []}, None); print('cedarpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
