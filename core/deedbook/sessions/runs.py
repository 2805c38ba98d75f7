"""The run of a flow: its typed state, its requests, and the branches that it runs side by side.

`FlowRun` begins a run and ends it; `RunCalls` is what a flow and each of its branches is given. Everything that a flow
asks for passes the run's journal first: a resumed run gets the recorded answers there.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from deedbook.call.call_context import CallCtx, OpenCall, Show
from deedbook.call.door import Door
from deedbook.call.handlers import RunSuspended, Ticket
from deedbook.contract import (
    AbilityInfo,
    AgentInfo,
    Branch,
    Failed,
    Json,
    Object,
    RecordedOutcome,
    Run,
    Skill,
    SkillInfo,
    SubjectDecision,
)
from deedbook.contract.lifecycle import EVENTS
from deedbook.format.canonical import encode
from deedbook.format.context import REPORT, Recorder, RunContext
from deedbook.format.errors import describe_crash, recordable
from deedbook.format.events import new_id
from deedbook.format.families import RUN_ENDS
from deedbook.format.lint import Violation
from deedbook.format.outcomes import RunOutcomes
from deedbook.format.schema import Schemas, suggest
from deedbook.format.waits import get_result
from deedbook.policy.bound import Caller
from deedbook.policy.callers import OVER, skill_excess
from deedbook.policy.subjects import read_decision

from .hooks import HookRunner
from .roles import RoleAgent
from .run_journal import RunJournal, Write

if TYPE_CHECKING:
    from deedbook.policy.limits import BranchLimits

MAX_BRANCHES: Final = 1000
"""The most branches of one `parallel`."""
MAX_DEPTH: Final = 16
"""The deepest nesting of runs."""
_THREADS: Final = 16
_MAX_REASON: Final = 2000


class RunCalls(CallCtx):
    """What a flow may do, under one span: that of its call, or of one branch.

    *journal* answers requests that were recorded. *context* is the run's recorder, or ``None``.
    """

    def __init__(self, work: OpenCall, show: Show, hooks: HookRunner, journal: RunJournal, runs: "Runs") -> None:
        super().__init__(work.door, work.ticket, show, runs.find)
        self._work, self._hooks, self._journal, self._runs = work, hooks, journal, runs
        self._role: str | None = None
        self.context: Recorder | None = None

    @property
    def skill(self) -> Skill | None:
        """The invoked skill, if there is one."""
        return self._work.skill(self._journal.bindings)

    @property
    def signals(self) -> Object:
        """The signals of hooks for the prompt."""
        return self._work.ticket.caller.signals

    @property
    def mode(self) -> str:
        """The mode of the session."""
        return self._work.ticket.caller.mode

    def call(self, ability: str, args: Object) -> Json:
        """Use another ability through the door, as a child of this run."""
        return self._journal.call(self._caller(), ability, dict(args), self._work.cause)

    async def acall(self, ability: str, args: Object) -> Json:
        """Act like `call`, from a coroutine."""
        return await self._journal.acall(self._caller(), ability, dict(args), self._work.cause)

    def fire(self, event: str, subject: Object) -> Object:
        """Ask the hooks of an event that flows fire, and return the subject as they leave it."""
        life = EVENTS.get(event)
        if life is None or not life.subject:
            may = ", ".join(each.name for each in EVENTS.values() if each.subject)
            raise Failed("NOT_AVAILABLE", f"a flow cannot fire {event!r}{suggest(event, EVENTS)}; it may fire {may}")
        ticket = self._work.ticket
        if ticket.span not in self._work.door.open:
            raise Failed("TOOL_NOT_ALLOWED", f"{event}: {OVER.why} fires nothing")
        missing = ", ".join(sorted(life.subject - subject.keys()))
        if missing:
            raise Failed("SCHEMA_VIOLATION", f"{event}: the subject has no {missing}")
        fire = partial(self._hooks.fire, event, subject, ticket.caller.principal, self._work.cause)
        fired = self._journal.fire(event, subject, fire)
        if fired.refusal is not None:
            raise Failed("GATE_DENIED", f"{event}: {fired.refusal}")
        return fired.subject

    def decide(self, policy: str, subject: str, value: Object) -> SubjectDecision:
        """Ask *policy* about a subject, and record the answer."""
        door = self._work.door
        if self._work.ticket.span not in door.open:
            raise Failed("TOOL_NOT_ALLOWED", f"policy {policy!r}: {OVER.why} asks about nothing")
        ask = partial(door.decide, self._caller(), policy, subject, value, self._work.cause)
        payload, span = self._journal.decide(policy, subject, value, ask)
        return SubjectDecision(read_decision(payload), span)

    def subjects(self, policy: str) -> frozenset[str]:
        """Return what *policy* judges besides calls."""
        bindings = self._work.door.bindings
        policies = bindings.charter.document["policies"]
        if policy not in policies:
            raise Failed("NOT_AVAILABLE", f"no policy {policy!r} in the charter{suggest(policy, policies)}")
        return frozenset(bindings.subjects.get(policy, ()))

    def agent(self, role: str) -> RoleAgent:
        """Hand over to *role* and return it; raises `Failed` if it has no instructions."""
        instructions = self._journal.bindings.instructions(role)
        if instructions is None:
            raise Failed("BINDING_INVALID", f"role {role!r} has no instructions; add .system/agents/{role}.md")
        return RoleAgent(self._work, self._journal, role, instructions, self._hand_over(role))

    def record(self, event_type: str, payload: Object) -> None:
        """Record a worker's report, or an event of a type that the flow declares; the payload is checked first."""
        if event_type == REPORT:
            self._check_report(payload)
        else:
            self._work.check_record(self._journal.bindings, event_type, payload)
        self._journal.write(event_type, "agent", payload)

    def answer(self, text: str) -> None:
        """Take the context through its remaining states to COMPLETED, with *text* as the report's output."""
        if self.context is None:
            raise Failed("NOT_AVAILABLE", "there is no context here: return the result")
        _answer_with(self.context, text)

    def read_context(self, result: Json) -> RunContext:
        """Return the context that the result of a flow refers to; raises `Failed` (``NOT_AVAILABLE``)."""
        found = self._find_context(result)
        if found is None:
            raise Failed("NOT_AVAILABLE", f"{result!r} refers to no run of this session")
        return found

    def outcomes(self) -> list[RecordedOutcome]:
        """Return the outcomes beneath this run or branch; a resumed run gets those from before its next request."""
        return self._runs.outcomes.find(self._journal.span, self._journal.next_request_seq())

    def abilities(self) -> list[AbilityInfo]:
        """Return the abilities in scope, as the charter has them; nothing is bound."""
        bindings = self._journal.bindings
        names = self._work.flow(bindings).offered_names(bindings.entry_of)
        found = ((name, bindings.entry_of(name)) for name in sorted(names))
        return [
            AbilityInfo(
                id=name,
                kind=entry["kind"],
                summary=entry["summary"],
                effects=entry["effects"],
                tags=frozenset(entry["tags"]),
            )
            for name, entry in found
            if entry is not None and entry["kind"] != "model"
        ]

    def skills(self) -> list[SkillInfo]:
        """Return the skills of the charter, in a stable order."""
        bindings = self._journal.bindings
        entries = bindings.charter.document["skills"]
        return [
            SkillInfo(
                skill=skill,
                limited=frozenset(entries[name].get("commands", ())),
                missing=dict(entries[name].get("without", {})),
            )
            for name, skill in sorted(bindings.skills.items())
        ]

    def tiers(self) -> frozenset[str]:
        """Return the tiers of the profile."""
        return frozenset(self._journal.bindings.tiers)

    def agents(self) -> list[AgentInfo]:
        """Return the agents that have a card, in a stable order; no persona is read."""
        entries = self._journal.bindings.charter.document.get("agents", {})
        return [
            AgentInfo(
                name=name,
                domain=card.get("domain", ""),
                capabilities=frozenset(card["capabilities"]),
                abilities=frozenset(card.get("allowed", card["capabilities"])),
                unknown=dict(card.get("without", {})),
            )
            for name, card in sorted(entries.items())
        ]

    def parallel(self, branches: Sequence[Branch], *, return_failures: bool = False) -> list[Any]:
        """Run *branches* side by side and return their results in order; the first failure is raised at the end.

        With *return_failures*, a `Failed` stands in the place of its result instead.
        """
        if len(branches) > MAX_BRANCHES:
            raise Failed("NOT_AVAILABLE", f"{len(branches)} branches; the most at once are {MAX_BRANCHES}")
        for each in branches:
            self._check_skill(each)
        limits = [_compile_limits(each) for each in branches]
        made = [self._branch(each, own) for each, own in zip(branches, limits, strict=True)]
        if not made:
            return []
        with ThreadPoolExecutor(min(len(made), _THREADS), "deedbook-branch") as pool:
            begun = [pool.submit(copy_context().run, partial(_perform_branch, *each)) for each in made]
            results = [get_result(each) for each in begun]
        problems = [problem for _, problem in results if problem is not None]
        for problem in sorted(problems, key=lambda each: isinstance(each, Exception)):  # a suspension first
            if not (return_failures and isinstance(problem, Failed)):
                raise problem
        return [value if problem is None else problem for value, problem in results]

    def now(self) -> str:
        """Return the recorded time."""
        return str(self._journal.value("now", self._work.door.ledger.now))

    def random(self) -> float:
        """Return a recorded random number."""
        return float(cast("float", self._journal.value("random", random.random)))

    def new_id(self) -> str:
        """Return a recorded new id."""
        return str(self._journal.value("id", new_id))

    def _branch(self, branch: Branch, limits: "tuple[BranchLimits, ...]") -> "tuple[RunCalls, Branch]":
        journal = self._journal.branch(branch)
        work = self._work.under(journal.span, branch.allowed, branch.skill, limits)
        return RunCalls(work, self._show, self._hooks, journal, self._runs), branch

    def _check_skill(self, branch: Branch) -> None:
        """Raise `Failed` if the skill of *branch* is unknown, or allows what the skill of this run does not allow."""
        if branch.skill is None:
            return
        bindings = self._journal.bindings
        skill = bindings.skills.get(branch.skill)
        if skill is None:
            near = suggest(branch.skill, bindings.skills)
            raise Failed("NOT_AVAILABLE", f"branch {branch.name!r}: no skill {branch.skill!r} in the charter{near}")
        own = self._work.skill(bindings)
        more = skill_excess(skill, own, bindings) if own else ()
        if more and own:
            why = f"skill {skill.name} allows {', '.join(sorted(more))}, which skill {own.name} does not allow"
            raise Failed("TOOL_NOT_ALLOWED", f"branch {branch.name!r}: {why}")

    def start_skill(self, skill: str) -> None:
        """Ask the hooks of ``SkillStart`` whether this branch may work under *skill*; raises `Failed`."""
        ticket = self._work.ticket
        given = ticket.args.get("prompt")
        prompt = given if isinstance(given, str) else encode(ticket.args).decode()
        ask = partial(self._hooks.skill_start, skill, prompt, ticket.caller.principal, self._work.cause)
        fired = self._journal.fire("SkillStart", {"prompt": prompt}, ask)
        if fired.refusal is not None or fired.prompt != prompt:
            why = fired.refusal or "a hook would change the request, which a branch cannot take"
            raise Failed("SKILL_DENIED", f"skill {skill}: {why}")

    def _check_report(self, report: Object) -> None:
        found = self._work.faults("worker_report_v1", dict(report))
        if found:
            raise Failed("SCHEMA_VIOLATION", f"{REPORT}: {found[0].path}: {found[0].message}")

    def _hand_over(self, to: str) -> str:
        span = self._journal.write("agent.transition", "runtime", {"from": self._role, "to": to})
        self._role = to
        return span

    def _caller(self) -> Caller:
        return self._work.flow()


