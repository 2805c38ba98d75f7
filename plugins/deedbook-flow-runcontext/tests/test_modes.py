"""The flows in two modes keep the contract of the modes; each does what its page says."""

import pytest
from remembering import remembering

from deedbook import Err, Failed
from deedbook_testing import FlowModesContract

ROOMS = ("call", "charter", "cli", "format", "kernel", "ledger", "maintenance", "workspace")
ROOMS = tuple(f"deedbook.{name}" for name in ROOMS)
REPORT = {"output": "all is well", "steps_completed": ["a"], "tool_calls_made": ["look:1"], "schema_version": "v1"}
PLAN = {
    "steps": [{"id": "a", "description": "look"}], "risks": [], "needs_advisor": False, "schema_version": "v1",
}  # fmt: skip
OUTPUT = {
    "clarification": {"intent": "look"},
    "scope": {"constraints": ["be quick"], "abilities": ["look"]},
    "plan": PLAN,
    "report": REPORT,
    "evidence": [{"criterion": "tests", "passed": True}],
}


class TestFivePoint(FlowModesContract):
    name, standalone, rooms = "five-point", "five-point-audit", ROOMS
    settings = {"constraints": ["be quick"], "criteria": ["tests"], "work": "work"}
    bad_settings = ({"constraints": "be quick"},)
    examples = ({"prompt": "look", "output": OUTPUT}, {"prompt": "look"}, {"prompt": "look", "output": {}})
    allows = ("work",)

    def prepare(self, lab):
        lab.tool("work", lambda args, ctx: OUTPUT)


def phases(lab, reflections):
    """Declare the five phases; the reflections come from the list."""
    for name in ("observe", "orient", "decide", "act"):
        lab.tool(name, lambda args, ctx, name=name: {"text": f"{name} {args['cycle']}"})
    lab.tool("reflect", lambda args, ctx: reflections[args["cycle"] - 1])


class TestOoda(FlowModesContract):
    name, standalone, rooms = "ooda", "ooda-result", ROOMS
    settings = {name: name for name in ("observe", "orient", "decide", "act", "reflect")}
    bad_settings = ({"act": "act"}, {**settings, "max_generations": 0})
    examples = ({"prompt": "mend it"},)
    allows = tuple(settings)

    def prepare(self, lab):
        phases(lab, [{"done": False, "score": 1}, {"done": True, "score": 2}])


class TestVerdicts(FlowModesContract):
    name, standalone, rooms = "route-verdict", "route-verdict-result", ROOMS
    settings = {"propose": "propose", "tiers": {"TIER_C": None}}
    bad_settings = ({}, {"propose": "propose", "verdicts": {"ACCEPT": "TIER_D"}})
    examples = tuple({"task_id": "t1", "verdict": verdict, "content": "x"} for verdict in ("ACCEPT", "REJECT"))
    allows = ("propose",)

    def prepare(self, lab):
        lab.tool("propose", lambda args, ctx: args)


class TestPipeline(FlowModesContract):
    name, standalone, rooms = "content-pipeline", "content-pipeline-result", ROOMS
    settings = {name: name for name in ("analyze", "bridge", "validate", "refine", "execute", "review")}
    bad_settings = ({"analyze": "analyze"}, {**settings, "polish": "x"})
    examples = ({"prompt": "write"},)
    allows = tuple(settings)

    def prepare(self, lab):
        for name in self.settings:
            lab.tool(name, lambda args, ctx, name=name: {"text": name})


# --- what each does ---------------------------------------------------------------------------------------------------


@pytest.fixture
def play(lab):
    """Give a function that calls a flow under a skill, and returns its context or its result."""

    def plays(flow, args, settings, *, allows="", session=None):
        entry = {"summary": "Under test.", "handler": {"flow": flow}, "with": settings}
        lab.settings(abilities={"tried": entry})
        lab.skill("try", allows=f"tried {allows}")
        seen = []

        def call(_, run):
            result = run.call("tried", args)
            is_reference = isinstance(result, dict) and result.keys() == {"context"}
            seen.append(run.read_context(result) if is_reference else result)
            run.answer("done")

        lab.flow("caller", call)
        with lab.session("run") as session:
            ended = session.run("try")
        return ended if isinstance(ended, Err) else seen[0]

    return plays


FAULTS = {
    "clarify": ({"clarification": {"intent": "", "questions": ["which?"]}}, "clarification.intent is empty"),
    "scope": ({"scope": {"constraints": []}}, 'does not have "be quick"'),
    "plan": ({"plan": {**PLAN, "steps": [{"id": "a", "description": "", "depends_on": ["b"]}]}}, "no step is called"),
    "execute": ({"report": {**REPORT, "steps_completed": []}}, 'does not have "a"'),
    "verify": ({"evidence": [{"criterion": "tests", "passed": False}]}, '"tests" did not pass'),
}
FIVE = {"constraints": ["be quick"], "criteria": ["tests"]}


