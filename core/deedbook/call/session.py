"""Sessions: one life of work with one ledger file. Everything a session does to the world goes through its door."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from deedbook.contract import Event, Json, Object, Principal, Skill
from deedbook.format import canonical
from deedbook.format.context import LIVE, ContextFold, Recorder
from deedbook.format.errors import DeedbookError, DomainError, Err, Ok, Result, describe, fault, require_type
from deedbook.format.event_text import decided_at
from deedbook.format.events import Entry, label
from deedbook.format.folds import MetricsFold
from deedbook.format.reader import read
from deedbook.format.schema import Schemas
from deedbook.ledger.ledger import Ledger
from deedbook.ledger.recovery import close_lost
from deedbook.plugins.routing.fit import Choice, choose
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.callers import beginning, parked
from deedbook.policy.commands import allowed_of
from deedbook.policy.requests import principal_json

from .door import Door
from .handlers import Outcome, Ticket
from .hooks import Fired, HookRunner
from .origins import Origin
from .pending_calls import Grant, PendingCalls, caller_of
from .records import check_record
from .runs import CallCtx, FlowRun, MemoryCall

Show = Callable[[Json], None]
T = TypeVar("T")


@attrs.frozen
class Reply:
    """The answer of a run: what is said, the state it ended in, the flow's whole result, and what hooks signalled."""

    text: str
    state: str
    result: Object
    signals: Object = attrs.field(factory=dict)


@attrs.frozen
class Submitted:
    """A prompt as hooks left it, what they signalled (`hooks.Fired`), and the span of its ``user.message``."""

    prompt: str
    signals: Object
    message: str


class Facts:
    """What gates may read of a session: folds of its ledger, kept up to date as it is written.

    Where no gate reads any of *names*, nothing is folded.
    """

    def __init__(self, ledger: Ledger, names: frozenset[str]) -> None:
        self._metrics, self._context = MetricsFold(), ContextFold()
        self._spent, self._state = self._metrics.start(), self._context.start()
        if names:
            ledger.subscribe(self._step)

    def __call__(self, names: frozenset[str]) -> Object:
        """Return the named facts as they are now."""
        known = {**self._spent.facts(), "context.state": self._state.state if self._state else None}
        return {name: canonical.decode(canonical.encode(known[name])) for name in names}

    def _step(self, event: Event) -> None:
        self._spent = self._metrics.step(self._spent, event)
        self._state = self._context.step(self._state, event)


