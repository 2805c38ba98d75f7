"""A host of agent-hooks: a loop whose tools and models are calls of a guard, driven by the kit's scenarios."""

import json
from functools import partial
from importlib.resources import files
from typing import Any, Final

from agent_hooks import (
    AgentContext,
    AgentContextBuilder,
    ApprovalResolver,
    CompositionConfig,
    EnforcementMode,
    HostRegistry,
    HostSurface,
    IdentityProvider,
    InterceptionBlocked,
    InterceptionEmitter,
    Interceptor,
)
from agent_hooks.ctk import Capability, RunOutcome, RunRecord, Scenario, redact_paths

from deedbook.format.errors import Err, fault
from deedbook_adapter_agent_hooks.completions import request_of, response_of, text_of
from deedbook_adapter_agent_hooks.session import HostFailure
from deedbook_guard import CallDenied, Guard, ResultWithheld

from .ledger import INTERCEPTION

DECLARATION: Final[dict[str, Any]] = json.loads(
    files(__package__).joinpath("declaration.json").read_text(encoding="utf-8")
)
"""What this host does, in the form of the contract."""
CAPABILITIES: Final[tuple[str, ...]] = tuple(DECLARATION["surface"]["capabilities"])
_MODEL: Final = "script"


class GuardHost:
    """Runs one scenario of the kit, with a guard between the loop and its tools and model.

    After a run, `loop` has its conversation and what was performed.
    """

    name = DECLARATION["host"]["name"]
    tool_seam_host_error = DECLARATION["configuration"]["posture"]["tool_seam_host_error"]

    def __init__(self, guard: Guard) -> None:
        self.capabilities = {Capability(each) for each in CAPABILITIES}
        self._guard = guard
        self.loop: AgentLoop | None = None

    def host_surface(self) -> HostSurface:
        """Return what this code can do, against which a declaration is read."""
        return HostSurface.from_capabilities(
            sorted(each.value for each in self.capabilities), self.tool_seam_host_error
        )

    def declaration(self) -> dict[str, Any]:
        """Return the declaration that a claim of conformance is about."""
        return json.loads(json.dumps(DECLARATION))  # type: ignore[no-any-return]

    def setup(
        self,
        scenario: Scenario,
        interceptors: list[Interceptor],
        resolver: ApprovalResolver | None,
        mode: EnforcementMode,
        composition: CompositionConfig,
        identity_provider: str | None,
        redact_for_approval: list[str] | None = None,
    ) -> None:
        """Prepare a run whose interceptors the kit gives."""
        provider = IdentityProvider(identity_provider, _fail) if identity_provider == "ctk-fault" else identity_provider
        emitter = InterceptionEmitter(mode=mode, resolver=resolver, composition=composition, identity_provider=provider)
        if redact_for_approval:
            emitter.set_approval_redactor(lambda context: redact_paths(context, redact_for_approval))
        for each in interceptors:
            emitter.register(each)
        self._scenario, self._emitter = scenario, emitter

    def setup_declared(self, scenario: Scenario, document: dict[str, Any], registry: HostRegistry) -> None:
        """Prepare a run whose interceptors a declaration names; raises `DeclarationError`."""
        self._scenario, self._emitter = scenario, InterceptionEmitter.from_declaration_value(document, registry)

    def teardown(self) -> None:
        """Do nothing: the conversation ended with the run."""

    async def run(self) -> RunRecord:
        """Run the scenario in a conversation of its own."""
        self.loop = AgentLoop(self._guard, self._scenario, self._emitter)
        outcome, final = await self.loop.run()
        records = self._emitter.results
        return RunRecord(
            outcome=outcome,
            final_output=final,
            tool_invocations=self.loop.ran,
            identities=[(each.input_identity, each.enforced_identity) for each in records],
            records=[each.to_wire() for each in records],
        )


