"""What the runner does about learning in whole tasks: the routing in force, rewards, metrics, evidence."""

import json

import pytest
from ruamel.yaml import YAML
from shop import FIRST, SECOND, Shop, build, check, outline

from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.learning.examination import check_learning
from deedbook_flow_swe.learning.ledger_files import read_records
from deedbook_flow_swe.learning.revision import build_revision
from deedbook_flow_swe.learning.routing import RoutingPolicy, digest_policy
from deedbook_flow_swe.learning.workspace_events import ROUTING_REVISED, build_entry

SCHEMAS = Schemas.load(data_folder("schemas"))
ROUTING = {
    "schema_version": "v1",
    "id": "test",
    "ladder": ["mid", "premium"],
    "phases": {phase: {"tier": "mid"} for phase in ("outline", "build", "check")},
}
REVISED = {**ROUTING, "phases": {phase: {"tier": "premium"} for phase in ("outline", "build", "check")}}


@pytest.fixture
def shop(lab):
    shop = Shop(lab)
    lab.model(shop.respond, tier="premium")
    folder = lab.path / ".system/swe/routing"
    folder.mkdir()
    with (folder / "test.yaml").open("w") as file:
        YAML().dump(ROUTING, file)
    shop.change("pipeline.yaml", "escalate_after: 3", "escalate_after: 3\nrouting: test")
    shop.good()
    return shop


def revise(shop):
    """Record that the routing is revised, while any task runs."""
    ledger = shop.kernel.ledger
    payload = build_revision("small", ROUTING, RoutingPolicy.parse(ROUTING), [])
    payload |= {"policy": REVISED, "to_digest": digest_policy(REVISED)}
    ledger.append([build_entry(ledger, ROUTING_REVISED, payload, principal="ada")], durable=True)


def good_answers():
    """Return what each role answers in a task without a block."""
    return {"outliner": [outline()], "builder": [build(FIRST), build(SECOND)], "checker": [check()]}


def run(shop, task="task-1", **more):
    """Run a task, and return the tiers that its phases asked."""
    shop.kernel = shop.lab.kernel()
    with shop.kernel.session("run") as session:
        session.run(json.dumps({**TASK, "id": task, **more}), "swe/small")
    chosen = [event.payload for event in shop.lab.all("swe.model_chosen", session)]
    return session, [each["tier"] for each in chosen]


TASK = {"id": "task-1", "title": "Raise the limit", "request": "Raise the limit to 2.", "project": "shop"}


def test_task_keeps_the_routing_that_it_began_with_and_the_next_one_gets_the_revision(shop):
    plain = shop.run_tests

    def revising(args, ctx):
        if not shop.tested:
            revise(shop)
        return plain(args, ctx)

    shop.lab.tool("swe/tests", revising, effects="read", files="none")
    first, tiers = run(shop)
    assert tiers == ["mid"] * 4
    assert shop.lab.payload("swe.task_started", first)["routing"] == digest_policy(ROUTING)
    text = outline().replace("task-1", "task-2")
    shop.script(
        outliner=text, builder=[build(each).replace("task-1", "task-2") for each in (FIRST, SECOND)],
        checker=check().replace("task-1", "task-2"),
    )  # fmt: skip
    second, tiers = run(shop, "task-2")
    assert tiers == ["premium"] * 4
    assert shop.lab.payload("swe.task_started", second)["routing"] == digest_policy(REVISED)


def test_reward_of_a_task_follows_from_its_events_and_is_written(shop):
    session, _ = run(shop)
    reward = shop.lab.payload("swe.rewarded", session)["reward"]
    assert not SCHEMAS.validator("reward_v1").violations(reward)
    assert "composite_score:" in shop.text("tasks/task-1/retrospective/reward.yaml")
    assert [check.found for check in check_learning(shop.lab.state) if check.name == "rewards of tasks"] == [
        "1 follow from the events of their tasks"
    ]


def test_reward_of_a_task_with_rework_and_a_denial_follows_from_its_events(shop):
    bad = build(FIRST, more={"tasks/task-1/outline/spec.md": "changed"})
    shop.script(outliner=[outline(), outline()], builder=[bad, build(FIRST), build(SECOND)], checker=check())
    session, _ = run(shop)
    reward = shop.lab.payload("swe.rewarded", session)["reward"]
    assert reward["reward_decomposition"]["phase_discipline"] < 1
    checks = {check.name: check for check in check_learning(shop.lab.state)}
    assert checks["rewards of tasks"].level == "ok", checks["rewards of tasks"].found


def test_routing_in_force_is_rendered_when_a_task_begins(shop):
    run(shop)
    text = shop.text("world/routing-policies/test.yaml")
    assert text.startswith("# The policy in force, from the charter.")
    assert YAML(typ="safe").load(text) == ROUTING
    revise(shop)
    shop.script(outliner=outline().replace("task-1", "task-2"), builder=[], checker=[])
    shop.answers["outliner"] = ["no answer"]
    run(shop, "task-2")
    text = shop.text("world/routing-policies/test.yaml")
    assert "of the workspace ledger. Edits" in text
    assert YAML(typ="safe").load(text) == REVISED


