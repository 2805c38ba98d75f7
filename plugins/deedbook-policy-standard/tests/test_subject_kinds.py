"""The five policy kinds about findings, generations and dispatches: what they decide, and what they refuse."""

import pytest
from cases import for_each

from deedbook.contract import Call, Principal, SubjectCase
from deedbook.format.errors import BindingError
from deedbook_policy_standard.dispatches import ModeDispatch, RolePermissions
from deedbook_policy_standard.findings import ConfidenceGating, SeverityRouting
from deedbook_policy_standard.loops import LoopHalt

NOW = "2026-01-01T00:00:00.000Z"
WHO = Principal("ada", "cli", frozenset({"lead"}))
FINDING = {
    "id": "f1", "reviewer": "reviewer/security", "severity": "P1", "autofix_class": "manual", "confidence": 75,
    "title": "t", "file": "src/a.py", "line": 3,
}  # fmt: skip
KINDS = {
    "finding": SeverityRouting, "generation": LoopHalt, "dispatch": ModeDispatch, "gating": ConfidenceGating,
}  # fmt: skip


def decide(kind, body, value, **more):
    policy = kind({"rules": [], **body}, None)
    told = {"role": "reviewer", "skill": None, "facts": {}, "mode": "interactive", **more}
    case = SubjectCase(
        name=kind.subject, value=value, principal=WHO, enforcement="enforce", session="s1", now=NOW, **told
    )
    return policy.decide(case)


def finding(**more):
    return {**FINDING, **more}


def problems(kind, body):
    return [(each.pointer, each.at, each.message) for each in kind.check(body, ())]


def refused(kind, body):
    """Return the only problem of a body, which also does not bind."""
    [(pointer, at, message)] = problems(kind, body)
    return pointer, at, message


# --- the rules of all kinds -------------------------------------------------------------------------------------------


@for_each(
    ("rules", "default", "expected"),
    [
        ([], None, ("deny", "no rule matches; the default is deny", {})),
        ([], "allow", ("allow", "", {})),
        ([], "advisory", ("advisory", "no rule matches; the default is advisory", {})),
        ([{"match": {"severity": "P1"}, "then": "allow"}], None, ("allow", "", {"rule": 0})),
        ([{"match": {"severity": "P0"}, "then": "allow"}], None, ("deny", "no rule matches; the default is deny", {})),
        (
            [{"match": {"severity": ["P0", "P1"]}, "then": "advisory"}],
            None,
            ("advisory", "rule 1 says advisory", {"rule": 0}),
        ),
        ([{"when": "finding.line == 3", "then": "deny", "reason": "no"}], "allow", ("deny", "no", {"rule": 0})),
        ([{"match": {"severity": "P1"}, "when": "finding.line == 4", "then": "deny"}], "allow", ("allow", "", {})),
        ([{"match": {"severity": "P1", "confidence": 50}, "then": "deny"}], "allow", ("allow", "", {})),
        ([{"match": {"line": 3.0}, "then": "allow"}], None, ("allow", "", {"rule": 0})),
    ],
)
def test_a_rule_holds_if_its_match_and_its_condition_do(rules, default, expected):
    body = {"rules": rules, **({"default": default} if default else {})}
    decision = decide(SeverityRouting, body, finding())
    assert (decision.outcome, decision.reason, decision.signals) == expected


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_strictest_rule_that_holds_decides_in_any_order(order):
    rules = [{"match": {"severity": "P1"}, "then": then} for then in ("allow", "advisory", "deny")]
    rules[1]["match"], rules[2]["match"] = {"confidence": 75}, {"line": 3}
    rules = [rules[index] for index in order]
    for strictest in ("deny", "advisory", "allow"):
        assert decide(SeverityRouting, {"rules": rules}, finding()).outcome == strictest
        rules = [rule for rule in rules if rule["then"] != strictest]


def test_a_stricter_rule_that_is_unclear_denies():
    rules = [{"match": {"severity": "P1"}, "then": "allow"}, {"when": "finding.column > 2", "then": "advisory"}]
    decision = decide(SeverityRouting, {"rules": rules}, finding())
    assert decision.outcome == "deny"
    assert decision.signals == {"rule": 1, "unclear": True}
    assert "Key not found" in decision.reason


