"""The flow under-skill: another flow works under the skill that the workspace names, and its end is told."""

import pytest

from deedbook import DeedbookError, Failed


def declare(lab, flow, handler, settings, *, skill="mender"):
    """Declare *flow*, and ``mend``, which calls it under *skill*."""
    inner = {"summary": f"{flow}.", "handler": {"flow": handler}, "with": settings}
    outer = {"summary": "Mend.", "handler": {"flow": "under-skill"}, "uses": [flow]}
    lab.settings(abilities={flow: inner, "mend": {**outer, "with": {"flow": flow, "skill": skill}}})


@pytest.fixture
def shop(lab):
    """Declare a loop whose phases are tools, and a skill that allows these."""
    lab.tool("act", lambda args, ctx: {"text": f"mended {args['goal']}"})
    lab.tool("reflect", lambda args, ctx: {"done": args["goal"] == "chair", "score": -args["cycle"]})
    lab.skill("mender", allows="act reflect")
    declare(lab, "loop", "ooda", {"act": "act", "reflect": "reflect"})
    return lab


def call(lab, ability, args):
    with lab.session("call") as session:
        result = session.call(ability, args)
        return result, session.find_context(result.value) if hasattr(result, "value") else None


def test_called_flow_can_use_what_the_skill_allows(shop):
    refused, _ = call(shop, "loop", {"prompt": "chair"})
    assert refused.error.code == "TOOL_NOT_ALLOWED"
    result, context = call(shop, "mend", {"prompt": "chair"})
    assert (context.state, context.reply) == ("COMPLETED", "mended chair")
    assert list(result.value) == ["context"]
    assert shop.one("run.branch").payload["skill"] == "mender"


def test_end_of_the_called_flow_is_that_of_the_call(shop):
    _, context = call(shop, "mend", {"prompt": "table"})
    assert context.state == "HALTED"
    assert context.reply.startswith("REGRESSION")


@pytest.mark.parametrize("end", ["fail", "need_human"])
def test_reason_of_the_called_flow_is_told(lab, end):
    lab.flow("loop", lambda args, run: getattr(run.context, end)("glue is out"))
    lab.skill("mender")
    outer = {"summary": "Mend.", "handler": {"flow": "under-skill"}, "uses": ["loop"]}
    lab.settings(abilities={"mend": {**outer, "with": {"flow": "loop", "skill": "mender"}}})
    _, context = call(lab, "mend", {"prompt": "chair"})
    assert (context.state, context.reply) == ({"fail": "FAILED", "need_human": "NEEDS_HUMAN"}[end], "glue is out")


def test_result_of_a_flow_without_a_context_is_the_reply(shop):
    declare(shop, "loop-result", "ooda-result", {"act": "act", "reflect": "reflect"})
    _, context = call(shop, "mend", {"prompt": "chair"})
    assert context.state == "COMPLETED"
    assert '"state":"COMPLETED"' in context.reply


def test_verdict_is_stored_by_a_call(shop):
    stored = []
    shop.tool("propose", lambda args, ctx: stored.append(args["key"]) or {})
    shop.skill("keeper", allows="propose")
    declare(shop, "route", "route-verdict", {"propose": "propose"}, skill="keeper")
    _, context = call(shop, "mend", {"task_id": "t1", "verdict": "REVISE", "content": "x"})
    assert (context.state, context.reply, stored) == ("COMPLETED", "TIER_B", ["tier_b/t1"])


def test_flow_outside_uses_and_unknown_skill_are_refused(shop):
    declare(shop, "loop", "ooda", {"act": "act", "reflect": "reflect"}, skill="mendr")
    result, _ = call(shop, "mend", {"prompt": "chair"})
    assert (result.error.code, "mender" in result.error.message) == ("NOT_AVAILABLE", True)
    shop.settings(abilities={"mend": {"uses": []}})
    with pytest.raises(DeedbookError, match="'loop' is not in uses"):
        shop.kernel()


def test_skill_cannot_widen_that_of_the_run(shop):
    shop.model(lambda request, ctx: Failed("NO_MODEL", "no role was expected"))
    shop.skill("narrow", allows="act", triggers="narrow")
    shop.settings(profiles={"lab": {"flow": "mend"}})
    with shop.session("run") as session:
        result = session.run("narrow work")
    assert result.error.code == "TOOL_NOT_ALLOWED"
