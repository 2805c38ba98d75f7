"""Doing something in a session of its own, and saying what came of it: what ``run`` and ``call`` have in common."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.call.session import Session
from deedbook.contract import Event, Json, Object
from deedbook.format.errors import CODES, DeedbookError, DomainError, Err, Result
from deedbook.format.event_text import show
from deedbook.format.events import TRACEPARENT
from deedbook.kernel import Kernel, open_kernel
from deedbook.policy.bindings import Bindings
from deedbook.policy.callers import LOCAL
from deedbook.policy.gates import decided_by

from .common import Asked, announce, shown, typed_words
from .output import answer, as_json, complain, message, prefix, spelled, worded
from .progress import Parked, moving, tell

if TYPE_CHECKING:
    from deedbook.charter.policies import PolicyNote

FINE: Final = "COMPLETED"
_STATUS: Final[Mapping[str, int]] = {FINE: 0, "FORK_ENDED": 0, "NEEDS_HUMAN": 3}
_VARIABLE: Final = "TRACEPARENT"
"""Where OpenTelemetry puts the trace that a program is started in."""
_REFUSING: Final[Mapping[str, tuple[str, str]]] = {
    "UserPromptSubmit": ("PROMPT_DENIED", "the request"),
    "SkillStart": ("SKILL_DENIED", "the skill"),
}
"""Events at which a hook's refusal ends a run, the code it ends with, and what was refused."""


def _nothing() -> Object:
    return {}


@attrs.frozen
class Ending:
    """How the work of a session ended: in a *state* (`FINE`, or why not), with *text* to print, or with an *error*.

    *members* are what the work adds to the JSON answer.
    """

    state: str
    text: str | None = None
    error: DomainError | None = None
    members: Object = attrs.field(factory=_nothing)

    @classmethod
    def failed(cls, error: DomainError) -> "Ending":
        """Return the ending of work that failed."""
        return cls(error.code, error=error, members={"error": {"code": error.code, "message": str(error)}})

    @property
    def status(self) -> int:
        """The exit status."""
        if self.error is None:
            return _STATUS.get(self.state, 1)
        known = CODES.get(self.error.code)
        return known.exit if known else 1


class Denials:
    """Listens to a session's ledger for what was denied, and by whom."""

    def __init__(self, bindings: Bindings) -> None:
        self.found: list[dict[str, Any]] = []
        self._bindings = bindings
        self._parked: dict[str | None, Any] = {}

    def __call__(self, event: Event) -> None:
        """Take *event* in."""
        if event.type == "approval.requested":
            self._parked[event.parent] = event.payload["approval"]
        elif event.type == "tool.denied":
            denial = {name: value for name, value in event.payload.items() if name != "args"}
            parked = self._parked.pop(event.parent, None)
            self._add({**denial, "approval": parked} if parked and denial["code"] == "NEEDS_HUMAN" else denial)
        elif event.type == "hook.fired" and event.payload["event"] in _REFUSING:
            self._refused(event.payload)

    def _refused(self, fired: Object) -> None:
        code, what = _REFUSING[fired["event"]]
        places = {gate.id: gate.place for gate in self._bindings.hooks.get(fired["event"], ())}
        for asked in fired["asked"]:
            if asked["decision"] in ("ask", "deny"):
                by = {"hook": asked["hook"], "place": places.get(asked["hook"], "")}
                self._add({"code": code, "kind": "hook", "name": what, "reason": asked.get("reason", ""), "by": by})

    def _add(self, denial: dict[str, Any]) -> None:
        if denial not in self.found:  # a reworked run meets the same wall again
            self.found.append(denial)

    def lines(self) -> list[str]:
        """Return each denial in a line: what, why, by whom and where."""
        said = []
        for denial in self.found:
            why = f"{show(denial['reason'])}{decided_by(denial.get('by'))} [{show(denial['code'])}]"
            waits = denial["code"] == "NEEDS_HUMAN"
            said.append(f"{prefix('NEEDS_HUMAN') if waits else 'denied: '}{show(denial['name'])}: {why}")
            said += [show(f"{each.place}: {each.about} {each.why}") for each in self._notes(denial) if each.about]
            if "approval" in denial:
                said.append(f"see what it would do: deedbook approvals show {show(denial['approval'])}")
        return said

    def _notes(self, denial: Object) -> "list[PolicyNote]":
        """Return what is doubtful about a policy whose default denied: a rule that never decides was meant to."""
        from deedbook.charter.policies import lint_policies
        from deedbook.plugins.plugins import discover
        from deedbook.plugins.policy_kinds import installed_kinds

        by = denial.get("by")
        if not isinstance(by, dict) or "policy" not in by or isinstance(by.get("rule"), str):
            return []
        try:
            return lint_policies(self._bindings.charter.document, installed_kinds(discover()), policy=by["policy"])
        except DeedbookError:
            return []  # the denial stands, and `deedbook doctor` tells what is wrong with the kind

    def explain(self, error: DomainError) -> bool:
        """Say whether *error* is one of the denials."""
        return any((denial["code"], denial["reason"]) == (error.code, error.message) for denial in self.found)