def test_five_points_pass_and_stand_in_the_context(play):
    context = play("five-point", {"prompt": "look", "output": OUTPUT}, FIVE)
    assert (context.state, context.reply) == ("COMPLETED", "all is well")
    assert context.clarification == {**OUTPUT["clarification"], "schema_version": "v1"}
    assert context.scope == {**OUTPUT["scope"], "schema_version": "v1"}
    assert context.plan == OUTPUT["plan"]
    assert context.verification == {"verdict": "pass", "evidence": OUTPUT["evidence"], "schema_version": "v1"}
    assert [each.data["point"] for each in context.log] == ["clarify", "scope", "plan", "execute", "verify"]


@pytest.mark.parametrize(("point", "change", "message"), [(name, *rest) for name, rest in FAULTS.items()], ids=FAULTS)
def test_point_that_fails_is_found_in_both_modes(play, point, change, message):
    args = {"prompt": "look", "output": {**OUTPUT, **change}}
    context = play("five-point", args, FIVE)
    assert context.state == "FAILED"
    assert message in context.reason
    result = play("five-point-audit", args, FIVE)
    assert not result["passed"]
    assert [each["point"] for each in result["points"] if not each["passed"]] == [point]
    points = [each.data for each in context.log if each.event_type == "five_point"]
    assert [(each["point"], each["passed"]) for each in result["points"]] == [
        (each["point"], each["passed"]) for each in points
    ]
    found = [{**finding, "point": each["point"]} for each in result["points"] for finding in each["findings"]]
    assert [{**each, "schema_version": "v1"} for each in found] == context.findings


def test_five_points_without_an_output_need_an_ability_that_gives_one(play):
    assert play("five-point", {"prompt": "look"}, {}).error.code == "NO_OUTPUT"


def cycle(score, *fingerprints, done=False):
    return {"done": done, "score": score, **({"fingerprints": [*fingerprints]} if fingerprints else {})}


HALTS = {
    "generations": ([cycle(1), cycle(2), cycle(3)], 3, "GENERATIONS: 3 cycles were not enough"),
    "oscillation": ([cycle(1, "a", "b"), cycle(1, "c"), cycle(1, "b", "a")], 9, "OSCILLATION: cycle 3 came back to"),
    "regression": ([cycle(1), cycle(5), cycle(4, done=False)], 9, "REGRESSION: cycle 3 has the score 4"),
}


@pytest.mark.parametrize(("reflections", "most", "reason"), HALTS.values(), ids=HALTS)
def test_ooda_halts_with_the_reason_in_both_modes(lab, play, reflections, most, reason):
    phases(lab, reflections)
    settings = {**TestOoda.settings, "max_generations": most}
    context = play("ooda", {"prompt": "mend it"}, settings, allows=" ".join(TestOoda.allows))
    assert context.state == "HALTED"
    assert context.reason.startswith(reason)
    cycles = [each.data for each in context.log if each.event_type == "ooda_cycle"]
    assert len(cycles) == 3
    result = play("ooda-result", {"prompt": "mend it"}, settings, allows=" ".join(TestOoda.allows))
    assert result == {"state": "HALTED", "reason": context.reason, "cycles": cycles}


def test_ooda_that_does_the_same_again_oscillates_without_fingerprints(lab, play):
    lab.tool("act", lambda args, ctx: "the same")
    lab.tool("reflect", lambda args, ctx: {"done": False})
    context = play("ooda", {"prompt": "x"}, {"act": "act", "reflect": "reflect"}, allows="act reflect")
    assert context.reason.startswith("OSCILLATION: cycle 2 came back to what cycle 1")


def test_ooda_gives_each_phase_what_came_before(lab, play):
    seen = []
    lab.tool("act", lambda args, ctx: seen.append(args) or f"act {args['cycle']}")
    lab.tool("reflect", lambda args, ctx: seen.append(args) or {"done": args["cycle"] == 2, "lesson": args["cycle"]})
    context = play("ooda", {"prompt": "x"}, {"act": "act", "reflect": "reflect"}, allows="act reflect")
    assert (context.state, context.reply) == ("COMPLETED", "act 2")
    first = {"done": False, "lesson": 1}
    assert seen[2:] == [
        {"goal": "x", "cycle": 2, "reflections": [first], "phases": {}},
        {"goal": "x", "cycle": 2, "reflections": [first], "phases": {"act": "act 2"}},
    ]


@pytest.mark.parametrize("reflection", [
    "no", {"done": "yes"}, {"done": False, "score": "9"}, {"done": False, "score": True},
    {"done": False, "fingerprints": "a"},
])  # fmt: skip
def test_ooda_refuses_a_reflection_of_a_wrong_form(lab, play, reflection):
    lab.tool("act", lambda args, ctx: "x")
    lab.tool("reflect", lambda args, ctx: reflection)
    ended = play("ooda", {"prompt": "x"}, {"act": "act", "reflect": "reflect"}, allows="act reflect")
    assert ended.error.code == "REFLECTION_INVALID"


