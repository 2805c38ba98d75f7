"""The kinds about subjects in a workspace: a flow asks, personas write, and the record can be judged again."""

import pytest

from deedbook import Err, Failed
from deedbook.contract.flow import Branch
from deedbook.format.errors import BindingError

FINDING = {
    "id": "f1", "reviewer": "security", "severity": "P0", "autofix_class": "manual", "confidence": 75, "title": "t",
}  # fmt: skip
ROUTING = """schema_version: v1
id: routing
kind: severity-routing
rules:
  - {match: {severity: [P0, P1]}, then: advisory, route: gated, reason: a person looks first}
  - when: finding.sevrity == "P3"
    then: allow
"""
PERMISSIONS = """schema_version: v1
id: permissions
kind: role-permissions
match: {effects: [write, irreversible]}
personas:
  security: {writes: [reports/security]}
rules: []
"""


def test_a_misspelt_field_is_refused_with_line_and_column(lab):
    lab.write("policies/routing.yaml", ROUTING)
    with pytest.raises(BindingError, match=r"routing\.yaml:6:19: .*finding has no sevrity; did you mean \"severity\""):
        lab.kernel()


def test_a_decision_is_recorded_with_the_place_of_its_rule(lab):
    lab.write("policies/routing.yaml", ROUTING.replace("sevrity", "severity"))
    routes = []
    lab.flow(
        "ask",
        lambda args, run: routes.append(run.decide("routing", "finding", FINDING)) or {},
        gives={"type": "object"},
    )
    with lab.session() as session:
        session.call("ask", {})
    (line,) = lab.one("policy.check").payload["asked"]
    assert (line["decision"], line["reason"]) == ("advisory", "a person looks first")
    assert line["rule"] == ".system/policies/routing.yaml:5"
    assert line["signals"] == {"route": "gated"}
    assert routes[0].decision.signals == {"route": "gated", "rule": line["rule"]}


def write(run, path):
    try:
        return run.call("note", {"schema_version": "v1", "path": path, "text": "x", "who": "a", "why": "b",
                                 "expected_hash": ""})["path"]  # fmt: skip
    except Failed as problem:
        return problem.code


def test_a_persona_writes_only_where_its_row_allows(lab):
    """The skill of a branch is the persona; dots, case and links lead nowhere else."""
    lab.write("policies/permissions.yaml", PERMISSIONS)
    lab.settings(abilities={"note": {"summary": "Write a note.", "handler": {"tool": "file-write"}}})
    for name in ("security", "style"):
        lab.skill(name, allows="note", triggers=f"{name}-please")
    lab.write("src/code.txt", "x", system=False)
    lab.write("reports/security/old.md", "x", system=False)
    (lab.path / "reports/security/link").symlink_to(lab.path / "src")
    paths = ["reports/security/a.md", "src/b.md", "reports/security/../../src/c.md", "Reports/security/d.md",
             "reports/security/link/e.md"]  # fmt: skip
    told = {}

    def work(args, run):
        names = ("security", "style")
        branches = [Branch(name, lambda own: [write(own, path) for path in paths], skill=name) for name in names]
        told.update(zip(names, run.parallel(branches), strict=True))
        return {}

    lab.flow("review", work, gives={"type": "object"}, uses=["note"])
    with lab.session() as session:
        found = session.call("review", {})
    assert not isinstance(found, Err), found
    security = told["security"]
    assert security[0] == "reports/security/a.md"
    assert security[1:4] == ["GATE_DENIED"] * 3
    assert security[4] not in ("GATE_DENIED", "reports/security/link/e.md")
    assert told["style"] == ["GATE_DENIED"] * 5
    assert sorted(each.name for each in (lab.path / "src").iterdir()) == ["code.txt"]
