"""What outlives a task: rewards and revisions in the workspace ledger, and the policies that read them as facts."""

from types import SimpleNamespace
from typing import Any

import pytest
from stories import clean, reworked
from test_routing_choice import DOCUMENT

from deedbook import Failed, HandlerSpec
from deedbook.format.errors import BindingError, Ok
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.events import EVENTS
from deedbook_flow_swe.feature import SweFeature
from deedbook_flow_swe.learning.evidence import Mention
from deedbook_flow_swe.learning.examination import check_learning
from deedbook_flow_swe.learning.ledger_files import read_learned, read_records
from deedbook_flow_swe.learning.policy_kinds import PatternPromotion, RoutingInForce
from deedbook_flow_swe.learning.revision import build_revision
from deedbook_flow_swe.learning.reward import compute_reward
from deedbook_flow_swe.learning.routing import RoutingPolicy, digest_policy
from deedbook_flow_swe.learning.workspace_events import ROUTING_REVISED, build_entry

EVIDENCE = Schemas.load(data_folder("schemas")).validator("pattern_evidence_v1")
MENTION = Mention(pattern="cursor", kind="pattern", title="Cursors", text="Keep the cursor.", proposed=True)
FASTER = {**DOCUMENT, "phases": {**DOCUMENT["phases"], "planning": {"tier": "premium"}}}


def work(args, run):
    """Do what a runner does about learning: ask for the routing, record a task, reward it, propose its patterns."""
    routing = run.decide("swe-routing-swe", "routing", {"task_id": args["task"]}).decision
    if routing.outcome != "allow":
        raise Failed("NOT_AVAILABLE", routing.reason)
    story = (reworked if args.get("bad") else clean)(args["task"], generated=args.get("generated", False))
    *events, end = (event for event in story.events if event.type in EVENTS)
    end.payload["state"] = args.get("state", "done")
    for event in (*events, end):
        run.record(event.type, event.payload)
    mentions = [Mention.parse({**MENTION.as_json(), **each}) for each in args.get("mentions", ())]
    reward = compute_reward(story.record, run.now(), mentions)
    run.record("swe.rewarded", {"task_id": args["task"], "reward": reward})
    if "claim" in args:
        claim = {**reward, "composite_score": args["claim"]}
        run.record("swe.rewarded", {"task_id": args["task"], "reward": claim})
    for each in mentions:
        about = {"reward": reward, "pattern": each.pattern, "kind": each.kind}
        if run.decide("swe-promotion-swe", "pattern", about).decision.outcome == "allow":
            promoted = {"pattern": each.pattern, "kind": each.kind, "tasks": [args["task"]]}
            run.record("swe.pattern_promoted", {"task_id": args["task"], **promoted})
    return {"routing": dict(routing.signals["policy"])}


class Runner:
    """A flow of this distribution that stands for the runner."""

    spec = HandlerSpec(gives={"type": "object"}, effects="none", records=EVENTS)

    def __init__(self, settings, host):
        pass

    def __call__(self, args, run):
        return work(args, run)


@pytest.fixture
def tasks(lab):
    """Return a function that runs a task in a session of its own, in a workspace with the policies of a pipeline."""
    for kind, name, plugin in (
        ("flow", "phase-pipeline-test", Runner),
        ("policy", "swe-routing", RoutingInForce),
        ("policy", "swe-promotion", PatternPromotion),
        ("feature", "swe", SweFeature),
    ):  # only this distribution may declare the events
        lab.offer(kind, name, plugin, distribution="deedbook-flow-swe")
    lab.settings(
        abilities={"swe/swe": {"summary": "A pipeline.", "handler": {"flow": "phase-pipeline-test"}}},
        policies={
            "swe-routing-swe": {"kind": "swe-routing", "pipeline": "swe", "policy": DOCUMENT},
            "swe-promotion-swe": {"kind": "swe-promotion"},
        },
    )

    def run(task: str, **args: Any) -> Any:
        session = lab.session()
        with session:
            result = session.call("swe/swe", {"task": task, **args})
        assert isinstance(result, Ok), result
        checks = [event.payload for event in lab.all("policy.check", session)]
        answers = [{**check["asked"][0], **check["asked"][0].get("signals", {})} for check in checks]
        return SimpleNamespace(**result.value, session=session, asked=answers[0], answers=answers[1:])

    return run


def revise(lab, policy: dict[str, Any], base: dict[str, Any] = DOCUMENT) -> None:
    """Record that the routing is revised to *policy*, as an operator's command does."""
    ledger = lab.kernel().ledger
    payload = build_revision("swe", base, RoutingPolicy.parse(base), read_records(lab.state))
    payload |= {"policy": policy, "to_digest": digest_policy(policy)}
    ledger.append([build_entry(ledger, ROUTING_REVISED, payload, principal="ada")], durable=True)


def kept(lab) -> list[Any]:
    """Return the events of the workspace ledger about rewards."""
    place = lab.state / "workspace" / ".events.jsonl"
    return [event for event in read(place) if event.type == "swe.task_rewarded"]


def test_without_a_revision_the_routing_of_the_charter_is_in_force(tasks):
    found = tasks("t1")
    assert found.routing == DOCUMENT
    assert (found.asked["digest"], found.asked["revision"]) == (digest_policy(DOCUMENT), None)


