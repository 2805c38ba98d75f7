"""One session of a coding agent: its events become calls, prompts and stops of one Deedbook session.

The agent's tool calls pass the door, which decides before each call and records its outcome afterwards. The agent
performs the effect, so the record holds what the agent reports.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook.call.handlers import Outcome, Ticket
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DomainError, Err, Result, fault, recordable
from deedbook.policy.gates import describe_source
from deedbook.policy.path_mapping import PathMapper
from deedbook.sessions.session import Session
from deedbook_serve.agents import MCP, OTHER, CodingAgent, Moment

from .dialects import PASS, Answer, HookEvent, RenderedAnswer
from .installations import SettingsWatch
from .open_calls import OpenCall, OpenCalls

_MAX_TEXT: Final = 2000
_MAX_MEMBERS: Final = 50
"""The largest number of recorded members of an event that no table lists."""


class Conversation:
    """One agent's session, recorded in *session*.

    *settings* is the client's entry in the charter; *watch* reads the hooks in the agent's own files.
    """

    def __init__(
        self,
        session: Session,
        agent: CodingAgent,
        name: str,
        settings: Object,
        path_mapper: PathMapper,
        watch: SettingsWatch | None = None,
    ) -> None:
        self.session = session
        self.open_calls = OpenCalls()
        self._agent, self._name, self._settings, self._path_mapper = agent, name, settings, path_mapper
        self._watch = watch
        self._observing = session.bindings.enforcement == "observe"
        self._handlers: Mapping[Moment, Callable[[HookEvent], Answer]] = {
            "begin": self._record,
            "prompt": self._prompt,
            "before": self._before,
            "dialogue": self._dialogue,
            "after": self._after,
            "failed": self._record_failure,
            "refused": self._record_refusal,
            "stop": self._stop,
            "compact": self._compact,
            "settings": self._changed_settings,
            "gate": self._record,
            "told": self._record,
            "end": self._end,
        }

    def answer(self, hook_event: HookEvent) -> Answer:
        """Answer one event; raises `DeedbookError` if it cannot be recorded."""
        return self._handlers[hook_event.moment](hook_event)

    def record_undelivered(self, hook_event: HookEvent, rendered: RenderedAnswer) -> None:
        """Record the parts of an answer that the agent has no form for; there it acts differently than decided."""
        payload: dict[str, Any] = {
            "agent": self._name,
            "event": hook_event.name,
            "what": list(rendered.lost),
            "why": rendered.why,
        }
        if hook_event.tool:
            payload["tool_name"] = recordable(f"{self._name}/{hook_event.tool}")
        if hook_event.call:
            payload["call_id"] = recordable(hook_event.call)
        self.session.note("bridge.undelivered", "runtime", payload, durable=True)

    def end(self, reason: str, *, ok: bool = True) -> None:
        """End the session; calls that are still open get an unknown outcome."""
        self.session.end(ok=ok, reason=reason)

    # --- a tool call -------------------------------------------------------------------------------------------------

    def _before(self, hook_event: HookEvent) -> Answer:
        name = hook_event.call or _digest(hook_event.tool, hook_event.args)
        with self.open_calls.reserve(name) as open_call:
            if open_call is None or not hook_event.call:
                return self._judge(hook_event, name)
            if (
                open_call.input == hook_event.args
                and (open_call.ticket.bound.id, open_call.judged) == self._build_call(hook_event)[:2]
            ):
                return open_call.answer
        why = f"{self._agent.title} names two calls {hook_event.call!r}, the first of which is open"
        return _build_denial(self.session.refuse(self._find_ability(hook_event)[0], fault("INTAKE_REFUSED", why)))

    def _judge(self, hook_event: HookEvent, name: str) -> Answer:
        ability, args, pointers = self._build_call(hook_event)
        opened = self.session.before(ability, args)
        if isinstance(opened, Err):
            return _build_pending_denial(opened)
        ticket = opened.value
        try:
            return self._register(
                ticket, hook_event, name, args, self._find_changed_input(ticket, hook_event, args, pointers)
            )
        except BaseException:
            self._cancel(ticket, "what it was answered could not be made")
            raise

    def _register(self, ticket: Ticket, hook_event: HookEvent, name: str, judged: Object, changed: Any) -> Answer:
        """Register an open call and return its answer; an undelivered answer cancels the call."""
        if changed is not None and not self._accepts_input(changed, hook_event.args):
            why = f"a hook changed its input, and {self._agent.title} takes no other"
            return _build_denial(Err(self._cancel(ticket, why)))
        answer = self._build_permission(ticket, changed)
        open_call = OpenCall(ticket, hook_event.args, judged, hook_event.args if changed is None else changed, answer)
        self.open_calls.put(
            open_call, (name, *(_digest(hook_event.tool, each) for each in (open_call.input, open_call.allowed)))
        )
        return attrs.evolve(answer, undo=lambda: self._take_back(open_call))

    def _accepts_input(self, changed: Any, given: Object) -> bool:
        """Return whether the agent can take the *changed* input; an agent that merges inputs cannot drop a member."""
        before = self._agent.event("before")
        if type(changed) is not dict or before is None or "change" not in before.answers:
            return False
        return not before.merges or given.keys() <= changed.keys()

    def _build_permission(self, ticket: Ticket, changed: Object | None) -> Answer:
        context = _format_signals(ticket.signals)
        if ticket.asked:
            return Answer(outcome="ask", reason=ticket.asked, args=changed, context=context)
        skips = self._settings["allows"] == "deedbook" and not self._observing
        return Answer(outcome="allow" if skips or changed is not None else "pass", args=changed, context=context)

    def _take_back(self, open_call: OpenCall) -> None:
        if self.open_calls.drop(open_call):
            self._cancel(
                open_call.ticket, f"the answer did not reach {self._agent.title}, which does not wait any more"
            )

    def _cancel(self, ticket: Ticket, why: str) -> DomainError:
        error = fault("CANCELLED", f"{ticket.bound.id}: {why}")
        self.session.after(ticket, Outcome("cancelled", error=error))
        return error

    def _find_changed_input(
        self, ticket: Ticket, hook_event: HookEvent, args: Object, pointers: tuple[str, ...]
    ) -> Any:
        """Return the input after rewriting, in the agent's own form.

        ``None`` if no hook changed anything; a value that is no object if the tool itself was changed, which no agent
        accepts.
        """
        if ticket.raw == canonical.encode(dict(args)):
            return None
        changed = canonical.decode(ticket.raw)
        if ticket.bound.id not in (f"{self._name}/{OTHER}", f"{self._name}/{MCP}"):
            inner = changed
        elif {**changed, "input": args["input"]} == args:
            inner = changed["input"]
        else:
            return changed["tool"]
        return self._path_mapper.to_absolute(inner, pointers, hook_event.args, _cwd(hook_event))

    def _build_call(self, hook_event: HookEvent) -> tuple[str, Any, tuple[str, ...]]:
        """Return the ability that the agent asks for, its arguments, and the pointers to arguments that are paths."""
        ability, own = self._find_ability(hook_event)
        if not own:
            args: dict[str, Any] = {"tool": hook_event.tool, "input": dict(hook_event.args)}
            if self._agent.mcp is not None and ability == f"{self._name}/{MCP}":
                args["server"] = self._agent.mcp.server_name(hook_event.tool, hook_event.input)
            return ability, args, ()
        declared = self.session.bindings.entry_of(ability)
        pointers = tuple(declared["paths"]) if declared else ()
        return ability, self._path_mapper.to_relative(hook_event.args, pointers, _cwd(hook_event)), pointers

    def _find_ability(self, hook_event: HookEvent) -> tuple[str, bool]:
        """Return the ability of a tool, and whether it is the tool's own.

        Undeclared tools share an ability unless the workspace denies them: one for tools of MCP servers, one for all
        others.
        """
        own = f"{self._name}/{hook_event.tool}"
        if hook_event.tool not in (OTHER, MCP) and self.session.bindings.entry_of(own) is not None:
            return own, True
        if self._settings["unknown_tools"] == "deny":
            return own, True
        is_mcp = self._agent.mcp is not None and self._agent.mcp.matches(hook_event.tool, hook_event.input)
        return f"{self._name}/{MCP if is_mcp else OTHER}", False

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _after(self, hook_event: HookEvent) -> Answer:
        if hook_event.error:
            return self._close(
                hook_event, Outcome("failed", error=fault("INTAKE_REFUSED", recordable(hook_event.error, _MAX_TEXT)))
            )
        return self._close(hook_event, Outcome("result", hook_event.result))

    def _record_failure(self, hook_event: HookEvent) -> Answer:
        what = hook_event.error or "the agent says no more"
        if hook_event.interrupted:
            return self._close(hook_event, Outcome("cancelled", error=fault("CANCELLED", recordable(what, _MAX_TEXT))))
        return self._close(hook_event, Outcome("failed", error=fault("AGENT_TOOL_FAILED", recordable(what, _MAX_TEXT))))

    def _record_refusal(self, hook_event: HookEvent) -> Answer:
        reason = hook_event.input.get("reason")
        why = recordable(
            f"{self._agent.title} refused it by itself: {reason if isinstance(reason, str) else ''}", _MAX_TEXT
        )
        return self._close(hook_event, Outcome("cancelled", error=fault("CANCELLED", why)))

    def _close(self, hook_event: HookEvent, outcome: Outcome) -> Answer:
        open_call = self.open_calls.take(hook_event.call or _digest(hook_event.tool, hook_event.args))
        if open_call is None:
            return self._record_unasked(
                hook_event, outcome, "no call of this session that is open is the one that is reported"
            )
        ticket = open_call.ticket
        if not _is_same_input(open_call, hook_event.args):
            why = f"{self._agent.title} reports other arguments than it was allowed to use"
            self.session.after(ticket, Outcome("unknown", error=fault("OUTCOME_UNKNOWN", why)))
            return self._record_unasked(
                hook_event, outcome, "it was made with other arguments than those that were judged"
            )
        return self._build_result_answer(ticket, outcome, self.session.after(ticket, outcome))

    def _build_result_answer(self, ticket: Ticket, outcome: Outcome, seen: Result[Json]) -> Answer:
        """Return the result as hooks changed it, or a denial, as far as the agent can still replace its result."""
        if outcome.end != "result" or ticket.outcome is None:
            return PASS
        if isinstance(seen, Err):
            return Answer(outcome="deny", reason=str(seen.error))
        return PASS if seen.value == outcome.value else Answer(result=(seen.value,))

    def _record_unasked(self, hook_event: HookEvent, outcome: Outcome, why: str) -> Answer:
        """Record a call that the agent made without asking: it cannot be undone, but it must be visible."""
        payload: dict[str, Any] = {
            "tool_name": recordable(f"{self._name}/{hook_event.tool}"),
            "args": dict(hook_event.args),
            "why": why,
        }
        if hook_event.call:
            payload["call_id"] = recordable(hook_event.call)
        payload |= {"result": outcome.value} if outcome.error is None else {"error": outcome.error.message}
        self.session.note("tool.unasked", "tool", payload, durable=True)
        return PASS

    # --- other events ------------------------------------------------------------------------------------------------

    def _dialogue(self, hook_event: HookEvent) -> Answer:
        """Let an agent ask its user about an open call; deny for a call that was never judged."""
        about = self._agent.events[hook_event.name]
        less = {name: value for name, value in hook_event.args.items() if name not in about.beside}
        if any(self.open_calls.find(_digest(hook_event.tool, args)) is not None for args in (hook_event.args, less)):
            return self._record(hook_event)
        why = f"no use of {hook_event.tool} with this input was judged before"
        self._note(hook_event, denied=recordable(why))
        return Answer(outcome="deny", reason=why)

    def _prompt(self, hook_event: HookEvent) -> Answer:
        submitted = self.session.submit(hook_event.prompt)
        if isinstance(submitted, Err):
            return _build_denial(submitted)
        if submitted.value.prompt != hook_event.prompt:
            changed = submitted.value.prompt
            why = f"a hook changed the prompt, and {self._agent.title} takes no other; say instead: {changed}"
            return Answer(outcome="deny", reason=why)
        return Answer(context=_format_signals(submitted.value.signals))

    def _stop(self, hook_event: HookEvent) -> Answer:
        """Ask the stop hooks. An agent goes on only if a hook allows it and gives a reason, and only once."""
        decision = self.session.stop(ok=True)
        if decision.refusal is not None or not decision.reasons or hook_event.again:
            return PASS
        return Answer(outcome="go_on", reason="\n".join(decision.reasons))

    def _compact(self, hook_event: HookEvent) -> Answer:
        subject = {
            name: hook_event.input[name]
            for name in ("trigger", "custom_instructions")
            if _is_text(hook_event.input.get(name))
        }
        decision = self.session.fire("PreCompact", {"messages": [], **subject})
        if decision.refusal is None:
            return PASS
        return Answer(outcome="deny", reason=f"{decision.refusal}{describe_source(decision.by)}")

    def _changed_settings(self, hook_event: HookEvent) -> Answer:
        """Refuse a change of the agent's settings that would remove the bridge's hooks."""
        why = self._watch.find_removed(hook_event.input) if self._watch else None
        if why is None:
            return self._record(hook_event)
        self._note(hook_event, denied=recordable(why))
        return Answer(outcome="deny", reason=why)

    def _record(self, hook_event: HookEvent) -> Answer:
        self._note(hook_event)
        return PASS

    def _note(self, hook_event: HookEvent, **answered: str) -> None:
        about = self._agent.events.get(hook_event.name)
        found = dict(list(hook_event.input.items())[:_MAX_MEMBERS])
        if about is not None:
            found = {name: _get_member(hook_event.input, name) for name in (*about.records, *self._agent.records)}
        members = {recordable(name): _shorten(value) for name, value in found.items() if value not in (None, "")}
        payload = {"agent": self._name, "event": hook_event.name, "said": members, **answered}
        self.session.note("bridge.told", "agent", payload)

    def _end(self, hook_event: HookEvent) -> Answer:
        self._record(hook_event)
        self.end(f"{self._agent.title} ended its session")
        return PASS


def _build_denial(refused: Err) -> Answer:
    """Return a denial with its source and the place of the rule."""
    return Answer(outcome="deny", reason=describe_refusal(refused))


def describe_refusal(refused: Err) -> str:
    """Return the reason of a refusal: the code, the rule and its place, and the message."""
    return f"{refused.error.code}: {refused.error}"


def _build_pending_denial(refused: Err) -> Answer:
    """Return a denial; for a call that waits for a person, add the command that approves it."""
    identity = refused.details.get("approval")
    if refused.error.code != "NEEDS_HUMAN" or identity is None:
        return _build_denial(refused)
    how = f"a person runs: deedbook approvals approve {identity} --as NAME; then make the same call again"
    return Answer(outcome="deny", reason=f"{describe_refusal(refused)}; {how}")


def _is_same_input(open_call: OpenCall, reported: Object) -> bool:
    """Return whether the *reported* input is the allowed one; a read may report additional members."""
    same = (
        reported
        if open_call.ticket.bound.durable
        else {name: reported[name] for name in open_call.allowed if name in reported}
    )
    return canonical.encode(dict(same)) == canonical.encode(dict(open_call.allowed))


def _digest(tool: str, args: Object) -> str:
    return sha256(canonical.encode({"tool": tool, "input": dict(args)})).hexdigest()


def _cwd(hook_event: HookEvent) -> str:
    cwd = hook_event.input.get("cwd")
    return cwd if isinstance(cwd, str) else ""


def _get_member(document: Object, path: str) -> Any:
    """Return the value at *path*: names of members and indexes of elements, separated by slashes."""
    value: Any = document
    for step in path.split("/"):
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _shorten(value: Json) -> Json:
    """Return the recorded form of a member: text is cut, numbers stay, of a container only its length."""
    if isinstance(value, str):
        return recordable(value, _MAX_TEXT)
    return {"count": len(value)} if isinstance(value, dict | list) else value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _format_signals(signals: Object) -> str:
    """Return the signals of hooks about a prompt, one line each."""
    return "\n".join(
        f"{name} ({each['hook']}): {_format_value(each['value'])}" for name in signals for each in signals[name]
    )


def _format_value(value: Json) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()
