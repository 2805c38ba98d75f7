"""Rules of routing in whole runs: each rule of the pack `swe` chooses a model, by what the run itself knows."""

import json
from importlib.resources import files

import attrs
import pytest
from pipelines import WORK
from ruamel.yaml import YAML
from shop import FIRST, SECOND, Shop, answer, build, check, outline

PACK = YAML(typ="safe").load((files("deedbook_pack_swe") / "data/swe/routing/default.yaml").read_text())
THIRD = "unit-003"
FINDING = ("MAJOR", "token-in-address", "shop.py:1")
BLOCKER = ("BLOCKER", "token-in-address", "shop.py:1")
TOUCHES = """\
  - {id: unit-003, type: library, size: small, criteria: [AC-001], tests: [tests/test_retry.py], touches: [auth]}
---
Two"""
TOUCHING = WORK.replace("type: library", "type: scaffold").replace("---\nTwo", TOUCHES)
BAD = build(FIRST, more={"tasks/task-1/outline/spec.md": "changed"})
GOOD = [build(FIRST), build(SECOND)]
SENT_BACK = {
    "outliner": [outline()], "builder": [BAD, BAD, *GOOD * 3], "checker": [check(BLOCKER), check(BLOCKER), check()],
}  # fmt: skip


def make_shop(lab, **phases):
    """Return a shop whose *phases* have the routing of phases of the pack; its reports are of the class owasp."""
    shop = Shop(lab)
    for tier in PACK["ladder"]:
        lab.model(shop.respond, tier=tier)
    routing = {"schema_version": "v1", "id": "test", "ladder": PACK["ladder"]}
    routing["phases"] = {name: PACK["phases"][phase] for name, phase in phases.items()}
    lab.write("swe/routing/test.yaml", json.dumps(routing))
    shop.change("pipeline.yaml", "escalate_after: 3", "escalate_after: 3\nrouting: test")
    shop.change("contracts/outline.yaml", "world/patterns/", "world/verified-patterns/")
    shop.change("contracts/outline.yaml", '{"world/patterns/"', '{"world/verified-patterns/"')
    text = shop.text(".system/swe/schemas/report_v1.json")
    lab.write("swe/schemas/owasp_v1.json", text.replace("report_v1", "owasp_v1"))
    shop.change("contracts/check.yaml", "schema: report_v1", "schema: owasp_v1")
    shop.change("schemas/work_v1.json", '"tests": {', '"touches": {"type": "array"}, "tests": {')
    return shop


def chosen(shop):
    """Return the phase, the unit, the rule and the tier of each choice."""
    return [(each["phase"], each["unit"], each["rule"], each["tier"]) for each in shop.events("model_chosen")]


@attrs.frozen
class Scenario:
    """A run in which *fires* fire, each a phase of the pack and a rule: the routing of *phases*, tags and answers."""

    phases: dict[str, str]
    fires: list[tuple[str, str]]
    answers: dict[str, list[str]]
    tags: tuple[str, ...] = ()
    results: tuple[dict[str, int], ...] = ()


SCENARIOS = [
    Scenario(
        {"outline": "requirements", "build": "implementation", "check": "security"},
        [("requirements", "regulated-domain"), ("implementation", "simple-units"), ("implementation", "hard-units"),
         ("implementation", "secret-units"), ("security", "secret-units"), ("security", "owasp-finding")],
        {"outliner": [answer({"tasks/task-1/outline/spec.md": json.loads(outline())["outputs"][0]["text"],
                              "tasks/task-1/outline/work.md": TOUCHING})],
         "builder": [*GOOD, build(THIRD, "--- a/shop.py\n+++ b/shop.py\n@@ -1 +1 @@\n-LIMIT = 2\n+LIMIT = 3\n")] * 2,
         "checker": [check(FINDING)]},
        tags=("medical",),
        results=({"failed": 1, "exit_code": 1},),
    ),
    Scenario(
        {"outline": "architecture", "build": "implementation", "check": "security"},
        [("architecture", "no-verified-pattern")],
        {"outliner": [outline()], "builder": GOOD, "checker": [check()]},
        tags=("distributed",),
    ),
    Scenario(
        {"outline": "requirements", "build": "implementation", "check": "security"},
        [("requirements", "sent-back"), ("implementation", "sent-back")],
        SENT_BACK,
    ),
    Scenario(
        {"outline": "architecture", "build": "planning", "check": "security"},
        [("architecture", "sent-back"), ("planning", "sent-back")],
        SENT_BACK,
    ),
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: " ".join(rule for _, rule in each.fires[:2]))
def test_rules_of_the_pack_fire_in_a_run(lab, scenario):
    shop = make_shop(lab, **scenario.phases)
    shop.script(**scenario.answers)
    shop.results = list(scenario.results)
    assert shop.run({"tags": list(scenario.tags)}).value.state == "COMPLETED"
    fired = {(scenario.phases[phase], rule) for phase, _, rule, _ in chosen(shop)}
    assert fired >= set(scenario.fires)


def test_each_rule_of_the_pack_is_in_a_scenario():
    rules = {(phase, rule["id"]) for phase, row in PACK["phases"].items() for rule in row.get("rules", ())}
    assert {each for scenario in SCENARIOS for each in scenario.fires} == rules


@pytest.mark.parametrize(
    ("tags", "rule"), [("[distributed]", "default"), ("[python]", "no-verified-pattern")], ids=["own tag", "other tag"]
)
def test_only_a_pattern_with_a_tag_of_the_task_is_a_verified_pattern(lab, tags, rule):
    shop = make_shop(lab, outline="architecture")
    pattern = lab.path / "world/verified-patterns/outbox.md"
    pattern.parent.mkdir(parents=True)
    pattern.write_text(f"---\nid: outbox\ntags: {tags}\n---\nWrite it first.\n")
    shop.good()
    shop.script(**{**shop.answers, "outliner": [answer({}, blocked={"reason": "which limit?", "missing": []})]})
    shop.run({"tags": ["distributed"]})
    assert chosen(shop)[0][:3] == ("outline", None, rule)
