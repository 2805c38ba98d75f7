"""The hooks of an agent that take its requests to models through the guard, in every run of the agent."""

import weakref
from threading import Lock
from typing import Any

import attrs
from agents import AgentHooks

from deedbook_guard import Guard, Permit

from .completions import request_of, response_of


@attrs.frozen(eq=False)
class _OpenRequest:
    """A request to a model that has no answer yet, in the run of *context*."""

    context: weakref.ref[Any]
    agent: Any
    permit: Permit


class GovernedHooks(AgentHooks[Any]):
    """Judges each request of an agent and records its answer; then calls the agent's *own* hooks.

    Unlike run hooks, they are also called if the agent is the tool of another one.
    """

    def __init__(self, guard: Guard, own: Any) -> None:
        self.guard = guard
        self._own: AgentHooks[Any] = own or AgentHooks()
        self._requests: list[_OpenRequest] = []
        self._lock = Lock()

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        """Record a request if it is allowed; otherwise `CallDenied` stops the run."""
        self._abandon_lost()
        permit = await self.guard.current.abefore_model(request_of(agent, system_prompt, input_items))
        with self._lock:
            self._requests.append(_OpenRequest(weakref.ref(context), agent, permit))
        await self._own.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Record an answer with its usage, and which of the provider's own tools it used."""
        permit = self._take(context, agent)
        conversation = permit.conversation if permit else self.guard.current
        try:
            recorded = response_of(agent, response)
        except BaseException as problem:
            if permit is not None:
                conversation.fail(permit, problem)
            raise
        if permit is not None:
            await conversation.aafter_model(permit, recorded)
        else:  # a run that another process began, and paused: the request is in the ledger of that one
            conversation.note("ModelResponse", {"agent": agent.name, "response": recorded})
        for item in response.output:
            kind = getattr(item, "type", "")
            if kind.endswith("_call") and kind != "function_call":
                conversation.note("HostedTool", {"agent": agent.name, "type": kind})
        await self._own.on_llm_end(context, agent, response)

    def _take(self, context: Any, agent: Any) -> Permit | None:
        """Return the permit of the request that is answered now."""
        with self._lock:
            for each in reversed(self._requests):
                if each.context() is context and each.agent is agent:
                    self._requests.remove(each)
                    return each.permit
        return None

    def _abandon_lost(self) -> None:
        """Close the requests of runs that are over: the SDK calls no hook if a model fails."""
        with self._lock:
            lost = [each for each in self._requests if each.context() is None]
            self._requests = [each for each in self._requests if each not in lost]
        for each in lost:
            each.permit.conversation.abandon(each.permit, "the run ended without an answer")

    # --- the agent's own hooks ----------------------------------------------------------------------------------------

    async def on_start(self, *args: Any, **named: Any) -> None:
        """Call the agent's own hook, as the methods below do."""
        await self._own.on_start(*args, **named)

    async def on_end(self, *args: Any, **named: Any) -> None:  # noqa: D102 - as above
        await self._own.on_end(*args, **named)

    async def on_handoff(self, *args: Any, **named: Any) -> None:  # noqa: D102 - as above
        await self._own.on_handoff(*args, **named)

    async def on_tool_start(self, *args: Any, **named: Any) -> None:  # noqa: D102 - as above
        await self._own.on_tool_start(*args, **named)

    async def on_tool_end(self, *args: Any, **named: Any) -> None:  # noqa: D102 - as above
        await self._own.on_tool_end(*args, **named)