def test_rewards_of_each_agent_are_rendered_and_in_no_context(shop):
    """Also not of a phase whose scope is everything."""
    shop.change("contracts/outline.yaml", 'exclude: ["tasks/{task-id}/build/", "agents/*/rewards.md"]', "exclude: []")
    shop.change("contracts/outline.yaml", "tokens: 800", "tokens: 20000")
    shop.change("contracts/outline.yaml", '"world/patterns/"]', '"world/patterns/", "*/*/*.md"]')
    (shop.lab.path / "other/folder").mkdir(parents=True)
    (shop.lab.path / "other/folder/page.md").write_text("seen by the outliner\n")
    run(shop)
    rows = {
        name: shop.text(f"agents/{name}/rewards.md").splitlines()[6:] for name in ("outliner", "builder", "checker")
    }
    assert rows["checker"] == ["| task-1 | check | null | 1 | clean |  |"]
    second = {role: [each.replace("task-1", "task-2") for each in given] for role, given in good_answers().items()}
    shop.script(**second)
    shop.requests.clear()
    run(shop, "task-2")
    assert [row.split(" | ")[0] for row in shop.text("agents/builder/rewards.md").splitlines()[6:]] == [
        "| task-1", "| task-2",
    ]  # fmt: skip
    assert "seen by the outliner" in shop.requests[0]["messages"][-1]["content"]
    assert not [each for each in shop.requests if "Rewards of" in json.dumps(each)]


def test_generated_task_is_in_no_page_of_rewards(shop):
    session, _ = run(shop, generated=True)
    assert shop.lab.payload("swe.rewarded", session)["reward"]["generated"]
    assert not (shop.lab.path / "agents").exists()


def test_each_phase_adds_a_line_of_metrics(shop):
    run(shop)
    lines = [json.loads(line) for line in shop.text("metrics/pipeline.jsonl").splitlines()]
    assert [each["phase"] for each in lines] == ["outline", "build", "check"]
    assert not any(SCHEMAS.validator("pipeline_metrics_v1").violations(each) for each in lines)
    (record,) = read_records(shop.lab.state)
    assert lines[-1]["metrics"]["model_tier_distribution"] == {
        phase: {"mid": sum(len(run.models) for run in runs)} for phase, runs in record.phases.items()
    }


def test_facts_of_a_phase_have_the_tokens_that_its_provider_states(shop):
    """A provider that states none has counted none, so that nothing is known about them."""
    lab = shop.lab

    def stating(request, ctx):
        usage = {"input_tokens": 0 if request["role"] == "checker" else 70, "output_tokens": 5}
        return {"text": shop.respond(request, ctx), "usage": usage}

    lab.model(stating, tier="mid")
    shop.script(**{**good_answers(), "outliner": ["no answer", outline()]})
    session, _ = run(shop)
    facts = {
        (each.payload["phase"], each.payload["unit"]): each.payload["facts"].get("tokens")
        for each in lab.all("swe.phase_completed", session)
    }
    assert facts == {
        ("outline", None): {"read": 140, "written": 10}, ("build", FIRST): {"read": 70, "written": 5},
        ("build", SECOND): {"read": 70, "written": 5}, ("build", None): None, ("check", None): None,
    }  # fmt: skip
    reward = lab.payload("swe.rewarded", session)["reward"]
    assert reward["reward_decomposition"]["context_efficiency"] == 1
    last = json.loads(shop.text("metrics/pipeline.jsonl").splitlines()[-1])["metrics"]
    assert set(last["context_tokens_per_phase"]) == {"outline", "build", "check"}
    assert {check.level for check in check_learning(lab.state)} == {"ok"}


def test_architecture_is_verified_only_by_a_tool_that_says_so(shop):
    session, _ = run(shop)
    reward = shop.lab.payload("swe.rewarded", session)["reward"]
    assert reward["reward_decomposition"]["architectural_compliance"] is None
    shop.change("schemas/unit_tests_v1.json", '"additionalProperties": false', '"additionalProperties": true')
    shop.results = [
        {"architecture": {"checked": 2, "violations": 0}},
        {"architecture": {"checked": 1, "violations": 1}},
    ]
    shop.script(
        **{role: [each.replace("task-1", "task-2") for each in texts] for role, texts in good_answers().items()}
    )
    session, _ = run(shop, "task-2")
    facts = shop.lab.all("swe.phase_completed", session)[-1].payload["facts"]
    assert facts["architecture"] == {"checked": 3, "violations": 1}
    reward = shop.lab.payload("swe.rewarded", session)["reward"]
    assert reward["reward_decomposition"]["architectural_compliance"] == -1
