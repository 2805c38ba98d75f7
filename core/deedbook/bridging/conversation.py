"""One session of a coding agent: its events become calls, prompts and stops of one session here.

The agent's tool calls pass the door: it decides before, and records what became of them after. The effect is the
agent's, so that what is recorded is what the agent says.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook import canonical
from deedbook.contracts import Json, Object
from deedbook.errors import DomainError, Err, Result, fault, recordable
from deedbook.handlers import Outcome, Ticket
from deedbook.session import Session

from .agents import OTHER, Known, Moment
from .dialects import PASS, Answer, Heard
from .tickets import Held, Tickets
from .ways import Ways

_TOLD: Final = (
    "source", "reason", "trigger", "message", "title", "notification_type", "agent_id", "agent_type", "permission_mode",
    "cwd", "model", "tool_name",
)  # fmt: skip
"""The members of an event that nobody decides about which are recorded, where they are text."""
_MAX_TEXT: Final = 2000


class Conversation:
    """One agent's session, which *session* records; *settings* is what the charter says of the client."""

    def __init__(self, session: Session, known: Known, name: str, settings: Object, ways: Ways) -> None:
        self.session = session
        self.tickets = Tickets()
        self._known, self._name, self._settings, self._ways = known, name, settings, ways
        self._observing = session.bindings.enforcement == "observe"
        self._moments: Mapping[Moment, Callable[[Heard], Answer]] = {
            "begin": self._told,
            "prompt": self._prompt,
            "before": self._before,
            "dialogue": self._dialogue,
            "after": self._after,
            "failed": self._failed,
            "refused": self._refused,
            "stop": self._stop,
            "compact": self._compact,
            "told": self._told,
            "end": self._ended,
        }

    def answer(self, heard: Heard) -> Answer:
        """Answer one event; raises `DeedbookError` where it cannot be recorded."""
        return self._moments[heard.moment](heard)

    def end(self, reason: str, *, ok: bool = True) -> None:
        """End the session; what is open then has an unknown outcome."""
        self.session.end(ok=ok, reason=reason)

    # --- a tool call --------------------------------------------------------------------------------------------------

    def _before(self, heard: Heard) -> Answer:
        name = heard.call or _digest(heard.tool, heard.args)
        with self.tickets.judging(name) as held:
            if held is None or not heard.call:
                return self._judge(heard, name)
            if held.given == heard.args and (held.ticket.bound.id, held.judged) == self._asked(heard)[:2]:
                return held.answer
        why = f"{self._known.title} names two calls {heard.call!r}, the first of which is open"
        return _denied(self.session.refuse(self._ability(heard)[0], fault("INTAKE_REFUSED", why)).error)

    def _judge(self, heard: Heard, name: str) -> Answer:
        ability, args, pointers = self._asked(heard)
        opened = self.session.before(ability, args)
        if isinstance(opened, Err):
            return _parked(opened)
        ticket = opened.value
        try:
            return self._opened(ticket, heard, name, args, self._changed(ticket, heard, args, pointers))
        except BaseException:
            self._cancel(ticket, "what it was answered could not be made")
            raise

    def _opened(self, ticket: Ticket, heard: Heard, name: str, asked: Object, changed: Any) -> Answer:
        """Keep an open call and answer it; an answer that does not reach the agent takes it back."""
        if changed is not None and not self._takes(changed, heard.args):
            return _denied(self._cancel(ticket, f"a hook changed its input, and {self._known.title} takes no other"))
        answer = self._allowed(ticket, changed)
        held = Held(ticket, heard.args, asked, heard.args if changed is None else changed, answer)
        self.tickets.put(held, (name, *(_digest(heard.tool, each) for each in (held.given, held.run))))
        return attrs.evolve(answer, undo=lambda: self._take_back(held))

    def _takes(self, changed: Any, given: Object) -> bool:
        """Say whether the agent can be given another input; Gemini lays it over its own and forgets no member."""
        if type(changed) is not dict or "change" not in self._known.can:
            return False
        return self._known.dialect != "gemini" or given.keys() <= changed.keys()

    def _allowed(self, ticket: Ticket, changed: Object | None) -> Answer:
        context = _hints(ticket.signals)
        if ticket.asked:
            return Answer(outcome="ask", reason=ticket.asked, args=changed, context=context)
        skips = self._settings["allows"] == "deedbook" and not self._observing
        return Answer(outcome="allow" if skips or changed is not None else "pass", args=changed, context=context)

    def _take_back(self, held: Held) -> None:
        if self.tickets.drop(held):
            self._cancel(held.ticket, f"the answer did not reach {self._known.title}, which does not wait any more")

    def _cancel(self, ticket: Ticket, why: str) -> DomainError:
        error = fault("CANCELLED", f"{ticket.bound.id}: {why}")
        self.session.after(ticket, Outcome("cancelled", error=error))
        return error

    def _changed(self, ticket: Ticket, heard: Heard, args: Object, pointers: tuple[str, ...]) -> Any:
        """Return the input that rewriters left of *args*, as the agent would say it.

        ``None`` if nobody changed anything, and no object where it became another tool: an agent takes none.
        """
        if ticket.raw == canonical.encode(dict(args)):
            return None
        left = canonical.decode(ticket.raw)
        if ticket.bound.id != f"{self._name}/{OTHER}":
            inner = left
        elif left["tool"] == heard.tool:
            inner = left["input"]
        else:
            return left["tool"]
        return self._ways.outward(inner, pointers, heard.args, _cwd(heard))

    def _asked(self, heard: Heard) -> tuple[str, Any, tuple[str, ...]]:
        """Return which ability the agent asks for, with which arguments, and which of these are paths."""
        ability, own = self._ability(heard)
        if not own:
            return ability, {"tool": heard.tool, "input": dict(heard.args)}, ()
        declared = self.session.bindings.declared(ability)
        pointers = tuple(declared["paths"]) if declared else ()
        return ability, self._ways.inward(heard.args, pointers, _cwd(heard)), pointers

    def _ability(self, heard: Heard) -> tuple[str, bool]:
        """Return the ability of a tool, and whether it is one of its own; others share one, unless that is refused."""
        own = f"{self._name}/{heard.tool}"
        if heard.tool != OTHER and self.session.bindings.declared(own) is not None:
            return own, True
        return (own, True) if self._settings["unknown_tools"] == "deny" else (f"{self._name}/{OTHER}", False)

    # --- what became of it --------------------------------------------------------------------------------------------

    def _after(self, heard: Heard) -> Answer:
        if heard.error:
            return self._closed(
                heard, Outcome("failed", error=fault("INTAKE_REFUSED", recordable(heard.error, _MAX_TEXT)))
            )
        return self._closed(heard, Outcome("result", heard.result))

    def _failed(self, heard: Heard) -> Answer:
        what = heard.error or "the agent says no more"
        if heard.interrupted:
            return self._closed(heard, Outcome("cancelled", error=fault("CANCELLED", recordable(what, _MAX_TEXT))))
        return self._closed(heard, Outcome("failed", error=fault("AGENT_TOOL_FAILED", recordable(what, _MAX_TEXT))))

    def _refused(self, heard: Heard) -> Answer:
        said = heard.said.get("reason")
        why = recordable(
            f"{self._known.title} refused it by itself: {said if isinstance(said, str) else ''}", _MAX_TEXT
        )
        return self._closed(heard, Outcome("cancelled", error=fault("CANCELLED", why)))

    def _closed(self, heard: Heard, outcome: Outcome) -> Answer:
        held = self.tickets.take(heard.call or _digest(heard.tool, heard.args))
        if held is None:
            return self._unasked(heard, outcome, "no call of this session that is open is the one that is reported")
        ticket = held.ticket
        if not _is_the_same(held, heard.args):
            why = f"{self._known.title} reports other arguments than it was allowed to use"
            self.session.after(ticket, Outcome("unknown", error=fault("OUTCOME_UNKNOWN", why)))
            return self._unasked(heard, outcome, "it was made with other arguments than those that were judged")
        return self._seen(ticket, outcome, self.session.after(ticket, outcome))

    def _seen(self, ticket: Ticket, outcome: Outcome, seen: Result[Json]) -> Answer:
        """Let the agent have what hooks left of the result, as far as it still can be taken from it."""
        if outcome.end != "result" or ticket.outcome is None:
            return PASS
        if isinstance(seen, Err):
            return Answer(outcome="deny", reason=str(seen.error))
        return PASS if seen.value == outcome.value else Answer(result=(seen.value,))

    def _unasked(self, heard: Heard, outcome: Outcome, why: str) -> Answer:
        """Record a call that was made and not asked for: it cannot be undone, and shall not be unseen."""
        told: dict[str, Any] = {
            "tool_name": recordable(f"{self._name}/{heard.tool}"),
            "args": dict(heard.args),
            "why": why,
        }
        if heard.call:
            told["call_id"] = recordable(heard.call)
        told |= {"result": outcome.value} if outcome.error is None else {"error": outcome.error.message}
        self.session.note("tool.unasked", "tool", told, durable=True)
        return PASS

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _dialogue(self, heard: Heard) -> Answer:
        """Let an agent ask its person about a call that is open; any other was never judged."""
        if self.tickets.find(_digest(heard.tool, heard.args)) is not None:
            return self._told(heard)
        why = f"no use of {heard.tool} with this input was judged before"
        self._note(heard, denied=recordable(why))
        return Answer(outcome="deny", reason=why)

    def _prompt(self, heard: Heard) -> Answer:
        taken = self.session.submit(heard.prompt)
        if isinstance(taken, Err):
            return _denied(taken.error)
        if taken.value.prompt != heard.prompt:
            why = (
                f"a hook changed the prompt, and {self._known.title} takes no other; say instead: {taken.value.prompt}"
            )
            return Answer(outcome="deny", reason=why)
        return Answer(context=_hints(taken.value.signals))

    def _stop(self, heard: Heard) -> Answer:
        """Ask whether the loop may go on. Only who allows it and says what for makes an agent go on, and only once."""
        fired = self.session.stop(ok=True)
        if fired.refusal is not None or not fired.said or heard.again:
            return PASS
        return Answer(outcome="go_on", reason="\n".join(fired.said))

    def _compact(self, heard: Heard) -> Answer:
        subject = {
            name: heard.said[name] for name in ("trigger", "custom_instructions") if _is_text(heard.said.get(name))
        }
        fired = self.session.fire("PreCompact", {"messages": [], **subject})
        return PASS if fired.refusal is None else Answer(outcome="deny", reason=fired.refusal)

    def _told(self, heard: Heard) -> Answer:
        self._note(heard)
        return PASS

    def _note(self, heard: Heard, **answered: str) -> None:
        said = {name: recordable(heard.said[name], _MAX_TEXT) for name in _TOLD if _is_text(heard.said.get(name))}
        told = {"agent": self._name, "event": heard.event, "said": said, **answered}
        self.session.note("bridge.told", "agent", told)

    def _ended(self, heard: Heard) -> Answer:
        self._told(heard)
        self.end(f"{self._known.title} ended its session")
        return PASS


