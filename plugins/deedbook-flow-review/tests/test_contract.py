"""The flow keeps the contract that third parties keep."""

import json

from deedbook_testing import Example, FlowContract

ROLES = ("lead", "planner", "worker", "reviewer")
SAID = {
    "lead": {"intent": "greet", "constraints": []},
    "planner": {"steps": [{"id": "s1", "description": "greet"}], "risks": [], "needs_advisor": False},
    "worker": {"output": "Hello!", "steps_completed": ["s1"], "tool_calls_made": []},
    "reviewer": {"verdict": "pass", "feedback": "as it should be"},
}


class TestReview(FlowContract):
    name = "review"
    examples = (Example("greet", gives="Hello!"),)

    def prepare(self, lab):
        for role in ROLES:
            lab.role(role)
        lab.tool("echo", lambda args, ctx: args)
        lab.skill("greet", allows="echo")
        lab.model(lambda request, ctx: json.dumps({**SAID[request["role"]], "schema_version": "v1"}))
