"""`deedbook policy`: tests of policies, which rules they reach, and rules that nobody reaches."""

import re

import pytest
from commandline import ROOT, Place

POLICY = """\
    schema_version: v1
    id: baseline
    kind: rules
    match: {kind: [tool, flow]}
    reads: [session.calls, session.started]
    rules:
      - match: {abilities: echo}
        when: has(args.text) && args.text.contains("secret")
        then: deny
        reason: no secrets
      - match: {abilities: echo, roles: [guest]}
        then: ask
        reason: guests are asked about
      - match: {}
        when: >-
          "echo" in facts.session.calls && facts.session.calls["echo"] >= 2
          || timestamp(call.now) - timestamp(facts.session.started) > duration("60s")
        then: deny
        reason: that is enough
      - match: {effects: [none, read]}
        then: allow
    """
CASES = """\
    schema_version: v1
    cases:
      - {name: plain, ability: echo, args: {text: hi}, expect: allow, rule: 4}
      - {name: secrets, ability: echo, args: {text: a secret}, expect: deny, rule: 1, reason: no secrets}
      - {name: guests, ability: echo, args: {text: hi}, principal: bob, roles: [guest], expect: ask, rule: 2}
      - {name: the third, ability: echo, args: {text: hi}, facts: {session.calls: {echo: 2}}, expect: deny,
         rule: "baseline.yaml:14"}
      - {name: too late, ability: echo, args: {text: hi}, now: "2026-01-01T00:01:01.000Z", expect: deny,
         facts: {session.started: "2026-01-01T00:00:00.000Z"}}
    """
WRITES = """\
    schema_version: v1
    cases:
      - name: nobody writes
        ability: file-write
        args: {schema_version: v1, path: reports/a.md, text: x, who: ada, why: a report, expected_hash: ""}
        expect: deny
        rule: default
    """


@pytest.fixture
def ruled(place: Place) -> Place:
    place.system("policies/baseline.yaml", POLICY)
    place.system("policies/baseline.test.yaml", CASES)
    return place


def test_the_starters_own_policy_is_tested_whole(place: Place):
    ran = place.here("policy", "test", "--coverage", "100", status=0)
    assert ran.out == "6 of 6 cases passed; 4 of 4 rules and defaults decided (100 %)\n"


def test_cases_are_judged_and_what_never_decided_is_named(ruled: Place):
    ran = ruled.here("policy", "test", status=0)
    assert ran.out.splitlines() == [
        "never decided: the default of baseline (.system/policies/baseline.yaml:1)",
        "5 of 5 cases passed; 4 of 5 rules and defaults decided (80 %)",
    ]
    ruled.here("policy", "test", "--coverage", "80", status=0)
    assert "80 % of the rules; 81 % are required" in ruled.here("policy", "test", "--coverage", "81", status=1).err
    ruled.system("policies/more.test.yaml", WRITES)
    ruled.here("policy", "test", "--coverage", "100", status=0)


def test_nothing_is_called_and_nothing_written(ruled: Place):
    ruled.here("policy", "test", status=0)
    assert ruled.sessions() == []
    assert not (ruled.path / ".deedbook").exists()


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("ability: echo, args: {text: hi}, expect: deny", "expected deny, got allow"),
        ("ability: echo, args: {text: secret}, expect: allow", "expected allow, got deny"),
        (
            "ability: echo, args: {text: hi}, expect: allow, rule: 1",
            "expected rule 1 to decide, got rule 4 of baseline",
        ),
        ("ability: echo, args: {text: hi}, expect: allow, rule: default", "expected rule default to decide"),
        ("ability: echo, args: {text: secret}, expect: deny, reason: guests", "expected a reason with 'guests'"),
        ("ability: echo, args: {txet: hi}, expect: deny", "no policy was asked: "),
        ("ability: echo, args: {text: 3}, expect: deny", "[SCHEMA_VIOLATION]"),
        ("ability: ecko, expect: deny", "no ability 'ecko' is declared; did you mean \"echo\"?"),
        ("ability: echo, args: {text: hi}, expect: allow, policies: [basline]", 'did you mean "baseline"?'),
        ("ability: echo, args: {text: {$sealed: x}}, expect: allow", "$sealed"),
    ],
)
def test_a_case_that_fails_says_what_was_expected_and_what_came(ruled: Place, case, problem):
    ruled.system("policies/more.test.yaml", f"schema_version: v1\ncases: [{{name: this, {case}}}]\n")
    ran = ruled.here("policy", "test", str(ruled.path / ".system/policies/more.test.yaml"), status=1)
    assert ran.out.startswith("FAILED this (.system/policies/more.test.yaml:2): ")
    assert problem in ran.out
    assert "0 of 1 case passed" in ran.out