def _denied(error: DomainError) -> Answer:
    return Answer(outcome="deny", reason=f"{error.code}: {error}")


def _parked(refused: Err) -> Answer:
    """Return a denial; of a call that a person has to decide, with what is to be done."""
    identity = refused.told.get("approval")
    if refused.error.code != "NEEDS_HUMAN" or identity is None:
        return _denied(refused.error)
    how = f"a person runs: deedbook approvals approve {identity} --as NAME; then make the same call again"
    return Answer(outcome="deny", reason=f"{_denied(refused.error).reason}; {how}")


def _is_the_same(held: Held, reported: Object) -> bool:
    """Say whether the input that is *reported* is the one that may run; of a read, more may come back."""
    same = reported if held.ticket.bound.durable else {name: reported[name] for name in held.run if name in reported}
    return canonical.encode(dict(same)) == canonical.encode(dict(held.run))


def _digest(tool: str, args: Object) -> str:
    return sha256(canonical.encode({"tool": tool, "input": dict(args)})).hexdigest()


def _cwd(heard: Heard) -> str:
    cwd = heard.said.get("cwd")
    return cwd if isinstance(cwd, str) else ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _hints(signals: Object) -> str:
    """Return what hooks signalled about a prompt, a line each."""
    return "\n".join(f"{name} ({each['hook']}): {_shown(each['value'])}" for name in signals for each in signals[name])


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()