ROUTES = [("ACCEPT", "TIER_A"), ("REVISE", "TIER_B"), ("REJECT", "TIER_C")]


@pytest.mark.parametrize(("verdict", "tier"), ROUTES)
def test_verdict_is_routed_through_the_memory_gate(lab, play, verdict, tier):
    remembering(lab)
    args = {"task_id": "t1", "verdict": verdict, "content": {"answer": 42}}
    context = play("route-verdict", args, {"propose": "memory/propose"}, allows="memory/propose")
    (note,) = (each.data for each in context.log if each.event_type == "verdict_routing")
    key = f"{tier.lower()}/t1"
    assert note == {
        "task_id": "t1", "verdict": verdict, "tier": tier, "stored": {"zone": "observation", "key": key},
    }  # fmt: skip
    with lab.session() as later:
        (entry,) = later.call("memory/read", {"zone": "observation"}).value["entries"]
    assert (entry["key"], entry["value"]) == (key, {"answer": 42})


def test_zone_of_a_tier_is_data_and_the_memory_gate_refuses_it(lab, play):
    remembering(lab)
    settings = {"propose": "memory/propose", "tiers": {"TIER_A": {"zone": "world_state", "prefix": "facts"}}}
    args = {"task_id": "t1", "verdict": "ACCEPT", "content": "x"}
    ended = play("route-verdict", args, settings, allows="memory/propose")
    assert isinstance(ended, Err)
    assert lab.payload("tool.denied")["name"] == "memory/propose"
    states = [each.type for each in lab.events() if each.type == "context.failed"]
    assert states == ["context.failed"] * 2
    assert not [each for each in lab.all("context.noted") if each.payload["event_type"] == "verdict_routing"]


def test_unknown_verdict_is_refused_before_any_call(lab, play):
    lab.tool("propose", lambda args, ctx: args)
    args = {"task_id": "t1", "verdict": "MAYBE", "content": "x"}
    assert play("route-verdict", args, {"propose": "propose"}, allows="propose").error.code == "VERDICT_UNKNOWN"
    assert not lab.all("tool.call")


def test_pipeline_writes_each_stage_when_it_ends(lab, play):
    names = ("analyze", "validate", "execute", "review")
    for name in names:
        lab.tool(name, lambda args, ctx, name=name: {"text": name, "saw": sorted(args["results"])})
    context = play("content-pipeline", {"prompt": "write"}, {name: name for name in names}, allows=" ".join(names))
    assert (context.state, context.reply) == ("COMPLETED", "execute")
    assert context.clarification["result"]["text"] == "analyze"
    assert [each.data["stage"] for each in context.log] == [*names]
    assert context.log[-1].data["result"]["saw"] == ["analyze", "execute", "validate"]
    order = [each.payload.get("tool_name") or each.payload.get("event_type") for each in lab.events()
             if each.type in ("tool.call", "context.noted")]  # fmt: skip
    assert order == [name for stage in names for name in (stage, "pipeline_stage")]


@pytest.mark.parametrize("stage", ["analyze", "validate", "execute", "review"])
def test_stage_that_refuses_ends_the_pipeline_in_both_modes(lab, play, stage):
    names = ("analyze", "validate", "execute", "review")
    for name in names:
        lab.tool(name, lambda args, ctx, name=name: {"ok": name != stage, "reason": "too long"})
    settings, allows = {name: name for name in names}, " ".join(names)
    context = play("content-pipeline", {"prompt": "write"}, settings, allows=allows)
    assert (context.state, context.reason) == ("FAILED", f"the stage {stage} did not pass: too long")
    assert len(context.log) == names.index(stage) + 1
    result = play("content-pipeline-result", {"prompt": "write"}, settings, allows=allows)
    assert (result["passed"], result["reason"]) == (False, context.reason)
    assert result["stages"] == [each.data for each in context.log]


@pytest.mark.parametrize(("flow", "settings", "args"), [
    ("ooda", {"act": "broken", "reflect": "broken"}, {"prompt": "x"}),
    ("content-pipeline", {"execute": "broken"}, {"prompt": "x"}),
    ("route-verdict", {"propose": "broken"}, {"task_id": "t", "verdict": "ACCEPT", "content": 1}),
    ("five-point", {"work": "broken"}, {"prompt": "x"}),
])  # fmt: skip
def test_failure_of_an_ability_ends_the_context_with_the_cause(lab, play, flow, settings, args):
    def breaks(args, ctx):
        raise Failed("BROKEN", "it broke")

    lab.tool("broken", breaks)
    assert play(flow, args, settings, allows="broken").error.code == "BROKEN"
    reasons = [each.payload["reason"] for each in lab.all("context.failed")]
    assert reasons == ["BROKEN: it broke"] * 2
