"""One session of a coding agent: its events become calls, prompts and stops of one session here.

The agent's tool calls pass the door: it decides before, and records what became of them after. The effect is the
agent's, so that what is recorded is what the agent says.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook.call.handlers import Outcome, Ticket
from deedbook.call.session import Session
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DomainError, Err, Result, fault, recordable
from deedbook.policy.gates import describe_source
from deedbook.policy.path_mapping import PathMapper
from deedbook_serve.agents import MCP, OTHER, Known, Moment

from .dialects import PASS, Answer, Heard, Said
from .installations import Watch
from .tickets import Held, Tickets

_MAX_TEXT: Final = 2000
_MAX_MEMBERS: Final = 50
"""Members of an event that is in no table which are recorded."""


class Conversation:
    """One agent's session, which *session* records.

    *settings* is what the charter says of the client, *watch* sees which hooks stand in the agent's own files.
    """

    def __init__(
        self, session: Session, known: Known, name: str, settings: Object, ways: PathMapper, watch: Watch | None = None
    ) -> None:
        self.session = session
        self.tickets = Tickets()
        self._known, self._name, self._settings, self._ways = known, name, settings, ways
        self._watch = watch
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
            "settings": self._changed_settings,
            "gate": self._told,
            "told": self._told,
            "end": self._ended,
        }

    def answer(self, heard: Heard) -> Answer:
        """Answer one event; raises `DeedbookError` where it cannot be recorded."""
        return self._moments[heard.moment](heard)

    def undelivered(self, heard: Heard, said: Said) -> None:
        """Record what the agent could not be told: it was decided here, and is not what happens there."""
        told: dict[str, Any] = {"agent": self._name, "event": heard.event, "what": list(said.lost), "why": said.why}
        if heard.tool:
            told["tool_name"] = recordable(f"{self._name}/{heard.tool}")
        if heard.call:
            told["call_id"] = recordable(heard.call)
        self.session.note("bridge.undelivered", "runtime", told, durable=True)

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
        return _denied(self.session.refuse(self._ability(heard)[0], fault("INTAKE_REFUSED", why)))

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
            why = f"a hook changed its input, and {self._known.title} takes no other"
            return _denied(Err(self._cancel(ticket, why)))
        answer = self._allowed(ticket, changed)
        held = Held(ticket, heard.args, asked, heard.args if changed is None else changed, answer)
        self.tickets.put(held, (name, *(_digest(heard.tool, each) for each in (held.given, held.run))))
        return attrs.evolve(answer, undo=lambda: self._take_back(held))

    def _takes(self, changed: Any, given: Object) -> bool:
        """Say whether the agent can be given another input; one that lays it over its own forgets no member."""
        before = self._known.event("before")
        if type(changed) is not dict or before is None or "change" not in before.answers:
            return False
        return not before.merges or given.keys() <= changed.keys()

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
        if ticket.bound.id not in (f"{self._name}/{OTHER}", f"{self._name}/{MCP}"):
            inner = left
        elif {**left, "input": args["input"]} == args:
            inner = left["input"]
        else:
            return left["tool"]
        return self._ways.to_absolute(inner, pointers, heard.args, _cwd(heard))

    def _asked(self, heard: Heard) -> tuple[str, Any, tuple[str, ...]]:
        """Return which ability the agent asks for, with which arguments, and which of these are paths."""
        ability, own = self._ability(heard)
        if not own:
            asked: dict[str, Any] = {"tool": heard.tool, "input": dict(heard.args)}
            if self._known.mcp is not None and ability == f"{self._name}/{MCP}":
                asked["server"] = self._known.mcp.server(heard.tool, heard.said)
            return ability, asked, ()
        declared = self.session.bindings.entry_of(ability)
        pointers = tuple(declared["paths"]) if declared else ()
        return ability, self._ways.to_relative(heard.args, pointers, _cwd(heard)), pointers

    def _ability(self, heard: Heard) -> tuple[str, bool]:
        """Return the ability of a tool, and whether it is one of its own.

        Others share one, unless that is refused: those of MCP servers one, those that nobody knows another.
        """
        own = f"{self._name}/{heard.tool}"
        if heard.tool not in (OTHER, MCP) and self.session.bindings.entry_of(own) is not None:
            return own, True
        if self._settings["unknown_tools"] == "deny":
            return own, True
        is_mcp = self._known.mcp is not None and self._known.mcp.holds(heard.tool, heard.said)
        return f"{self._name}/{MCP if is_mcp else OTHER}", False

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
        about = self._known.events[heard.event]
        less = {name: value for name, value in heard.args.items() if name not in about.beside}
        if any(self.tickets.find(_digest(heard.tool, args)) is not None for args in (heard.args, less)):
            return self._told(heard)
        why = f"no use of {heard.tool} with this input was judged before"
        self._note(heard, denied=recordable(why))
        return Answer(outcome="deny", reason=why)

    def _prompt(self, heard: Heard) -> Answer:
        taken = self.session.submit(heard.prompt)
        if isinstance(taken, Err):
            return _denied(taken)
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
        if fired.refusal is None:
            return PASS
        return Answer(outcome="deny", reason=f"{fired.refusal}{describe_source(fired.by)}")

    def _changed_settings(self, heard: Heard) -> Answer:
        """Refuse a change of the agent's settings after which it would not ask here any more."""
        why = self._watch.taken_out(heard.said) if self._watch else None
        if why is None:
            return self._told(heard)
        self._note(heard, denied=recordable(why))
        return Answer(outcome="deny", reason=why)

    def _told(self, heard: Heard) -> Answer:
        self._note(heard)
        return PASS

    def _note(self, heard: Heard, **answered: str) -> None:
        about = self._known.events.get(heard.event)
        found = dict(list(heard.said.items())[:_MAX_MEMBERS])
        if about is not None:
            found = {name: _at(heard.said, name) for name in (*about.records, *self._known.records)}
        said = {recordable(name): _recorded(value) for name, value in found.items() if value not in (None, "")}
        told = {"agent": self._name, "event": heard.event, "said": said, **answered}
        self.session.note("bridge.told", "agent", told)

    def _ended(self, heard: Heard) -> Answer:
        self._told(heard)
        self.end(f"{self._known.title} ended its session")
        return PASS


