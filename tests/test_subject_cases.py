"""Policy tests about subjects: cases of version 2, and the rules that they cover."""

import json

import pytest
from test_subjects import Severity, kind
from test_subjects_audit import BODY

from deedbook import allow
from deedbook.format.errors import SourceError
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.policy_kinds import installed_kinds
from deedbook.workspace.trees import SourceTree
from deedbook_author.commands.policy import _list_subjects, _policy
from deedbook_author.policy_cases import coverage, read_cases, run_case

SCHEMAS = Schemas.load(data_folder("schemas"))
CASES = """schema_version: v2
cases:
  - {name: worst, policy: routing, subject: finding, value: {severity: P0}, expect: deny, rule: 1, reason: fix it}
  - {name: minor, policy: routing, subject: finding, value: {severity: P1}, expect: advisory, signals: {route: gated}}
  - {name: a call, ability: echo, args: {text: hi}, expect: allow}
"""


class Listing(Severity):
    """The kind with a list of the rules that can decide."""

    @staticmethod
    def reachable(body, abilities):
        return [*range(len(body["rules"])), None]


@pytest.fixture
def ruled(lab):
    lab.offer("policy", "severity", Listing)
    lab.settings(policies={"routing": BODY}, enforcement="observe")
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("base", lambda call: allow(), pure=True)
    return lab


def cases(lab, text):
    lab.write("policies/routing.test.yaml", text)
    with Folder.at(lab.path) as folder:
        return read_cases(SourceTree(folder, ".system"), ".system/policies/routing.test.yaml", SCHEMAS)


def one(lab, **body):
    """Run one case; return its result."""
    said = {"name": "x", "policy": "routing", "subject": "finding", "value": {"severity": "P1"}, **body}
    (case,) = cases(lab, f"schema_version: v2\ncases: [{json.dumps(said)}]\n")
    with lab.kernel() as kernel:
        return run_case(kernel.bindings, case)


MONTHLY = {
    "kind": "budget", "match": {"kind": ["tool"]}, "per": "principal", "account": "monthly", "every": "month",
    "limits": {"calls": 3, "depth": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("used", "expect", "reason"),
    [
        ({"accounts": {"monthly/principal/month": {"calls": {"**": 2}}}}, "allow", None),
        ({"accounts": {"monthly/principal/month": {"calls": {"**": 3}}}}, "deny", "3 of 3 are used or reserved"),
        ({"accounts": {"monthly/workspace": {"calls": {"**": 3}}}}, "allow", None),
        ({"depth": 2}, "deny", "2 is deeper than 1"),
    ],
    ids=["enough is left", "nothing is left", "another account", "too deep"],
)
def test_case_gives_what_an_account_has_used(ruled, used, expect, reason):
    ruled.settings(policies={"monthly": MONTHLY})
    said = {"name": "x", "ability": "echo", "args": {}, "facts": {"budgets.used": used}, "expect": expect}
    said |= {"reason": reason} if reason else {}
    (case,) = cases(ruled, f"schema_version: v2\ncases: [{json.dumps(said)}]\n")
    with ruled.kernel() as kernel:
        assert run_case(kernel.bindings, case).problem == ""


def test_fact_that_nothing_reads_is_a_problem(ruled):
    fact = {"budgets.used": {"depth": 2}}
    assert one(ruled, facts=fact, expect="advisory").problem == "no policy and no hook reads the fact 'budgets.used'"
    with pytest.raises(SourceError, match=r"depth: is less than the minimum"):
        one(ruled, facts={"budgets.used": {"depth": -1}}, expect="advisory")


def test_cases_about_subjects_and_calls_pass_side_by_side_and_enforce(ruled):
    with ruled.kernel() as kernel:
        results = [run_case(kernel.bindings, case) for case in cases(ruled, CASES)]
        parts = coverage(kernel.bindings, results, installed_kinds(ruled.catalogue()))
    assert [(each.got, each.problem) for each in results] == [("deny", ""), ("advisory", ""), ("allow", "")]
    assert results[0].decided_by["policy"] == "routing"
    assert [(part.policy, part.rule, part.covered) for part in parts] == [
        ("routing", 0, True),
        ("routing", 1, True),
        ("routing", None, False),
    ]


def test_result_as_json_names_policy_and_subject(ruled):
    found = one(ruled, expect="advisory").as_json()
    assert (found["policy"], found["subject"], found["ability"], found["got"]) == ("routing", "finding", "", "advisory")
    told = {"schema_version": "v1", "ok": True, "cases": [found], "coverage": {"percent": 100, "rules": []}}
    assert SCHEMAS.validator("output_policy_test_v1").violations(told) == ()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"expect": "deny"}, "expected deny, got advisory"),
        ({"expect": "advisory", "rule": 1}, "expected rule 1 to decide, got rule 2 of routing"),
        ({"expect": "advisory", "rule": "default"}, "expected rule default to decide"),
        ({"expect": "advisory", "reason": "never"}, "expected a reason with 'never', got 'look at it'"),
        ({"expect": "advisory", "signals": {"route": "free"}}, 'expected the signal route = "free"'),
        ({"expect": "deny", "value": {"severity": "P9"}}, "no policy was asked: finding: $.severity"),
        ({"expect": "deny", "policy": "rooting"}, "did you mean"),
        ({"expect": "deny", "subject": "findings"}, "did you mean"),
    ],
)
def test_case_that_does_not_hold_says_why(ruled, body, problem):
    assert problem in one(ruled, **body).problem


def test_policy_that_is_not_pure_cannot_be_tested(lab):
    lab.offer("policy", "own", kind(lambda case: allow()))
    lab.settings(policies={"routing": {"kind": "own"}})
    assert "is not pure" in one(lab, expect="allow").problem


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("{name: a, subject: finding, value: {}, expect: deny}", "policy"),
        ("{name: a, subject: finding, policy: routing, expect: deny}", "value"),
        ("{name: a, subject: finding, policy: routing, value: {}, ability: echo, expect: deny}", "ability"),
        ("{name: a, ability: echo, value: {}, expect: deny}", "value"),
        ("{name: a, ability: echo, expect: advisory}", "expect"),
        ("{name: a, expect: allow}", "ability"),
    ],
)
def test_case_that_mixes_call_and_subject_is_refused_with_its_place(lab, case, words):
    with pytest.raises(SourceError) as refused:
        cases(lab, f"schema_version: v2\ncases:\n  - {case}\n")
    assert refused.value.errors[0].place.startswith(".system/policies/routing.test.yaml:3")
    assert words in str(refused.value)


def test_case_about_a_subject_in_a_file_of_version_1_is_refused(lab):
    with pytest.raises(SourceError) as refused:
        cases(lab, CASES.replace("v2", "v1"))
    assert "unknown key" in str(refused.value)


def test_list_of_policies_shows_subjects(ruled):
    with ruled.kernel() as kernel:
        entry = kernel.bindings.charter.document["policies"]["routing"]
    assert _list_subjects(entry, []) == "finding"
    told = {"schema_version": "v1", "policies": [_policy("routing", entry, [])], "idle": []}
    assert told["policies"][0]["subjects"] == ["finding"]
    assert SCHEMAS.validator("output_policy_list_v1").violations(told) == ()
