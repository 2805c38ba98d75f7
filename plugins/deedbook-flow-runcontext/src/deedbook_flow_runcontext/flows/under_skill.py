"""The flow ``under-skill``: calls another flow under a skill that the workspace names.

A flow uses what the skill of its run allows, and only a prompt chooses a skill. A call of a flow therefore can use no
ability. With this flow, the workspace says which skill the calls of a flow have. The flow stands in ``uses:``.
"""

from collections.abc import Iterator
from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook.contract import AbilityDeclaration, Branch, RunState

from .modes import describe_value

_SETTINGS: Final = {
    "type": "object",
    "required": ["flow", "skill"],
    "properties": {
        "flow": {"type": "string", "minLength": 1, "description": "The ability to call, a flow that uses: has."},
        "skill": {"type": "string", "minLength": 1, "description": "The skill whose allowed-tools are the scope."},
    },
    "additionalProperties": False,
}
_LONGEST: Final = 2000


def _check_settings(declaration: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    flow = declaration.settings["flow"]
    if flow not in declaration.uses:
        yield "/with/flow", f"{flow!r} is not in uses; the flow could not be called"


class UnderSkill:
    """The flow: passes its arguments on, and its context ends as that of the other flow does.

    A standalone flow completes it with its result as text.
    """

    spec = HandlerSpec(
        settings=_SETTINGS, takes={"type": "object"}, effects="none", files="none", check=_check_settings
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._flow, self._skill = settings["flow"], settings["skill"]

    def __call__(self, args: Object, run: Run) -> None:
        """Call the flow in a branch that works under the skill, and end as it did."""
        branch = Branch(self._skill, lambda inner: inner.call(self._flow, args), skill=self._skill)
        (result,) = run.parallel([branch])
        try:
            ended = run.read_context(result)
        except Failed:  # it keeps no context
            run.answer(describe_value(result))
            return
        _end_like(run.context, ended)
        if ended.state == "COMPLETED":
            run.answer(ended.reply)


def _end_like(context: Any, ended: RunState) -> None:
    """End *context* with the state and the reason of *ended*, unless that completed."""
    ends = {"FAILED": context.fail, "HALTED": context.halt, "NEEDS_HUMAN": context.need_human}
    if end := ends.get(ended.state):
        end(ended.reply[:_LONGEST])