def _denied(refused: Err) -> Answer:
    """Return a denial that says by whom, and where that is written."""
    return Answer(outcome="deny", reason=why_refused(refused))


def why_refused(refused: Err) -> str:
    """Return why something was refused: the code, whose rule that is and where it is written, and the reason."""
    return f"{refused.error.code}: {refused.error}"


def _parked(refused: Err) -> Answer:
    """Return a denial; of a call that a person has to decide, with what is to be done."""
    identity = refused.details.get("approval")
    if refused.error.code != "NEEDS_HUMAN" or identity is None:
        return _denied(refused)
    how = f"a person runs: deedbook approvals approve {identity} --as NAME; then make the same call again"
    return Answer(outcome="deny", reason=f"{why_refused(refused)}; {how}")


def _is_the_same(held: Held, reported: Object) -> bool:
    """Say whether the input that is *reported* is the one that may run; of a read, more may come back."""
    same = reported if held.ticket.bound.durable else {name: reported[name] for name in held.run if name in reported}
    return canonical.encode(dict(same)) == canonical.encode(dict(held.run))


def _digest(tool: str, args: Object) -> str:
    return sha256(canonical.encode({"tool": tool, "input": dict(args)})).hexdigest()


def _cwd(heard: Heard) -> str:
    cwd = heard.said.get("cwd")
    return cwd if isinstance(cwd, str) else ""


def _at(said: Object, path: str) -> Any:
    """Return the value at *path*, the names of members and the numbers of elements with slashes between."""
    value: Any = said
    for step in path.split("/"):
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _recorded(value: Json) -> Json:
    """Return what is recorded of a member: text cut, numbers as they are, of anything longer how much it is."""
    if isinstance(value, str):
        return recordable(value, _MAX_TEXT)
    return {"count": len(value)} if isinstance(value, dict | list) else value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _hints(signals: Object) -> str:
    """Return what hooks signalled about a prompt, a line each."""
    return "\n".join(f"{name} ({each['hook']}): {_shown(each['value'])}" for name in signals for each in signals[name])


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()