def test_conditions_see_thresholds_and_who_asks():
    when = (
        "finding.confidence >= thresholds.least[finding.severity] && principal.id == 'ada' && role == 'reviewer' && "
        "skill == null && mode == 'interactive' && timestamp(now) > timestamp('2025-01-01T00:00:00Z') && "
        "facts.session.calls['echo'] == 2"
    )
    body = {"rules": [{"when": when, "then": "allow"}], "reads": ["session.calls"], "thresholds": {"least": {"P1": 75}}}
    assert problems(SeverityRouting, body) == []
    assert list(SeverityRouting.reads(body)) == ["session.calls"]
    facts = {"session.calls": {"echo": 2}}
    assert decide(SeverityRouting, body, finding(), facts=facts).outcome == "allow"
    assert decide(SeverityRouting, body, finding(confidence=50), facts=facts).outcome == "deny"
    assert "Key not found" in decide(SeverityRouting, body, finding(severity="P2"), facts=facts).reason


@for_each(
    ("subject", "rule", "member", "at", "said"),
    [
        ("finding", {"when": "finding.sevrity == 'P0'"}, "when", 8, 'did you mean "severity"?'),
        ("finding", {"when": "finding.severity == 'P9'"}, "when", 20, "never 'P9'"),
        ("finding", {"when": "generation.number > 1"}, "when", 0, "generation is not known"),
        ("finding", {"when": "thresholds.least > 1"}, "when", 11, "has no least"),
        ("finding", {"when": "facts.session.calls.size() > 1"}, "when", 6, "reads"),
        ("finding", {"match": {"sevrity": "P0"}}, "match/sevrity", None, 'did you mean "severity"?'),
        ("finding", {"match": {"severity": "P9"}}, "match/severity", None, "never 'P9'"),
        ("finding", {"match": {"confidence": "75"}}, "match/confidence", None, "never '75'"),
        ("finding", {"match": {"evidence": "x"}}, "match/evidence", None, "ask about it in when"),
        ("finding", {"match": {"severity": "P0"}, "then": "ask"}, "then", None, "allow"),
        ("finding", {"match": {"severity": "P0"}, "route": "later"}, "route", None, "apply"),
        ("gating", {"match": {"severity": "P0"}, "route": "apply"}, "route", None, "unknown"),
        ("generation", {"when": "generation.history.exists(h, h.grades > 1)"}, "when", 31, 'did you mean "grade"?'),
        ("dispatch", {"match": {"mode": "quiet"}}, "match/mode", None, "never 'quiet'"),
    ],
)
def test_what_is_wrong_with_a_rule_is_refused_where_it_stands(subject, rule, member, at, said):
    kind, body = KINDS[subject], {"rules": [{"then": "deny", **rule}]}
    found = refused(kind, body)
    assert found[:2] == (f"/rules/0/{member}", at)
    assert said in found[2]
    if at is None:
        with pytest.raises(BindingError):
            kind(body, None)


