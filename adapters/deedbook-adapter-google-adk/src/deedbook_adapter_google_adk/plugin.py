"""The plugin of Google ADK that governs the tools and models of a run before they are used."""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.models import LlmRequest
from google.adk.plugins import BasePlugin
from google.adk.tools import AgentTool, BaseTool, ToolContext

from deedbook.format.errors import BindingError, fault
from deedbook_guard import Guard, govern_object

from .models import EXPECTED, governed_model
from .tools import PLUGIN, governed_tool


class Governance(BasePlugin):
    """Governs every tool and every model of a run.

    Deciding in callbacks does not suffice: a later callback may change arguments in place after the decision, and
    `after_tool_callback` also gets answers of callbacks, where no tool ran. So the callbacks only give each tool and
    each model a governed class, which judges and records what is really done.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        super().__init__(PLUGIN)
        self.guard, self.pause = guard, pause

    async def before_agent_callback(self, *, agent: Any, callback_context: CallbackContext) -> None:
        """Refuse an agent that runs code outside of tools, and record that a live connection is not seen."""
        executor = getattr(agent, "code_executor", None)
        if executor is not None and not isinstance(executor, BuiltInCodeExecutor):
            raise _refusal(agent.name, f"its {type(executor).__name__} runs code that is no call of a tool")
        if callback_context.get_invocation_context().live_request_queue is not None:
            self.guard.current.note("LiveConnection", {"agent": agent.name})

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Govern the model that gets the request."""
        context = callback_context.get_invocation_context()
        agent: Any = context.agent
        if context.run_config is not None and context.run_config.support_cfc:
            raise _refusal(agent.name, "support_cfc sends its requests over a live connection, which is not seen")
        govern_object(await agent.canonical_model_async(ReadonlyContext(context)), governed_model)
        EXPECTED.add(llm_request, self.guard)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Govern the tool that is called."""
        if isinstance(tool, AgentTool) and not tool.include_plugins:
            raise _refusal(tool.name, "as a tool it runs without plugins; remove include_plugins=False")
        govern_object(tool, governed_tool)


def _refusal(agent: str, why: str) -> BindingError:
    return BindingError(fault("BINDING_INVALID", f"agent {agent!r} cannot be governed: {why}"))
