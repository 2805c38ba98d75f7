"""Governed crews and agents, and the hooks that stop what is not governed in their runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from crewai import Agent, Crew
from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import get_scoped_hooks, scoped_hooks
from crewai.llms.base_llm import BaseLLM

from deedbook.format.errors import BindingError, fault
from deedbook_guard import Guard, govern_object, owner_of

from .models import ASKED, SOURCE, ModelMethods, permit_request
from .tools import ToolMethods


@attrs.frozen
class Governance:
    """Governs crews, agents, tools and models for one guard."""

    guard: Guard

    def govern(self, target: Any) -> None:
        """Govern a crew or an agent, with everything that can be reached from it."""
        if isinstance(target, Crew):
            self._govern_crew(target)
        elif isinstance(target, Agent):
            self.govern_agent(target)
        else:
            raise _refusal(target, "it is neither a crew nor an agent of crewai")

    def _govern_crew(self, crew: Crew) -> None:
        govern_object(crew, CrewMethods(self))
        for agent in [*crew.agents, *(task.agent for task in crew.tasks), crew.manager_agent]:
            if agent is not None:
                self.govern_agent(agent)
        for task in crew.tasks:
            self.govern_tools(task.tools)
        self._govern_models(crew, "manager_llm", "function_calling_llm", "planning_llm", "chat_llm")

    def govern_agent(self, agent: Any) -> None:
        """Govern an agent with its models and tools."""
        if not isinstance(agent, Agent):
            raise _refusal(agent, "another framework runs it")
        govern_object(agent, AgentMethods(self))
        self._govern_models(agent, "llm", "function_calling_llm")
        self.govern_tools(agent.tools)

    def govern_tools(self, tools: Any) -> None:
        """Govern tools as an agent gets them."""
        for tool in tools or ():
            govern_object(tool, ToolMethods(self.guard))

    def _govern_models(self, owner: Any, *names: str) -> None:
        """Govern the models of a crew or an agent. Reading an attribute would warn about deprecated ones."""
        for model in map(vars(owner).get, names):
            if isinstance(model, BaseLLM):
                govern_object(model, ModelMethods(self.guard))

    @contextmanager
    def run(self) -> Iterator[None]:
        """Stop what is not governed while a crew or an agent runs.

        The hooks belong to the run. The framework's global ones would see all crews of the process, and any code may
        clear them.
        """
        points = (InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.PRE_MODEL_CALL)
        checks = dict(zip(points, (ToolCheck(self), ModelCheck(self)), strict=True))
        others = {
            point: [hook for hook in get_scoped_hooks(point) if not isinstance(hook, ToolCheck | ModelCheck)]
            for point in InterceptionPoint
        }
        with scoped_hooks({**others, **{point: [*others[point], check] for point, check in checks.items()}}):
            yield


@attrs.frozen
class ToolCheck:
    """A hook that stops a call whose agent or tool is not governed; a governed tool is judged when it runs."""

    governance: Governance

    def __call__(self, context: Any) -> None:
        """Raise `HookAborted`; the framework runs the tool after any other exception of a hook."""
        try:
            tool = getattr(context.tool, "_original_tool", None) or context.tool
            if owner_of(context.agent) != AgentMethods(self.governance):
                why = "its agent is not governed"
            elif tool is not None and owner_of(tool) != ToolMethods(self.governance.guard):
                why = "it is not governed"
            else:
                return
            self.governance.guard.current.note("UngovernedTool", {"tool": context.tool_name, "reason": why})
        except BaseException as problem:
            raise HookAborted(f"the call could not be governed: {problem}", SOURCE) from problem
        raise HookAborted(f"tool {context.tool_name!r} does not run: {why}", SOURCE)


@attrs.frozen
class ModelCheck:
    """A hook that judges a request of a model that is not governed; a governed model judges when it is asked."""

    governance: Governance

    def __call__(self, context: Any) -> None:
        """Raise `HookAborted` if the request is denied; no hook sees its answer, so its outcome is unknown."""
        try:
            asked = ASKED.get()
            if asked is not None and asked.model is context.llm:
                return
            if context.executor is not None and owner_of(context.llm) == ModelMethods(self.governance.guard):
                return
            permit = permit_request(self.governance.guard, context.llm, context.messages)
            permit.conversation.abandon(permit, "CrewAI shows no answer to a request of this kind")
        except HookAborted:
            raise
        except BaseException as problem:
            raise HookAborted(f"the request could not be governed: {problem}", SOURCE) from problem


@attrs.frozen
class AgentMethods:
    """The methods of a governed agent, for `govern_object`."""

    governance: Governance

    def __call__(self, base: Any) -> Mapping[str, Any]:
        """Return the methods that begin a run, that copy the agent, and through which all its tools pass."""
        governance = self.governance

        def _add_skill_loader_tool(agent: Any, *args: Any, **kwargs: Any) -> Any:
            governance.govern_agent(agent)
            tools = base._add_skill_loader_tool(agent, *args, **kwargs)
            governance.govern_tools(tools)
            return tools

        def kickoff(agent: Any, *args: Any, **kwargs: Any) -> Any:
            with governance.run():
                return base.kickoff(agent, *args, **kwargs)

        async def kickoff_async(agent: Any, *args: Any, **kwargs: Any) -> Any:
            with governance.run():
                return await base.kickoff_async(agent, *args, **kwargs)

        return {
            "_add_skill_loader_tool": _add_skill_loader_tool,
            "kickoff": kickoff,
            "kickoff_async": kickoff_async,
            "copy": _governed_copy(governance, base),
        }


@attrs.frozen
class CrewMethods:
    """The methods of a governed crew, for `govern_object`."""

    governance: Governance

    def __call__(self, base: Any) -> Mapping[str, Any]:
        """Return the methods that begin a run, that copy the crew, and that make its manager."""
        governance = self.governance

        def kickoff(crew: Any, *args: Any, **kwargs: Any) -> Any:
            governance.govern(crew)
            with governance.run():
                return base.kickoff(crew, *args, **kwargs)

        async def akickoff(crew: Any, *args: Any, **kwargs: Any) -> Any:
            governance.govern(crew)
            with governance.run():
                return await base.akickoff(crew, *args, **kwargs)

        def _create_manager_agent(crew: Any) -> None:
            base._create_manager_agent(crew)
            governance.govern(crew)

        return {
            "kickoff": kickoff,
            "akickoff": akickoff,
            "_create_manager_agent": _create_manager_agent,
            "copy": _governed_copy(governance, base),
        }


def _governed_copy(governance: Governance, base: Any) -> Any:
    def copy(target: Any, *args: Any, **kwargs: Any) -> Any:
        made = base.copy(target, *args, **kwargs)
        governance.govern(made)
        return made

    return copy


def _refusal(target: Any, why: str) -> BindingError:
    name = getattr(target, "role", None) or type(target).__name__
    return BindingError(fault("BINDING_INVALID", f"{name!r} cannot be governed: {why}"))