def test_revision_is_in_force_for_later_tasks_and_says_where_it_is_recorded(lab, tasks):
    tasks("t1")
    revise(lab, FASTER)
    found = tasks("t2")
    assert found.routing == FASTER
    assert found.asked["digest"] == digest_policy(FASTER)
    assert f"revised by event {found.asked['revision']} of the workspace ledger" in found.asked["reason"]


def test_revision_of_another_policy_of_the_charter_is_not_in_force(lab, tasks):
    tasks("t1")
    revise(lab, FASTER, base={**DOCUMENT, "title": "an older one"})
    assert tasks("t2").routing == DOCUMENT


def test_reward_of_a_task_is_kept_in_the_workspace_ledger(lab, tasks):
    session = tasks("t1", mentions=[{}]).session
    (event,) = kept(lab)
    assert event.payload["session"] == session.id
    assert event.payload["reward"] == lab.payload("swe.rewarded", session)["reward"]


def test_session_without_a_task_adds_nothing(lab, tasks):
    with lab.session():
        pass
    assert not kept(lab)


def test_pattern_is_promoted_with_the_third_task_and_not_before(lab, tasks):
    answers = [tasks(f"t{number}", mentions=[{}]).answers[0] for number in range(1, 5)]
    assert [each["decision"] for each in answers] == ["deny", "deny", "allow", "deny"]
    assert "2 of 3 tasks" in answers[1]["reason"]
    assert answers[3]["evidence"]["status"] == "promoted"
    assert not any(EVIDENCE.violations(each["evidence"]) for each in answers)
    assert [row["task_id"] for row in answers[2]["evidence"]["evidence"]] == ["t1", "t2", "t3"]


def test_generated_tasks_are_no_evidence(tasks):
    for number in range(1, 4):
        answer = tasks(f"g{number}", mentions=[{}], generated=True).answers[0]
        assert (answer["decision"], answer["reason"]) == ("deny", "a generated task is no evidence")
    assert tasks("t1", mentions=[{}]).answers[0]["reason"] == "accumulating: 1 of 3 tasks"


def test_pattern_that_nobody_proposes_is_not_promoted(tasks):
    answers = [tasks(f"t{number}", mentions=[{"proposed": False}]).answers[0] for number in range(1, 4)]
    assert answers[2]["decision"] == "deny"
    assert answers[2]["evidence"]["status"] == "proposable"
    assert answers[2]["reason"].startswith("the retrospective does not propose it")


def test_task_that_did_not_succeed_refutes_a_pattern(tasks):
    tasks("t1", mentions=[{}], state="failed")
    answers = [tasks(f"t{number}", mentions=[{}]).answers[0] for number in range(2, 6)]
    assert {each["evidence"]["status"] for each in answers} == {"refuted"}
    assert "the composite of t1 is not 1" in answers[-1]["reason"]


def test_anti_pattern_is_promoted_with_the_second_verified_failure(tasks):
    anti = [{"kind": "anti-pattern"}]
    answers = [tasks(f"t{number}", mentions=anti, bad=number != 2).answers[0] for number in range(1, 4)]
    assert [each["decision"] for each in answers] == ["deny", "deny", "allow"]
    assert not any(EVIDENCE.violations(each["evidence"]) for each in answers)


def test_revision_that_cannot_be_read_denies(lab, tasks):
    ledger = lab.kernel().ledger
    lab.damaged = True
    ledger.append([build_entry(ledger, ROUTING_REVISED, {"pipeline": "swe"})], durable=True)
    with lab.session() as session:
        result = session.call("swe/swe", {"task": "t1"})
    assert not isinstance(result, Ok)
    check = lab.all("policy.check", session)[0].payload
    assert check["decision"] == "deny"
    assert "verify the workspace ledger" in check["asked"][0]["reason"]


def test_doctor_computes_rewards_again(lab, tasks):
    tasks("t1", bad=True)
    tasks("t2", state="failed")
    (check,) = check_learning(lab.state)
    assert (check.name, check.level, check.found) == (
        "rewards of tasks", "ok", "2 follow from the events of their tasks",
    )  # fmt: skip


def test_doctor_finds_a_reward_that_does_not_follow(lab, tasks):
    tasks("t1", claim=0)
    (check,) = check_learning(lab.state)
    assert (check.level, check.found.partition(": ")[2]) == (
        "fault", "the reward of t1 differs in composite_score",
    )  # fmt: skip


def test_records_and_what_was_learned_can_be_read_without_a_kernel(lab, tasks):
    tasks("t1")
    tasks("t2", generated=True)
    assert [(each.task_id, each.generated, each.state) for each in read_records(lab.state)] == [
        ("t1", False, "done"),
        ("t2", True, "done"),
    ]
    revise(lab, FASTER)
    assert read_learned(lab.state).revisions["swe"]["policy"] == FASTER


def test_policy_with_a_tier_that_is_not_on_the_ladder_does_not_bind(lab):
    broken = {**DOCUMENT, "phases": {"security": {"tier": "huge"}}}
    lab.settings(policies={"routing": {"kind": "swe-routing", "pipeline": "swe", "policy": broken}})
    with pytest.raises(BindingError, match="the tier huge is not on the ladder"):
        lab.kernel()