class AgentLoop:
    """Emits the eight points of one conversation to the interceptors, and performs what they allow through the guard.

    `ran` are the calls of tools that were performed, and `requests` counts those to the model.
    """

    def __init__(self, guard: Guard, scenario: Scenario, emitter: InterceptionEmitter) -> None:
        self.conversation = guard.conversation()
        self.ran: list[dict[str, Any]] = []
        self.requests = 0
        self._agent, self._scenario, self._emitter = guard.agent, scenario, emitter
        self._builder = AgentContextBuilder(agent_id=guard.agent, framework="deedbook", session_id=self.conversation.id)

    async def run(self) -> tuple[RunOutcome, Any]:
        """Run to the end; return how it ended, and the answer."""
        outcome, final = RunOutcome.ERROR, None
        try:
            final = await self._live()
            outcome = RunOutcome.COMPLETED
        except (InterceptionBlocked, CallDenied, ResultWithheld):
            outcome = RunOutcome.BLOCKED
        finally:
            await self._shut_down("completed" if outcome is RunOutcome.COMPLETED else "error")
        return outcome, final

    async def _live(self) -> Any:
        scenario = self._scenario
        await self._emit(self._builder.agent_startup(tools_registered=sorted(scenario.tools)))
        asked = await self._emit(self._builder.input(content=scenario.input["content"], role=scenario.input["role"]))
        submitted = self.conversation.session.submit(text_of(asked["input"]["content"]))
        if isinstance(submitted, Err):
            raise CallDenied(submitted)
        messages: list[dict[str, Any]] = [{"role": asked["input"]["role"], "content": asked["input"]["content"]}]
        for answer in scenario.model_script:
            context = await self._ask(messages, answer)
            messages = [*context["messages"], {"role": "assistant", "content": answer.content or ""}]
            if not context["response"]["tool_calls"]:
                return await self._reply(context["response"]["content"])
            for call in context["response"]["tool_calls"]:
                messages.append({"role": "tool", "content": await self._use(call), "tool_call_id": call["id"]})
        return None

    async def _emit(self, context: AgentContext) -> AgentContext:
        """Ask the interceptors, and record what they said; raises `InterceptionBlocked`."""
        record = await self._emitter.emit_unchecked(context)
        self.conversation.note(INTERCEPTION, {**record.to_wire(), "proceeds": record.proceeds})
        if not record.proceeds:
            raise InterceptionBlocked(record)
        return context

    async def _ask(self, messages: list[dict[str, Any]], answer: Any) -> AgentContext:
        """Ask the model; return the context of its answer, with the messages that were sent."""
        asked = await self._emit(self._builder.pre_model_call(model_id=_MODEL, messages=messages))
        permit = await self.conversation.abefore_model(request_of(asked))
        self.requests += 1
        answered = self._builder.post_model_call(
            model_id=_MODEL, content=answer.content, tool_calls=answer.tool_calls, finish_reason=answer.finish_reason
        )
        await self.conversation.aafter_model(permit, response_of(answered))
        return {**await self._emit(answered), "messages": asked["messages"]}

    async def _use(self, call: dict[str, Any]) -> Any:
        """Return what the model is told of a tool: its result, or why there is none."""
        context = self._builder.pre_tool_call(call_id=call["id"], name=call["name"], args=call["args"])
        try:
            asked = (await self._emit(context))["tool_call"]
        except InterceptionBlocked as blocked:
            why = fault("GATE_DENIED", f"an interceptor: {blocked.result.verdict.reason}")
            self.conversation.session.refuse(f"{self._agent}/{call['name']}", why)
            return f"denied: {blocked.result.verdict.reason}"
        failed = False
        try:
            value = await self.conversation.acall(asked["name"], asked["args"], partial(self._perform, asked["name"]))
        except CallDenied as denied:
            return denied.reason
        except ResultWithheld as withheld:
            return f"withheld: {withheld.error.code}"
        except HostFailure as problem:
            value, failed = str(problem), True
        told = self._builder.post_tool_call(
            call_id=call["id"], name=asked["name"], args=self.ran[-1]["args"], value=value, is_error=failed
        )
        try:
            return (await self._emit(told))["tool_result"]["value"]
        except InterceptionBlocked as blocked:
            return f"withheld: {blocked.result.verdict.reason}"

    def _perform(self, name: str, args: dict[str, Any]) -> Any:
        value, failed = self._scenario.tools[name].invoke(args)
        self.ran.append({"name": name, "args": args})
        if failed:
            raise HostFailure(text_of(value))
        return value

    async def _reply(self, content: Any) -> Any:
        said = (await self._emit(self._builder.output(content=content)))["output"]["content"]
        self.conversation.session.note("agent.reply", "agent", {"reply": text_of(said), "tool_calls": []})
        return said

    async def _shut_down(self, reason: str) -> None:
        try:
            await self._emit(self._builder.agent_shutdown(reason=reason))
        except InterceptionBlocked:
            pass  # nothing is left to be blocked
        finally:
            self.conversation.end(reason, ok=reason == "completed")


def _fail(_context: AgentContext) -> str:
    raise RuntimeError("the kit's vector wants an identity provider that fails")