class Signals:
    """Listens to a session's ledger for what hooks signalled: by name, each with its hook, in the order of asking."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {}

    def __call__(self, event: Event) -> None:
        """Take *event* in; what was sealed stays so."""
        if event.type == "hook.fired" and isinstance(event.payload["asked"], list):
            for asked in event.payload["asked"]:
                for name, value in asked.get("signals", {}).items():
                    self.found.setdefault(name, []).append({"hook": asked["hook"], "value": value})


class Violations:
    """Listens to a session's ledger for what was wrong with the arguments of calls: the last faults, each once."""

    def __init__(self, bindings: Bindings) -> None:
        self.found: list[dict[str, str]] = []
        self.place = ""
        self._abilities = bindings.charter.document["abilities"]

    def __call__(self, event: Event) -> None:
        """Take *event* in; what was sealed stays so."""
        if event.type == "schema.violation" and event.payload["subject"] == "arguments":
            errors, name = event.payload["errors"], event.payload["name"]
            self.found = [dict(each) for each in errors] if isinstance(errors, list) else []
            entry = self._abilities.get(name) if isinstance(name, str) else None
            self.place = f"{entry['place']}; deedbook abilities show {name}" if entry else ""

    def explained(self, ending: Ending) -> Ending:
        """Return *ending* with all the faults, where what ended the work is the first of them."""
        first = [f"{each['path']}: {each['message']}" for each in self.found[:1]]
        if ending.error is None or ending.error.code != "SCHEMA_VIOLATION" or first != [ending.error.message]:
            return ending
        members = {**ending.members, "error": {**ending.members["error"], "violations": self.found}}
        return attrs.evolve(ending, members=members)


def beginning(purpose: str, principal: str | None, wait: float) -> Callable[[Kernel], Session]:
    """Return how a session begins: for a declared *principal*, with calls that wait so many seconds for a person."""

    def begin(kernel: Kernel) -> Session:
        who = LOCAL if principal is None else kernel.principal(principal, via=LOCAL.via)
        session = kernel.session(purpose, principal=who, wait=wait)
        if wait > 0:
            session.ledger.subscribe(Parked(session.id, kernel.site.state))
        if TRACEPARENT.fullmatch(parent := os.environ.get(_VARIABLE, "")):
            session.note("session.linked", "runtime", {"traceparent": parent})
        return session

    return begin


def given(result: Result[Json]) -> Ending:
    """Return the ending of a call: its result as JSON, or why there is none."""
    if isinstance(result, Err):
        return Ending.failed(result.error)
    said = spelled(json.dumps(result.value, ensure_ascii=False, indent=2))
    return Ending(FINE, said, members={"result": result.value})


def act(
    asked: Asked,
    begin: Callable[[Kernel], Session],
    work: Callable[[Session], Ending],
    *,
    profile: str | None,
    words: tuple[str, ...] = (),
) -> int:
    """Do *work* in a new session, end it, say what came of it, and return the exit status.

    *words* are the arguments as they were typed, if they were: they may be why these do not fit.
    """
    with open_kernel(asked.workspace, profile=profile) as kernel:
        announce(kernel.opened)
        session = begin(kernel)
        denials, signals, violations = Denials(session.bindings), Signals(), Violations(session.bindings)
        for listener in (denials, signals, violations):
            session.ledger.subscribe(listener)
        if moving():
            session.ledger.subscribe(tell)
        try:
            with session:
                ending = violations.explained(work(session))
                session.end(ok=ending.state == FINE, reason=ending.state)
        except BaseException:
            _say_where(kernel, session)
            raise
        if asked.json:
            as_json({**_summary(kernel, session, ending, denials), "signals": signals.found})
        else:
            _say(ending, denials)
            if violations.place and ending.error and ending.error.code == "SCHEMA_VIOLATION":
                for hint in typed_words(words, violations.found):
                    message(hint)
                message(f"what the ability takes: {show(violations.place)}")
            _say_where(kernel, session)
        return ending.status


def _say(ending: Ending, denials: Denials) -> None:
    if ending.text is not None:
        answer(ending.text)
    for line in denials.lines():
        complain(line)
    if ending.error is None:
        if ending.status:
            complain(f"the run ended {ending.state}")
    elif not denials.explain(ending.error):
        complain(worded(ending.error))
    for line in _further(ending):
        complain(line)


def _further(ending: Ending) -> list[str]:
    """Return what else is wrong with the arguments, a line each; the first fault is the error's own message."""
    return [
        f"{show(each['path'])}: {show(each['message'])}"
        for each in ending.members.get("error", {}).get("violations", ())[1:]
    ]


def _say_where(kernel: Kernel, session: Session) -> None:
    message(f"session {session.id}")
    message(f"ledger  {shown(_ledger(kernel, session))}")
    for subject, error in kernel.notices.found:
        message(f"{subject}: {error} [{error.code}]")


def _summary(kernel: Kernel, session: Session, ending: Ending, denials: Denials) -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "ok": ending.state == FINE,
        "state": ending.state,
        "session": session.id,
        "ledger": str(_ledger(kernel, session)),
        "denied": denials.found,
        **ending.members,
    }


def _ledger(kernel: Kernel, session: Session) -> Path:
    return kernel.site.state / "sessions" / session.id / ".events.jsonl"
