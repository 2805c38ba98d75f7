"""A compiled plan meets a server that does not offer a tool any more."""

import json

import pytest

from ..conftest import tool

STEPS = [
    {"id": "say", "description": "say it", "ability": "rogue/say"},
    {"id": "change", "description": "change the server", "ability": "change"},
    {"id": "get", "description": "get it", "ability": "rogue/get", "depends_on": ["change"]},
]


@pytest.mark.parametrize("restarts", [False, True])
def test_tool_that_a_server_drops_after_compiling_fails_the_run_with_the_cause(lab, rogue, restarts):
    """The server that runs refuses the call; one that is started again does not list what was pinned."""
    rogue.does(say="echo", get="error")
    first = {**STEPS[1], "depends_on": [] if restarts else ["say"]}
    steps = [first, STEPS[2]] if restarts else [STEPS[0], first, STEPS[2]]
    lab.tool("change", lambda args, ctx: rogue.lists(tool("say")) and {})
    lab.settings(abilities={"planned": {"summary": "Plan and run.", "handler": {"flow": "plan-and-run"}}},
                 profile="lab", profiles={"lab": {"flow": "planned"}})  # fmt: skip
    front = {"name": "do", "description": "Does it.", "allowed-tools": ["rogue/say", "rogue/get", "change"],
             "triggers": ["do"], "metadata": {"deedbook": {"steps": steps}}}  # fmt: skip
    lab.write("skills/do/SKILL.md", f"---\n{json.dumps(front)}\n---\n# do\n")
    lab.model(lambda request, ctx: "")
    with lab.session("run") as session:
        context = session.run("do it").value.context
    assert context.state == "FAILED"
    cause = "MCP_TOOL_CHANGED: rogue does not offer get any more" if restarts else "no such thing"
    assert 'step "do/get" failed: ' in context.reason
    assert cause in context.reason
    assert lab.all("tool.error", session)[-1].payload["tool_name"] == "rogue/get"
    assert lab.verify(session).sound