@for_each(
    ("body", "pointer", "said"),
    [
        ({"rules": [], "default": "ask"}, "/default", "allow"),
        ({"rules": [{"then": "deny"}]}, "/rules/0", "neither match nor when"),
        ({"rules": [{"match": {"line": 1}, "then": "deny"}, {"match": {"line": 1}, "then": "allow"}]}, "/rules/1",
         "where rule 1 does"),
        ({"rules": [], "threshold": {}}, "/threshold", "unknown"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_body_is_refused_where_it_stands(body, pointer, said):
    found = refused(SeverityRouting, body)
    assert (found[0], said in found[2]) == (pointer, True), found


def test_a_rule_that_never_decides_is_named():
    rules = [
        {"match": {"severity": ["P0", "P1"]}, "then": "deny"},
        {"match": {"severity": "P0", "autofix_class": "manual"}, "then": "allow"},
        {"match": {"severity": ["P1", "P2"]}, "then": "advisory"},
        {"match": {"severity": "P3"}, "when": "finding.line > 3", "then": "allow"},
        {"match": {"severity": "P3"}, "then": "allow"},
    ]
    body = {"rules": rules}
    assert [each.rule for each in SeverityRouting.lint(body, ())] == [1]
    assert SeverityRouting.reachable(body, ()) == {0, 2, 3, 4}
    assert SeverityRouting.reachable({"rules": rules[:2]}, ()) == {0, None}
    assert SeverityRouting.reachable({"rules": [{"match": {"file": "a"}, "then": "deny"}]}, ()) == {0, None}


def test_a_thousand_rules_are_narrowed_to_those_that_fit():
    rules = [{"match": {"file": f"src/{number}.py"}, "then": "deny"} for number in range(1000)]
    rules[700]["when"] = "finding.line > 2"
    policy = SeverityRouting({"rules": rules, "default": "allow"}, None)
    assert list(policy.find_deciding(finding(file="src/699.py"))) == [699]
    assert list(policy.find_deciding(finding(file="src/700.py"))) == [700, None]
    assert list(policy.find_deciding(finding(file="src/none.py"))) == [None]


# --- findings ---------------------------------------------------------------------------------------------------------


def test_confidence_gating_splits_by_confidence_and_severity():
    body = {
        "rules": [{"when": "finding.confidence >= thresholds[finding.severity]", "then": "allow"}],
        "thresholds": {"P0": 25, "P1": 50, "P2": 75, "P3": 100},
    }
    assert problems(ConfidenceGating, body) == []
    counted = {
        (severity, confidence)
        for severity in ("P0", "P1", "P2", "P3")
        for confidence in (0, 25, 50, 75, 100)
        if decide(ConfidenceGating, body, finding(severity=severity, confidence=confidence)).signals["split"]
        == "actionable"
    }
    assert len(counted) == 4 + 3 + 2 + 1
    assert ("P0", 25) in counted
    assert ("P3", 75) not in counted


def test_confidence_gating_suppresses_nothing_by_an_error():
    body = {"rules": [{"when": "finding.column > 1", "then": "allow"}]}
    decision = decide(ConfidenceGating, body, finding())
    assert (decision.outcome, decision.signals["split"]) == ("deny", "actionable")
    assert decide(ConfidenceGating, {}, finding()).signals == {"split": "suppressed"}


def test_severity_routing_takes_the_more_conservative_route():
    rules = [
        {"match": {"autofix_class": "safe_auto"}, "then": "allow", "route": "apply"},
        {"match": {"severity": ["P0", "P1"]}, "then": "allow", "route": "gated"},
        {"match": {"autofix_class": "manual"}, "then": "advisory", "route": "manual"},
        {"match": {"autofix_class": "manual", "severity": "P3"}, "then": "advisory", "route": "advisory"},
    ]
    routes = {
        (severity, autofix): decide(
            SeverityRouting, {"rules": rules}, finding(severity=severity, autofix_class=autofix)
        )
        for severity, autofix in [
            ("P2", "safe_auto"),
            ("P0", "safe_auto"),
            ("P1", "manual"),
            ("P3", "manual"),
            ("P3", "advisory"),
        ]
    }
    assert [decision.signals.get("route") for decision in routes.values()] == [
        "apply",
        "gated",
        "manual",
        "advisory",
        None,
    ]
    assert routes["P3", "advisory"].outcome == "deny"


# --- loops ------------------------------------------------------------------------------------------------------------


@for_each(
    ("generation", "outcome", "rule"),
    [
        ({"number": 1, "fingerprints": ["a"], "history": []}, "allow", None),
        ({"number": 3, "fingerprints": ["c"], "history": []}, "deny", 0),
        ({"number": 2, "fingerprints": ["a", "b"], "history": [{"fingerprints": ["b", "a"]}]}, "deny", 1),
        ({"number": 2, "fingerprints": [], "history": [{"fingerprints": []}]}, "allow", None),
        (
            {"number": 2, "fingerprints": ["b"], "grade": 1, "history": [{"fingerprints": ["a"], "grade": 2}]},
            "advisory",
            2,
        ),
        (
            {"number": 2, "fingerprints": ["b"], "grade": 2, "history": [{"fingerprints": ["a"], "grade": 2}]},
            "allow",
            None,
        ),
        ({"number": 2, "fingerprints": ["b"], "history": [{"fingerprints": ["a"], "grade": 2}]}, "allow", None),
    ],
)
def test_loop_halt_bounds_generations_oscillation_and_regression(generation, outcome, rule):
    body = {
        "thresholds": {"max_generations": 3},
        "rules": [
            {"when": "generation.number >= thresholds.max_generations", "then": "deny"},
            {"match": {"oscillates": True}, "then": "deny"},
            {"when": "generation.regresses", "then": "advisory"},
        ],
        "default": "allow",
    }
    assert problems(LoopHalt, body) == []
    decision = decide(LoopHalt, body, generation)
    assert (decision.outcome, decision.signals.get("rule")) == (outcome, rule)


# --- dispatches -------------------------------------------------------------------------------------------------------


def test_mode_dispatch_signals_what_is_delivered():
    body = {
        "rules": [
            {"match": {"mode": "headless"}, "then": "allow", "deliverables": ["findings"], "ux": "silent"},
            {"match": {"mode": "report-only"}, "then": "advisory", "deliverables": ["report"]},
        ]
    }
    dispatch = {"persona": "reviewer/security", "mode": "headless"}
    assert decide(ModeDispatch, body, dispatch).signals == {"rule": 0, "deliverables": ["findings"], "ux": "silent"}
    assert decide(ModeDispatch, body, {**dispatch, "mode": "report-only"}).signals == {
        "rule": 1,
        "deliverables": ["report"],
    }
    assert decide(ModeDispatch, body, {**dispatch, "mode": "interactive"}).outcome == "deny"


ROLES = {
    "personas": {
        "reviewer/security": {"writes": ["reports/security", "notes/*.md"]},
        "reviewer/*": {"writes": ["reports"]},
        "researcher/*": {"writes": []},
    },
    "rules": [{"match": {"role": ["reviewer", "researcher"]}, "then": "allow"}],
}


@for_each(
    ("dispatch", "outcome", "said"),
    [
        ({"persona": "reviewer/security", "role": "reviewer"}, "allow", ""),
        ({"persona": "reviewer/security", "role": "worker"}, "deny", "no rule matches"),
        (
            {"persona": "reviewer/security", "role": "reviewer", "writes": ["reports/security/new", "notes/*.md"]},
            "allow",
            "",
        ),
        (
            {"persona": "reviewer/security", "role": "reviewer", "writes": ["reports"]},
            "deny",
            "may write to reports/security",
        ),
        ({"persona": "reviewer/security", "role": "reviewer", "writes": ["reports/*.md"]}, "deny", "wants to write"),
        ({"persona": "reviewer/style", "role": "reviewer", "writes": ["reports/*.md", "reports/a/**"]}, "allow", ""),
        ({"persona": "reviewer/style", "role": "reviewer", "writes": ["reports*"]}, "deny", "wants to write"),
        ({"persona": "reviewer/style", "role": "reviewer", "writes": ["reports/../src"]}, "deny", "wants to write"),
        ({"persona": "researcher/web", "role": "researcher", "writes": ["a"]}, "deny", "may write to no path"),
        ({"persona": "else", "role": "reviewer", "writes": ["a"]}, "deny", "no row in personas"),
    ],
)
def test_role_permissions_restrict_dispatches(dispatch, outcome, said):
    decision = decide(RolePermissions, ROLES, dispatch)
    assert (decision.outcome, said in decision.reason) == (outcome, True), decision


def call(skill="reviewer/security", args=None, *, effects="write", kind="tool", paths=("/path", "/paths")):
    return Call(
        "file-write", kind, args or {}, effects, frozenset(), WHO, None, skill, "enforce", "s", NOW, b"{}", {},
        frozenset(), paths,
    )  # fmt: skip


@for_each(
    ("asked", "outcome"),
    [
        (call(args={"path": "reports/security/a.md"}), "allow"),
        (call(args={"path": "reports/security"}), "allow"),
        (call(args={"path": "./reports//security/x/../a.md"}), "allow"),
        (call(args={"path": "notes/a.md"}), "allow"),
        (call(args={"path": "notes/old/a.md"}), "deny"),
        (call(args={"path": "notes/../src/a.md"}), "deny"),
        (call(args={"path": "reports/security/../style/a.md"}), "deny"),
        (call(args={"path": "Reports/Security/a.md"}), "deny"),
        (call(args={"path": "reports/securityx/a.md"}), "deny"),
        (call(args={"path": "/reports/security/a.md"}), "deny"),
        (call(args={"path": "reports\\security\\a.md"}), "deny"),
        (call(args={"path": 3}), "deny"),
        (call(args={"paths": ["reports/security/a.md", "src/a.py"]}), "deny"),
        (call(args={"path": "reports/security/a", "paths": ["reports/security/b"]}), "allow"),
        (call(args={"text": "x"}), "deny"),
        (call(args={"target": "src/a.py"}, paths=("/target",)), "deny"),
        (call(args={"path": "src/a.py"}, effects="irreversible"), "deny"),
        (call(args={"path": "src/a.py"}, effects="read"), "advisory"),
        (call(args={"path": "src/a.py"}, kind="flow"), "advisory"),
        (call("researcher/web", {"path": "a"}), "deny"),
        (call("greet", {"path": "reports/a"}), "deny"),
        (call(None, {"path": "src/a.py"}), "advisory"),
    ],
)
def test_role_permissions_enforce_where_a_persona_writes(asked, outcome):
    assert RolePermissions(ROLES, None)(asked).outcome == outcome


def test_role_permissions_without_a_table_judge_no_call():
    assert RolePermissions({"rules": []}, None)(call(args={"path": "src/a.py"})).outcome == "advisory"


@for_each("path", ["/etc", "../up", "a/../b/*.md", "~/x"])
def test_a_folder_that_fits_no_path_is_refused(path):
    pointer, _, message = refused(RolePermissions, {"personas": {"p": {"writes": [path]}}, "rules": []})
    assert pointer == "/personas/p/writes"
    assert path in message