class Session:
    """One session, from ``session.start`` to ``session.end``; use it as a context manager.

    *prompted* and *closed* are called once a prompt and the end are recorded, *ending* before the end is. Calls that a
    person has to decide are left with *parking*. *origin* is what the session goes on from; *before_effects* are called
    before effects begin.
    """

    def __init__(  # noqa: PLR0913 - all but the first four by name
        self,
        bindings: Bindings,
        ledger: Ledger,
        principal: Principal,
        schemas: Schemas,
        *,
        show: Show,
        closed: Callable[["Session"], None],
        parking: PendingCalls,
        prompted: Callable[["Session"], None],
        ending: Callable[["Session"], None],
        origin: Origin | None = None,
        before_effects: Mapping[str, Sequence[Callable[[Ticket], None]]] = {},
    ) -> None:
        self.bindings = bindings
        self.ledger = ledger
        self.principal = principal
        self.caller = beginning(principal, bindings)
        self.ended = False
        self._schemas = schemas
        self._show = show
        self._closed = closed
        self._prompted = prompted
        self._before_end = ending
        self._origin = origin
        self._facts = Facts(ledger, bindings.reads)
        self.hooks = HookRunner(bindings, ledger, self._facts, time.perf_counter)
        self._own = parking.own
        contexts = {"tool": self._ctx, "model": self._ctx, "flow": self._flow_run, "memory": self._memory_call}
        self.door = Door(
            bindings, ledger,
            facts=self._facts, contexts=contexts, clock=time.perf_counter, parking=parking,
            origin=origin, before_effects=before_effects,
        )  # fmt: skip
        self._root = self._cause = ""
        self._ending = Lock()
        self._context: Recorder | None = None
        self._resumed = ""

    @property
    def id(self) -> str:
        """The session's id."""
        return self.ledger.session_id

    @property
    def cause(self) -> str:
        """The span that hangs above what is done next: the last message that was submitted, else the beginning."""
        return self._cause

    @contextmanager
    def under(self, span: str) -> Iterator[None]:
        """Let what is done meanwhile hang under *span*; only one thread does anything in the session then."""
        before, self._cause = self._cause, span
        try:
            yield
        finally:
            self._cause = before

    # --- life cycle ---------------------------------------------------------------------------------------------------

    def start(self, purpose: str) -> Result[None]:
        """Write ``session.start``, and where it goes on from; ask the hooks. A refusal ends the session."""
        document = self.bindings.charter.document
        who = self.principal
        payload = {
            "kernel": document["kernel"],
            "enforcement": document["enforcement"],
            "charter": self.bindings.charter.digest,
            "profile": document["profile"],
            "durability": document["durability"],
            "principal": principal_json(who),
            "purpose": purpose,
        }
        self._root = self._cause = self._write("session.start", "runtime", payload, None, principal=None)
        if self._origin is not None:
            self._resumed = self._write(self._origin.event, "runtime", self._origin.payload, self._root)
        if persona := document.get("persona"):
            bound = {"persona": persona["id"], "version": persona["version"], "digest": persona["digest"]}
            self._write("persona.bound", "runtime", bound, self._root, principal=None)
        fired = self.hooks.session_start(who, self._root)
        if fired.refusal is None:
            return Ok(None)
        self.end(ok=False, reason=f"SessionStart: {fired.refusal}")
        return _refused("SESSION_DENIED", fired)

    def end(self, *, ok: bool, reason: str) -> None:
        """Close open tickets as unknown, tell the hooks, write ``session.end``; a second time does nothing."""
        with self._ending:
            if self.ended:
                return
            self.ended = True
        try:
            self._finish(ok=ok, reason=reason)
        finally:
            try:
                self.ledger.close()
            finally:
                self._closed(self)

    def _finish(self, *, ok: bool, reason: str) -> None:
        self.door.close()
        if self.door.doubt:
            close_lost(self.ledger, read(Path(self.ledger.place)))
        if self._context is not None and self._context.state in LIVE:
            self._context.halt(reason)
        self.hooks.session_stop(self.principal, self._root, ok=ok)
        self._before_end(self)
        self._write("session.end", "runtime", {"ok": ok, "reason": reason}, self._root, principal=None, durable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.end(ok=True, reason="done")
        elif issubclass(kind, KeyboardInterrupt):
            self.end(ok=False, reason="interrupted")
        else:
            self.end(ok=False, reason=describe(problem) if problem else kind.__name__)

    # --- work ---------------------------------------------------------------------------------------------------------

    def call(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Json]:
        """Use one ability on the principal's account; a person's answer is waited for *wait* seconds.

        Without *wait* it is what the session was begun with.
        """
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return self.door.call(self._patient(wait), ability, args, self._cause)

    def resume(self, request: Object, grant: Grant) -> Result[Json]:
        """Perform the call that another session parked and a person has approved, once, as who asked for it."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        asked = self._write("approval.requested", "policy", request, self._resumed)
        args = request.get("given", request["args"])
        return self.door.resume(parked(caller_of(request), self.bindings), request["name"], args, asked, grant)

    async def acall(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Json]:
        """Do what `call` does, from a coroutine."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return await self.door.acall(self._patient(wait), ability, args, self._cause)

    def _patient(self, wait: float | None) -> Caller:
        return self.caller if wait is None else attrs.evolve(self.caller, patience=wait)

    def submit(self, prompt: str) -> Result[Submitted]:
        """Take in a prompt that somebody else acts on: ask the hooks, and record it; later calls hang under it."""
        return self._taken(prompt, self._submit)

    def _submit(self, fired: Fired) -> Result[Submitted]:
        self._cause = self._message(fired)
        return Ok(Submitted(fired.prompt, fired.signals, self._cause))

    # --- what somebody else does --------------------------------------------------------------------------------------

    def before(self, ability: str, args: Json) -> Result[Ticket]:
        """Decide about a call whose effect is somebody else's; a ticket lets them begin, and `after` must follow."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return self.door.before(self.caller, ability, args, self._cause)

    def after(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Record what became of a call that `before` allowed, and return what its caller may see."""
        return self.door.after(ticket, outcome)

    def refuse(self, ability: str, error: DomainError) -> Err:
        """Record that a call never came so far as to be judged, and return why."""
        return self.door.refuse(self.caller, ability, error, self._cause)

    def stop(self, *, ok: bool) -> Fired:
        """Ask the hooks of ``Stop`` whether somebody else's loop may go on; raises `LedgerError`."""
        return self.hooks.stop(self.principal, self._cause, ok=ok)

    def fire(self, event: str, subject: Object) -> Fired:
        """Ask the hooks of an event that somebody else's loop has come to; raises `LedgerError`, `IntakeError`."""
        return self.hooks.fire(event, subject, self.principal, self._cause)

    def note(self, event_type: str, actor: str, payload: Object, *, durable: bool = False) -> str:
        """Record an event about somebody else's loop and return its span; raises `LedgerError`, `IntakeError`."""
        return self._write(event_type, actor, payload, self._cause, durable=durable)

    def record(self, event_type: str, payload: Object) -> str:
        """Record an event of a type that a feature of the charter declares, under the session; return its span.

        Raises `Failed` (``NOT_AVAILABLE``) for another type, and (``SCHEMA_VIOLATION``) for a payload that is not what
        the type's schema wants.
        """
        check_record(self.bindings, event_type, payload, "feature")
        return self._write(event_type, "runtime", payload, self._root)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(self, prompt: str) -> Result[Reply]:
        """Take a request through hooks, skill and flow to a reply."""
        return self._taken(prompt, self._run)

    def _taken(self, prompt: str, go: Callable[[Fired], Result[T]]) -> Result[T]:
        """Ask the hooks about *prompt*, and *go* on with what they leave of it."""
        require_type(prompt, (str,), "prompt")
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        try:
            canonical.admit(prompt)
            fired = self.hooks.user_prompt_submit(prompt, self.principal, self._root)
            return _refused("PROMPT_DENIED", fired) if fired.refusal is not None else go(fired)
        except DeedbookError as problem:
            return Err(problem.error)

    def _message(self, fired: Fired) -> str:
        span = self._write("user.message", "user", {"text": fired.prompt}, self._root)
        self._prompted(self)
        return span

    def _run(self, fired: Fired) -> Result[Reply]:
        flow = self.bindings.charter.document["flow"]
        if flow is None:
            why = "no flow is set for this profile; `deedbook init --full` in another folder shows a profile with one"
            return Err(fault("BINDING_INVALID", why))
        message = self._message(fired)
        caller = attrs.evolve(self.caller, signals=fired.signals)
        choices = self._choices(fired)
        if not choices:
            return self._reply(self._without_skill(caller, flow, fired.prompt, message), message, caller)
        return self._with_skill(caller, choices, flow, fired.prompt, message)

    def _choices(self, fired: Fired) -> list[Choice]:
        """Return the skills that fit: what a hook says the prompt means, where that fits any, else the prompt."""
        skills = self.bindings.skills.values()
        intents = (each["value"] for each in fired.signals.get("normalized_intent", ()))
        found = (choose(text, skills, says="the intent") for text in intents)
        return next((each for each in found if each), None) or choose(fired.prompt, skills)

    def _with_skill(self, caller: Caller, choices: list[Choice], flow: str, prompt: str, message: str) -> Result[Reply]:
        skill = choices[0].skill
        invoked = self._write("skill.invoke", "runtime", self._invocation(skill, choices), message)
        fired = self.hooks.skill_start(skill.name, prompt, self.principal, invoked)
        if fired.refusal is not None:
            self._complete(skill, invoked, ok=False, reason=fired.refusal)
            return _refused("SKILL_DENIED", fired)
        ended = self._flow(attrs.evolve(caller, skill=skill.name), flow, fired.prompt, invoked)
        result = self._reply(ended, message, caller)
        ok = isinstance(result, Ok) and result.value.state == "COMPLETED"
        reason = result.value.state if isinstance(result, Ok) else result.error.code
        self._complete(skill, invoked, ok=ok, reason=reason)
        return result

    def _without_skill(self, caller: Caller, flow: str, prompt: str, message: str) -> Result[Json]:
        """Run the flow with nothing in scope; where the model has no rule for that, say which skills there are."""
        result = self._flow(caller, flow, prompt, message)
        if isinstance(result, Err) and result.error.code == "NO_RULE":
            known = "; ".join(f"{s.name} ({', '.join(s.triggers)})" for s in self.bindings.skills.values()) or "none"
            return Err(fault("NO_RULE", f"no skill fits this request; skills and their triggers: {known}"))
        return result

    def _flow(self, caller: Caller, flow: str, prompt: str, cause: str) -> Result[Json]:
        return self.door.call(caller, flow, {"prompt": prompt}, cause)

    def _reply(self, ended: Result[Any], message: str, caller: Caller) -> Result[Reply]:
        """Write the agent's reply, and ask the hooks whether the loop may go on."""
        if isinstance(ended, Err):
            self.hooks.stop(self.principal, message, ok=False)
            return ended
        result = ended.value if isinstance(ended.value, Mapping) else {"reply": ended.value}
        reply = Reply(_text(result.get("reply", "")), str(result.get("state", "COMPLETED")), result, caller.signals)
        self._write("agent.reply", "agent", {"reply": reply.text, "tool_calls": []}, message)
        self.hooks.stop(self.principal, message, ok=reply.state == "COMPLETED")
        return Ok(reply)

    def _invocation(self, skill: Skill, choices: list[Choice]) -> dict[str, Any]:
        entry = self.bindings.charter.document["skills"][skill.name]
        return {
            "skill": skill.name,
            "digest": canonical.digest(canonical.encode(entry)),
            "source": skill.source,
            "allowed": allowed_of(entry),
            "candidates": [{"skill": c.skill.name, "score": c.score, "reason": c.reason} for c in choices],
        }

    def _complete(self, skill: Skill, invoked: str, *, ok: bool, reason: str) -> None:
        self._write("skill.complete", "runtime", {"skill": skill.name, "ok": ok, "reason": reason}, invoked)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _ctx(self, ticket: Ticket) -> CallCtx:
        return CallCtx(self.door, ticket, self._show)

    def _memory_call(self, ticket: Ticket) -> MemoryCall:
        return MemoryCall(self.door, ticket, self._show, self._own)

    def _flow_run(self, ticket: Ticket) -> FlowRun:
        before = self._context.context if self._context else None
        run = FlowRun(self.door, ticket, self._show, self._schemas, before, self.hooks)
        self._context = run.context
        return run

    def _write(
        self, event_type: str, actor: str, payload: Object, cause: str | None, *,
        principal: str | None = "", durable: bool = False,
    ) -> str:  # fmt: skip
        """Append one event and return its span; *principal* defaults to the session's."""
        span = self.ledger.span()
        who = label(event_type, actor, self.principal.id if principal == "" else principal)
        self.ledger.append([Entry(who, span, cause, canonical.encode_payload(dict(payload)))], durable=durable)
        return span


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()


def _refused(code: str, fired: Fired) -> Err:
    assert fired.refusal is not None
    return Err(fault(code, fired.refusal, place=decided_at(fired.by)))
