"""Reviews by a person and findings in whole runs: who has to look, and which model works after a finding."""

import json

import pytest
from shop import FIRST, SECOND, Shop, answer, build, check, outline
from test_task_run import approve, approver

FINDING = ("MAJOR", "token-in-address", "shop.py:1")
POLICY = """\
schema_version: v1
id: human-review
kind: review-gating
rules:
  - {match: {first_review: true}, then: deny, reason: nobody has seen this way of joining systems}
default: allow
"""


@pytest.fixture
def shop(lab):
    """Return a shop whose last phase is the review before `CLEARED.md`; its report names ways of joining systems."""
    made = Shop(lab)
    approver(made)
    made.change("contracts/check.yaml", "passed: PASSED.md", "passed: CLEARED.md")
    made.change("pipeline.yaml", "escalate_after: 3", "escalate_after: 3\nhuman_triggers: human-review")
    members = '"schema_version": {\n      "const": "v1"\n    },\n    "findings"'
    patterns = '"integration_patterns": {"type": "array", "items": {"type": "string"}},'
    made.change("schemas/report_v1.json", members, members.replace('"findings"', f'{patterns} "findings"'))
    lab.write("policies/human-review.yaml", POLICY)
    return made


def task(name, *patterns):
    """Return what the agents answer in the task *name*, whose change joins systems in these ways."""
    report = f"---\nschema_version: v1\nintegration_patterns: {json.dumps(patterns)}\nfindings: []\n---\nGood.\n"
    checked = answer({f"tasks/{name}/check/report.md": report})
    given = {"outliner": [outline()], "builder": [build(FIRST), build(SECOND)], "checker": [checked]}
    return {role: [each.replace("task-1", name) for each in texts] for role, texts in given.items()}


def test_first_review_of_a_way_of_joining_systems_needs_a_person_and_the_second_one_does_not(shop):
    shop.script(**task("task-1", "webhook"))
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    assert shop.events("escalated")[0]["reason"].endswith("nobody has seen this way of joining systems")
    assert approve(shop, session).value.state == "COMPLETED"
    assert (shop.lab.path / "tasks/task-1/check/CLEARED.md").exists()
    shop.script(**task("task-2", "webhook"))
    assert shop.run({"id": "task-2"}).value.state == "COMPLETED"
    shop.script(**task("task-3", "webhook", "queue"))
    assert shop.run({"id": "task-3"}).error.code == "NEEDS_HUMAN"


@pytest.fixture
def routed(lab):
    """Return a shop in which a better model checks after a finding."""
    shop = Shop(lab)
    lab.model(shop.respond, tier="premium")
    rule = {"id": "after-finding", "when": {"findings": ["report"]}, "tier": "premium", "reason": "it found something"}
    routing = {
        "schema_version": "v1", "id": "test", "ladder": ["mid", "premium"],
        "phases": {"outline": {"tier": "mid"}, "build": {"tier": "mid"}, "check": {"tier": "mid", "rules": [rule]}},
    }  # fmt: skip
    lab.write("swe/routing/test.yaml", json.dumps(routing))
    shop.change("pipeline.yaml", "escalate_after: 3", "escalate_after: 3\nrouting: test")
    return shop


def choices(shop):
    """Return the rules and tiers by which the check was routed."""
    return [(each["rule"], each["tier"]) for each in shop.events("model_chosen") if each["phase"] == "check"]


def test_finding_is_looked_at_by_the_better_model_before_the_gate(routed):
    """The first check passes all rules with a finding; its outputs are superseded, and nobody is at fault."""
    routed.script(outliner=outline(), builder=[build(FIRST), build(SECOND)], checker=[check(FINDING), check(FINDING)])
    assert routed.run().value.state == "COMPLETED"
    assert choices(routed) == [("default", "mid"), ("after-finding", "premium")]
    gates = [(each["phase"], each["iteration"]) for each in routed.events("phase_completed") if each["gate"]]
    assert gates == [("outline", 1), ("build", 1), ("check", 2)]
    assert routed.events("rolled_back", "phase_blocked") == []
    assert (routed.lab.path / "tasks/task-1/superseded/1-check/report.md").exists()


def test_phase_without_a_finding_asks_one_model(routed):
    routed.good()
    assert routed.run().value.state == "COMPLETED"
    assert choices(routed) == [("default", "mid")]


def test_finding_of_an_earlier_run_chooses_a_better_model(routed):
    """The first check finds something and its tests fail; the second one asks the model for findings of its class."""
    shop = routed
    shop.results = [{"failed": 1, "exit_code": 1}]
    shop.good()
    shop.script(**{**shop.answers, "builder": [build(FIRST), build(SECOND)] * 2, "checker": check(FINDING)})
    shop.run()
    assert choices(shop) == [("default", "mid"), ("after-finding", "premium")]