def test_who_decided_is_said_with_the_place_of_the_rule(ruled: Place):
    case = "{name: x, ability: echo, args: {text: secret}, expect: ask}"
    ruled.system("policies/more.test.yaml", f"schema_version: v1\ncases: [{case}]\n")
    out = ruled.here("policy", "test", status=1).out
    assert "decided by policy baseline (.system/policies/baseline.yaml:7): no secrets" in out


def test_only_named_policies_are_asked_and_hooks_only_where_that_is_wanted(place: Place):
    place.system("policies/closed.yaml", "schema_version: v1\nid: closed\nkind: rules\nmatch: {}\nrules: []\n")
    named = "{name: a, ability: echo, args: {text: x}, policies: [baseline], expect: allow}"
    place.system("policies/a.test.yaml", f"schema_version: v1\ncases:\n  - {named}\n"
                 "  - {name: b, ability: echo, args: {text: x}, expect: deny, rule: default}\n")  # fmt: skip
    path = str(place.path / ".system/policies/a.test.yaml")
    place.here("policy", "test", path, status=0)
    place.system("hooks/no.yaml", "schema_version: v1\nid: no\nevent_type: PreToolUse\nhandler: {hook: deny-tools}\n"
                 "with: {names: [echo]}\nmatch: {}\n")  # fmt: skip
    place.here("policy", "test", path, status=0)
    out = place.here("policy", "test", path, "--hooks", status=1).out
    assert "FAILED a (.system/policies/a.test.yaml:3): expected allow, got deny" in out
    assert "decided by hook no" in out


def test_a_policy_that_is_not_pure_is_not_tested(place: Place):
    place.offer("policy_kinds", "moody", """
        from deedbook import GateSpec, allow

        class Plugin:
            spec = GateSpec(settings={"type": "object"})

            def __init__(self, settings, host): pass

            def __call__(self, call): return allow()
        """)  # fmt: skip
    place.system("policies/moody.yaml", "schema_version: v1\nid: moody\nkind: moody\nmatch: {}\n")
    out = place.run("policy", "test", status=1).out
    assert "policy 'moody' is not pure, so that it cannot be tested" in out


def test_observing_workspaces_are_tested_as_if_policies_bound(ruled: Place):
    ruled.configure("enforcement: enforce", "enforcement: observe")
    ruled.here("policy", "test", status=0)


def test_budgets_are_tested_with_facts(place: Place):
    spending = "schema_version: v1\nid: spending\nkind: budget\nmatch: {}\nlimits: {calls: 2}\n"
    place.system("policies/spending.yaml", spending)
    place.system("policies/spending.test.yaml", """\
        schema_version: v1
        cases:
          - {name: one is left, ability: echo, args: {text: x}, facts: {session.calls: {echo: 1}}, expect: allow}
          - {name: none is left, ability: echo, args: {text: x}, facts: {session.calls: {echo: 2}}, expect: deny,
             reason: "calls: 2 of 2 are used"}
        """)  # fmt: skip
    place.here("policy", "test", status=0)


def test_tests_as_json_fit_their_schema(ruled: Place):
    told = ruled.here("policy", "test", "--json", status=0).fits("output_policy_test_v1")
    assert told["ok"]
    assert [case["got"] for case in told["cases"]] == ["allow", "deny", "ask", "deny", "deny"]
    assert told["coverage"]["percent"] == 80
    assert [rule["rule"] for rule in told["coverage"]["rules"]] == [1, 2, 3, 4, None]
    assert not ruled.here("policy", "test", "--json", "--coverage", "100", status=1).json["ok"]