def _compile_limits(branch: Branch) -> "tuple[BranchLimits, ...]":
    """Return the compiled limits of *branch*, if it has any; raises `Failed`."""
    if branch.limits is None:
        return ()
    from deedbook.policy.limits import compile_limits, limits_document

    try:
        return (compile_limits(branch.name, limits_document(branch.limits)),)
    except ValueError as problem:
        raise Failed("SCHEMA_VIOLATION", f"branch {branch.name!r}: {problem}") from None


def _perform_branch(run: RunCalls, branch: Branch) -> tuple[Json, BaseException | None]:
    try:
        if branch.skill is not None:
            run.start_skill(branch.skill)
        return branch.work(cast("Run", run)), None
    except BaseException as problem:  # noqa: BLE001 - the others must end before it is raised
        return None, problem


class FlowRun(RunCalls):
    """Implements `flow.Run`: a flow keeps the scope of its skill, hands over to roles, and records the run."""

    def __init__(
        self, door: Door, ticket: Ticket, show: Show, schemas: Schemas, hooks: HookRunner, runs: "Runs"
    ) -> None:
        work = OpenCall(door, ticket, schemas)
        super().__init__(work, show, hooks, runs.journal(door, work.write, ticket.span), runs)
        parent = ticket.caller.run
        depth = runs.nest(ticket.span, parent)
        if depth > MAX_DEPTH:
            raise Failed("NOT_AVAILABLE", f"{ticket.bound.id} would be run {depth} deep; the most is {MAX_DEPTH}")
        if ticket.bound.keeps_context:
            self._begin(ticket, parent)

    def _begin(self, ticket: Ticket, parent: str | None) -> None:
        self.context = _Context(self._write_context, self._work.faults, run=ticket.span, parent=parent)
        self._runs.contexts[ticket.span] = self.context
        self.context.create(dict(ticket.args), ticket.caller.principal.via)

    def invoke(self) -> Any:
        """Call the flow, and return the reference to its context, or the result of a standalone flow."""
        try:
            made = self._work.ticket.bound.handler(self._work.ticket.args, self)
        except BaseException as problem:
            self._abort(problem)
            raise
        return self._await(made) if isawaitable(made) else self._conclude(made)

    async def _await(self, made: Awaitable[Any]) -> Any:
        try:
            result = await made
        except BaseException as problem:
            self._abort(problem)
            raise
        return self._conclude(result)

    def _conclude(self, result: Json) -> Json:
        context, name = self.context, self._work.ticket.bound.id
        if context is None:
            return result
        if result is not None:
            why = f"{name} keeps a context and returned {type(result).__name__}; write to run.context and return None"
            return self._refuse("SCHEMA_VIOLATION", why)
        if context.is_live:
            why = f"{name} returned while its context is {context.state}; complete, fail or halt it before"
            return self._refuse("FLOW_UNFINISHED", why)
        self._close_role()
        return {"context": self._work.ticket.span}

    def _refuse(self, code: str, why: str) -> Json:
        problem = Failed(code, why)
        self._abort(problem)
        raise problem

    def _abort(self, problem: BaseException) -> None:
        """End the context of a flow that raised."""
        context = self.context
        if context is None or self._runs.suspend(context, problem):
            return
        if context.is_live:
            self._end(context, problem)
        self._close_role()

    def _end(self, context: Recorder, problem: BaseException) -> None:
        code = getattr(problem, "code", "") if isinstance(problem, Failed) else ""
        reason = f"{code}: {problem}" if code else describe_crash(problem, self._work.ticket.bound.mask)
        cancelled = code == "CANCELLED" or not isinstance(problem, Exception)
        (context.halt if cancelled else context.fail)(recordable(reason, _MAX_REASON))

    def _close_role(self) -> None:
        """Record the last transition: to DONE if the run has completed, otherwise to FAIL."""
        if self._role is not None and self.context is not None:
            self._hand_over(RUN_ENDS[self.context.state != "COMPLETED"])

    def _write_context(self, event_type: str, payload: Object) -> str:
        return self._journal.write(event_type, "agent" if event_type == REPORT else "runtime", payload)


class _Context(Recorder):
    """A recorder that checks artifacts by *find_faults* before it records them."""

    def __init__(
        self,
        append: Callable[[str, Object], str],
        find_faults: Callable[[str, Json], Sequence[Violation]],
        **names: Any,
    ) -> None:
        super().__init__(append, **names)
        self._find_faults = find_faults

    def check(self, schema: str, value: Json, place: str) -> None:
        """Raise `Failed` (``SCHEMA_VIOLATION``) with the place if *value* does not fit *schema*."""
        if faults := self._find_faults(schema, value):
            more = f"; {len(faults) - 1} more" if len(faults) > 1 else ""
            raise Failed("SCHEMA_VIOLATION", f"the {place} does not fit {schema}: {faults[0]}{more}")


def _answer_with(context: Recorder, text: str) -> None:
    """Take *context* through its remaining states to COMPLETED, with a report whose output is *text*."""
    report = {"output": text, "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}
    ways: Mapping[str, Callable[[], None]] = {
        "CREATED": lambda: context.clarify({}),
        "CLARIFIED": lambda: context.plan({"steps": []}),
        "SCOPED": lambda: context.plan({"steps": []}),
        "PLANNED": context.begin_execution,
        "EXECUTING": lambda: context.verify(report),
        "VERIFYING": lambda: context.complete({"verdict": "pass"}),
    }
    while step := ways.get(context.state):
        step()


@attrs.define(eq=False)
class Runs:
    """The runs of a session: their contexts by the span of their call.

    *journal* makes the journal of what stands under a span. *past* has the contexts of a resumed session's runs. If the
    session *suspends*, an interrupt leaves its runs open. *outcomes* are those beneath the open runs.
    """

    journal: Callable[[Door, Write, str], RunJournal] = RunJournal
    past: Mapping[str, RunContext] = attrs.field(factory=dict)
    suspends: bool = False
    contexts: dict[str, Recorder] = attrs.field(factory=dict)
    outcomes: RunOutcomes = attrs.field(factory=RunOutcomes)
    _depths: dict[str, int] = attrs.field(factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether a run of this session can be suspended: one that works."""
        return self.suspends and any(context.is_live for context in self.contexts.values())

    def context(self, run: str) -> RunContext | None:
        """Return a copy of the context of *run*, if there is one."""
        found = self.contexts.get(run)
        return found.context if found else self.past.get(run)

    def find(self, result: Json) -> RunContext | None:
        """Return a copy of the context that *result* refers to, if there is one."""
        run = result.get("context") if isinstance(result, dict) and len(result) == 1 else None
        return self.context(run) if isinstance(run, str) else None

    def nest(self, run: str, parent: str | None) -> int:
        """Register *run* inside *parent*, and return how deep it is nested; the outermost run is 1 deep."""
        self.outcomes.open(run)
        depth = self._depths[run] = self._depths.get(parent or "", 0) + 1
        return depth

    def suspend(self, context: Recorder, problem: BaseException) -> bool:
        """Return whether *problem* suspends the run of *context*; if it waits for a person, record that."""
        if isinstance(problem, RunSuspended):
            if problem.error.code == "NEEDS_HUMAN" and context.is_live:
                context.need_human(recordable(problem.error.message, _MAX_REASON))
            return True
        return self.suspends and isinstance(problem, KeyboardInterrupt)

    def halt(self, reason: str) -> None:
        """Move every run that still works to HALTED, inner runs first."""
        for context in reversed(list(self.contexts.values())):
            if context.is_live:
                context.halt(reason)