@pytest.mark.parametrize(
    ("text", "place_in", "said"),
    [
        ("schema_version: v1\ncases: []\n", "2:8", "less than 1 item"),
        ("schema_version: v1\ncases:\n  - {name: a, ability: echo, expekt: deny, expect: deny}\n", "3:30", "expect"),
        ("schema_version: v1\ncases:\n  - {name: a, ability: echo, expect: maybe}\n", "3:38", "is not one of"),
        ("schema_version: v1\ncases:\n  - {name: a, ability: e, expect: deny, facts: {calls: 1}}\n", "3:49", "calls"),
        ("schema_version: v1\ncases:\n- {name: a, ability: e, expect: deny}\n- {name: a, ability: e, expect: deny}\n",
         "4", "name it"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_tests_is_refused_with_its_place(place: Place, text, place_in, said):
    place.system("policies/wrong.test.yaml", text)
    err = place.here("policy", "test", status=1).err
    assert f".system/policies/wrong.test.yaml:{place_in}: " in err
    assert said in err


def test_files_of_tests_are_no_sources(ruled: Place):
    before = ruled.here("lock", "--json", status=0).json["charter"]
    ruled.system("policies/baseline.test.yaml", "nonsense: true\n")
    ruled.system("hooks/some.test.yaml", "nonsense: true\n")
    assert ruled.here("lock", "--json", status=0).json["charter"] == before


def test_without_tests_it_says_so_and_nothing_has_failed_unless_coverage_is_wanted(place: Place):
    (place.path / ".system/policies/baseline.test.yaml").unlink()
    ran = place.here("policy", "test", status=0)
    assert ran.err == "there are no tests; write some in .system/policies/NAME.test.yaml\n"
    assert "0 of 0 cases passed; 0 of" in ran.out
    ran = place.here("policy", "test", "--json", status=0)
    assert ran.fits("output_policy_test_v1")["cases"] == []
    assert "50 % are required" in place.here("policy", "test", "--coverage", "50", status=1).err


def test_a_test_outside_the_workspace_or_a_misspelt_command_is_wrong_usage(place: Place):
    assert "outside the workspace" in place.here("policy", "test", "/nowhere/x.test.yaml", status=2).err
    assert 'did you mean "test"' in place.here("policy", "tets", status=2).err


# --- lists ------------------------------------------------------------------------------------------------------------


def test_policies_are_listed_with_what_they_are_about(ruled: Place):
    line = ruled.here("policy", "list", status=0).out
    assert line.split() == ["baseline", "rules", "4", "rules", "10", "abilities", ".system/policies/baseline.yaml:1"]
    told = ruled.here("policy", "list", "--json", status=0).fits("output_policy_list_v1")
    [baseline] = told["policies"]
    assert (baseline["reads"], len(baseline["abilities"])) == (["session.calls", "session.started"], 10)
    assert [rule["then"] for rule in baseline["rules"]] == ["deny", "ask", "deny", "allow"]
    assert baseline["rules"][0]["when"] == 'has(args.text) && args.text.contains("secret")'
    assert told["idle"] == []


def test_rules_that_never_decide_are_named_when_listed_and_when_locked(place: Place):
    place.system("policies/baseline.yaml", """\
        schema_version: v1
        id: baseline
        kind: rules
        match: {}
        rules:
          - {match: {effects: [none, read, write]}, then: allow}
          - {match: {abilities: echo}, then: deny}
          - {match: {abilities: frobnicate}, then: deny}
        """)  # fmt: skip
    reached = "is never reached: rule 1 always decides before it (.system/policies/baseline.yaml:6)"
    about = "does not guard 'frobnicate': it is no ability of this workspace; correct it, or remove it"
    listed = place.here("policy", "list", status=0).err
    assert f".system/policies/baseline.yaml:7: rule 2 of policy baseline {reached}" in listed
    assert f".system/policies/baseline.yaml:8: rule 3 of policy baseline {about}" in listed
    locked = place.here("lock", status=0).out
    assert f".system/policies/baseline.yaml:7: rule 2 of policy baseline {reached}" in locked
    assert f".system/policies/baseline.yaml:8: rule 3 of policy baseline {about}" in locked
    idle = place.here("policy", "list", "--json", status=0).fits("output_policy_list_v1")["idle"]
    assert [each["rule"] for each in idle] == [2, 3]


def test_a_workspace_without_policies_says_so(tmp_path):
    place = Place(tmp_path)
    place.system("deedbook.yaml", "schema_version: v1\nabilities: {echo: {summary: Echo., handler: {tool: echo}}}\n")
    assert "no policies are declared" in place.here("policy", "list", status=0).out


# --- at the door ------------------------------------------------------------------------------------------------------


def test_a_condition_decides_at_the_door_and_names_its_rule(ruled: Place):
    ruled.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    denied = ruled.here("call", "echo", "--args", '{"text":"a secret"}', status=3)
    assert "no secrets (by policy baseline, .system/policies/baseline.yaml:7)" in denied.err
    [check] = ruled.payloads("policy.check", denied.session)
    assert sorted(check["facts"]) == ["session.calls", "session.started"]


def test_a_condition_that_cannot_be_decided_denies_whatever_its_rule_says(place: Place):
    place.system("policies/baseline.yaml", """\
        schema_version: v1
        id: baseline
        kind: rules
        match: {}
        reads: [session.calls]
        rules:
          - {match: {abilities: echo}, when: 'facts.session.calls["none"] > 0', then: allow}
        default: allow
        """)  # fmt: skip
    err = place.here("call", "echo", "--args", '{"text":"hi"}', status=3).err
    assert "rule 1: when cannot be decided: NOT_FOUND: Key not found" in err
    assert ".system/policies/baseline.yaml:7" in err


def test_misspelt_conditions_are_refused_at_their_column(place: Place):
    place.system("policies/baseline.yaml", """\
        schema_version: v1
        id: baseline
        kind: rules
        match: {}
        rules:
          - match: {abilities: echo}
            when: |
              has(args.text) &&
                args.txt == "x"
            then: deny
        """)  # fmt: skip
    err = place.here("call", "echo", "--args", '{"text":"hi"}', status=1).err
    assert ".system/policies/baseline.yaml:9:14: $.rules[0].when: no ability that this rule can be about has " in err
    assert 'the argument txt; did you mean "text"?' in err


MISSPELT = """\
    schema_version: v1
    id: baseline
    kind: rules
    match: {}
    rules:
      - {match: {abilities: echo, args: {/txt: %s}}, then: %s}
    default: allow
    """


@pytest.mark.parametrize("then", ["deny", "ask"])
def test_a_guard_on_an_argument_that_no_ability_takes_is_refused_at_its_column(place: Place, then: str):
    place.system("policies/baseline.yaml", MISSPELT % ("x", then))
    err = place.here("call", "echo", "--args", '{"text":"x"}', status=1).err
    assert ".system/policies/baseline.yaml:6:38: $.rules[0].match.args['/txt']: no ability that this rule can be" in err
    assert 'has the argument txt; did you mean "text"?; known: text; this rule can never hold [BINDING_INVALID]' in err
    place.system("policies/baseline.yaml", (MISSPELT % ("x", then)).replace("/txt", "/text"))
    said = {"ask": "waits for a person: ", "deny": "denied: "}[then]
    assert said in place.here("call", "echo", "--args", '{"text":"x"}', status=3).err


@pytest.mark.parametrize(
    ("condition", "then", "so"),
    [("x", "allow", "this rule can never hold"), ("{present: false}", "deny", "it is always absent"),
     ("{present: false}", "allow", "it is always absent")],
)  # fmt: skip
def test_other_rules_about_an_argument_that_no_ability_takes_are_noted(place: Place, condition, then, so):
    place.system("policies/baseline.yaml", MISSPELT % (condition, then))
    where = ".system/policies/baseline.yaml:6:38"
    (noted,) = place.here("policy", "list", "--json", status=0).fits("output_policy_list_v1")["idle"]
    assert (noted["place"], noted["rule"]) == (where, 1)
    assert 'did you mean "text"?' in noted["why"]
    assert noted["why"].endswith(so)
    said = f"rule 1 of policy baseline {noted['why']}"
    assert f"{where}: {said}" in place.here("lock", status=0).out
    assert f"note: {where}: {said}" in place.here("registry", "lint", status=0).out


@pytest.mark.parametrize(
    "match",
    [
        "{abilities: [echo, file-read], args: {/path: x}}",  # one of them takes it
        "{abilities: echo, args: {/text/deeper: x}}",  # only the first step is looked at
        "{kind: model, args: {/nothing: x}}",  # bound by the completion contract
        "{abilities: nobody, args: {/nothing: x}}",  # said otherwise: it is about no ability
    ],
)
def test_an_argument_that_some_ability_may_take_is_not_called_misspelt(place: Place, match: str):
    place.system("policies/baseline.yaml", MISSPELT.replace("{abilities: echo, args: {/txt: %s}}", match) % "deny")
    noted = place.here("policy", "list", "--json", status=0).json["idle"]
    assert not [each for each in noted if "no argument" in each["why"]]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page_on_policies_hold(place: Place):
    page = (ROOT / "docs/policies.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n# \.system/(.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # those about subjects are run by the tests of deedbook-policy-standard
    shown = [block for block in blocks if block[0] not in ("policies/route-findings.yaml", "policies/bound-loops.yaml")]
    assert [path for path, _ in shown] == [
        "policies/baseline.yaml", "policies/spending.yaml", "policies/monthly.yaml", "policies/baseline.test.yaml",
    ]  # fmt: skip
    for path, text in shown:
        place.system(path, f"# .system/{path}\n{text}")
    ran = place.here("policy", "test", status=0)
    assert ran.out in page


def test_budget_over_sessions_is_tested_and_explained_with_an_empty_account(place: Place):
    body = "{schema_version: v1, id: all, kind: budget, match: {}, per: workspace, account: all, limits: {calls: %d}}\n"
    case = "{name: first, ability: echo, args: {text: hi}, policies: [all], expect: allow}"
    place.system("policies/all.yaml", body % 1)
    place.system("policies/all.test.yaml", f"{{schema_version: v1, cases: [{case}]}}\n")
    place.here("policy", "test", status=0)
    place.system("policies/all.yaml", body % 0)
    assert "calls of the account all/workspace" in place.here("explain", "echo", "text=hi", status=3).out
