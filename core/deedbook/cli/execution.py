"""Run work in a session and report its result: the common part of ``run``, ``resume`` and ``call``."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.contract import Event, Json, Object
from deedbook.contract.pointers import find_value
from deedbook.format.errors import CODES, DeedbookError, DomainError, Err, Result
from deedbook.format.event_text import show
from deedbook.format.events import TRACEPARENT
from deedbook.format.reader import read
from deedbook.kernel import Kernel, open_kernel
from deedbook.policy.bindings import Bindings
from deedbook.policy.callers import LOCAL
from deedbook.policy.gates import describe_source
from deedbook.sessions.session import Session

from .common import GlobalOptions, announce, display_path, suggest_json_words
from .output import answer, as_json, error_prefix, escape_json, format_error, message, report_error
from .progress import ApprovalNotice, show_delta, show_step, shows_progress

if TYPE_CHECKING:
    from deedbook.policy.fitting import PolicyNote
    from deedbook.sessions.prompts import Reply

FINE: Final = "COMPLETED"
_STATUS: Final[Mapping[str, int]] = {FINE: 0, "FORK_ENDED": 0, "NEEDS_HUMAN": 3}
_NOT_SHOWN: Final = ("args", "schema_version")
_VARIABLE: Final = "TRACEPARENT"
"""The variable in which OpenTelemetry passes the trace that a program is started in."""
_REFUSING: Final[Mapping[str, tuple[str, str]]] = {
    "UserPromptSubmit": ("PROMPT_DENIED", "the request"),
    "SkillStart": ("SKILL_DENIED", "the skill"),
}
"""Events at which a hook's refusal ends a run, with the error code and the refused subject."""


@attrs.frozen
class Ending:
    """How the work of a session ended: its *state* (`FINE`, or an error code), a *text* to print, or an *error*.

    *members* are added to the JSON answer.
    """

    state: str
    text: str | None = None
    error: DomainError | None = None
    members: Object = attrs.field(factory=dict)

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
        return known.exit if known else _STATUS["NEEDS_HUMAN"] if self.error.kind == "gate" else 1


class Denials:
    """A listener that collects denials from a session's ledger, with the gate that decided."""

    def __init__(self, bindings: Bindings) -> None:
        self.found: list[dict[str, Any]] = []
        self._bindings = bindings
        self._pending: dict[str | None, Any] = {}

    def __call__(self, event: Event) -> None:
        """Record *event* if it is a denial."""
        if event.type == "approval.requested":
            self._pending[event.parent] = event.payload["approval"]
        elif event.type == "tool.denied":
            denial = {name: value for name, value in event.payload.items() if name not in _NOT_SHOWN}
            parked = self._pending.pop(event.parent, None)
            self._add({**denial, "approval": parked} if parked and denial["code"] == "NEEDS_HUMAN" else denial)
        elif event.type == "hook.fired" and event.payload["event"] in _REFUSING:
            self._add_refusals(event.payload)

    def _add_refusals(self, fired: Object) -> None:
        code, what = _REFUSING[fired["event"]]
        places = {gate.id: gate.place for gate in self._bindings.hooks.get(fired["event"], ())}
        for asked in fired["asked"]:
            if asked["decision"] in ("ask", "deny"):
                by = {"hook": asked["hook"], "place": places.get(asked["hook"], "")}
                self._add({"code": code, "kind": "hook", "name": what, "reason": asked.get("reason", ""), "by": by})

    def _add(self, denial: dict[str, Any]) -> None:
        if denial not in self.found:  # a reworked run may be denied again for the same reason
            self.found.append(denial)

    def lines(self) -> list[str]:
        """Return each denial as a line: the name, the reason, the gate and its place."""
        said = []
        for denial in self.found:
            why = f"{show(denial['reason'])}{describe_source(denial.get('by'))} [{show(denial['code'])}]"
            waits = denial["code"] == "NEEDS_HUMAN"
            said.append(f"{error_prefix('NEEDS_HUMAN') if waits else 'denied: '}{show(denial['name'])}: {why}")
            said += [show(f"{each.place}: {each.about} {each.why}") for each in self._notes(denial) if each.about]
            if "approval" in denial:
                said.append(f"see what it would do: deedbook approvals show {show(denial['approval'])}")
        return said

    def _notes(self, denial: Object) -> "list[PolicyNote]":
        """Return the notes on the policy whose default denied the call: perhaps one of its rules never matches."""
        from deedbook.charter.policies import lint_policies
        from deedbook.plugins.plugins import discover
        from deedbook.plugins.policy_kinds import installed_kinds

        by = denial.get("by")
        if not isinstance(by, dict) or "policy" not in by or isinstance(by.get("rule"), str):
            return []
        try:
            return lint_policies(self._bindings.charter.document, installed_kinds(discover()), policy=by["policy"])
        except DeedbookError:
            return []  # the denial is valid; `deedbook doctor` reports the faulty kind

    def explain(self, error: DomainError) -> bool:
        """Return whether *error* is one of the denials."""
        return any((denial["code"], denial["reason"]) == (error.code, error.message) for denial in self.found)


class Signals:
    """A listener that collects the signals of hooks: by name, each with its hook, in order."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {}

    def __call__(self, event: Event) -> None:
        """Record the signals in *event*; sealed values stay sealed."""
        if event.type == "hook.fired" and isinstance(event.payload["asked"], list):
            for asked in event.payload["asked"]:
                for name, value in asked.get("signals", {}).items():
                    self.found.setdefault(name, []).append({"hook": asked["hook"], "value": value})


class SuspensionListener:
    """A listener that keeps why the session was suspended, if it was."""

    def __init__(self) -> None:
        self.payload: Object | None = None
        self.approvals: list[Any] = []

    def __call__(self, event: Event) -> None:
        """Record *event* if it suspends the session."""
        if event.type == "session.suspended":
            self.payload = event.payload

    def find_requests(self, state: Path, session: str) -> None:
        """Find all requests at which the run waits: several branches may wait at the same time."""
        from deedbook.continuation.resume import unanswered_requests

        if self.payload is not None and self.payload["approval"] is not None:
            self.approvals = [self.payload["approval"]]
            with suppress(DeedbookError, OSError):
                found = [asked.payload["approval"] for asked in unanswered_requests(state, session)]
                self.approvals = found or self.approvals

    def members(self) -> dict[str, Any]:
        """Return the member of the JSON answer of a suspended run; without a value that is ``None``."""
        if self.payload is None:
            return {}
        told = {name: value for name, value in self.payload.items() if value is not None}
        return {"suspended": {**told, **({"approvals": self.approvals} if len(self.approvals) > 1 else {})}}

    def lines(self, session: str) -> list[str]:
        """Return how to go on with a suspended run."""
        if self.payload is None:
            return []
        said = [f"the run is suspended; go on with: deedbook resume {session}"]
        if self.approvals:
            return [*(line for each in self.approvals for line in _how_to_answer(show(each))), *said]
        if self.payload["code"] in ("RESUME_DIVERGED", "RESUME_INCOMPLETE"):
            said.append(f"to give it up: deedbook sessions close {session}")
        return said


def _how_to_answer(approval: str) -> tuple[str, str]:
    return (
        f"see what it would do: deedbook approvals show {approval}",
        f"an approver answers with: deedbook approvals approve {approval} --as NAME",
    )


class Violations:
    """A listener that collects the last schema violations in the arguments of calls, each once."""

    def __init__(self, bindings: Bindings) -> None:
        self.found: list[dict[str, str]] = []
        self.place = ""
        self._abilities = bindings.charter.document["abilities"]

    def __call__(self, event: Event) -> None:
        """Record the violations in *event*; sealed values stay sealed."""
        if event.type == "schema.violation" and event.payload["subject"] == "arguments":
            errors, name = event.payload["errors"], event.payload["name"]
            self.found = [dict(each) for each in errors] if isinstance(errors, list) else []
            entry = self._abilities.get(name) if isinstance(name, str) else None
            self.place = f"{entry['place']}; deedbook abilities show {name}" if entry else ""

    def explain(self, ending: Ending) -> Ending:
        """Return *ending* with all violations, if its error is the first of them."""
        first = [f"{each['path']}: {each['message']}" for each in self.found[:1]]
        if ending.error is None or ending.error.code != "SCHEMA_VIOLATION" or first != [ending.error.message]:
            return ending
        members = {**ending.members, "error": {**ending.members["error"], "violations": self.found}}
        return attrs.evolve(ending, members=members)


def session_starter(
    purpose: str, principal: str | None, wait: float, mode: str = "interactive"
) -> Callable[[Kernel], Session]:
    """Return a function that starts a session of a declared *principal* in *mode*.

    *wait* is how many seconds a call may wait for a person.
    """

    def begin(kernel: Kernel) -> Session:
        who = LOCAL if principal is None else kernel.principal(principal, via=LOCAL.via)
        shown = show_delta if shows_progress() else None
        session = kernel.session(purpose, principal=who, wait=wait, mode=mode, show=shown)
        if wait > 0:
            session.ledger.subscribe(ApprovalNotice(session.id, kernel.site.state))
        if TRACEPARENT.fullmatch(parent := os.environ.get(_VARIABLE, "")):
            session.note("session.linked", "runtime", {"traceparent": parent})
        return session

    return begin


def reply_ending(result: "Result[Reply]") -> Ending:
    """Return the ending of a run: its reply, or its error."""
    if isinstance(result, Err):
        return Ending.failed(result.error)
    reply = result.value
    return Ending(reply.state, reply.text, members={"reply": reply.text})


def call_ending(result: Result[Json], session: Session | None = None) -> Ending:
    """Return the ending of a call: its result as JSON, or its error.

    A flow that keeps a context ends as that context of *session* did, with its reply.
    """
    if isinstance(result, Err):
        return Ending.failed(result.error)
    context = session.find_context(result.value) if session is not None else None
    value, state = result.value, FINE
    if context is not None:
        value, state = {"context": context.run, "state": context.state, "reply": context.reply}, context.state
    said = escape_json(json.dumps(value, ensure_ascii=False, indent=2))
    return Ending(state, said, members={"result": value})


def execute(
    options: GlobalOptions,
    begin: Callable[[Kernel], Session],
    work: Callable[[Session], Ending],
    *,
    profile: str | None,
    words: tuple[str, ...] = (),
) -> int:
    """Run *work* in the session that *begin* returns, end the session, print the result, and return the exit status.

    *words* are the arguments as they were typed; they help to explain a schema violation.
    """
    with open_kernel(options.workspace, profile=profile) as kernel:
        announce(kernel.active_charter)
        session = begin(kernel)
        denials, signals, violations = Denials(session.bindings), Signals(), Violations(session.bindings)
        suspension = SuspensionListener()
        for listener in (denials, signals, violations, suspension):
            session.ledger.subscribe(listener)
        if shows_progress():
            session.ledger.subscribe(show_step)
        ending: Ending | None = None
        try:
            with session:
                ending = violations.explain(work(session))
                session.end(ok=ending.state == FINE, reason=ending.state)
        except BaseException:
            if ending is not None and not options.json:  # what was done is told, though its end is not recorded
                _report(ending, denials)
            _report_session(kernel, session, suspension)
            raise
        suspension.find_requests(kernel.site.state, session.id)
        if options.json:
            told = {**_summary(kernel, session, ending, denials), **suspension.members()}
            as_json({**told, "signals": signals.found})
        else:
            _report(ending, denials)
            if violations.place and ending.error and ending.error.code == "SCHEMA_VIOLATION":
                for hint in suggest_json_words(words, violations.found):
                    message(hint)
                message(f"what the ability takes: {show(violations.place)}")
            if ending.error and ending.error.code == "MALFORMED_AGENT_MESSAGE":
                message(_describe_answers(kernel, session))
            _report_session(kernel, session, suspension)
        return ending.status


def _report(ending: Ending, denials: Denials) -> None:
    if ending.text is not None:
        answer(ending.text)
    for line in denials.lines():
        (report_error if ending.status else message)(line)  # a completed run went on without the call
    if ending.error is None:
        if ending.status:
            report_error(f"the run ended {ending.state}")
    elif not denials.explain(ending.error):
        report_error(format_error(ending.error))
    for line in _further_violations(ending):
        report_error(line)


def _further_violations(ending: Ending) -> list[str]:
    """Return the further violations in the arguments, a line each; the first one is the error's own message."""
    return [
        f"{show(each['path'])}: {show(each['message'])}"
        for each in ending.members.get("error", {}).get("violations", ())[1:]
    ]


def _report_session(kernel: Kernel, session: Session, suspension: SuspensionListener) -> None:
    for line in suspension.lines(session.id):
        message(line)
    message(f"session {session.id}")
    message(f"ledger  {display_path(_ledger(kernel, session))}")
    for subject, error in kernel.notices.found:
        message(f"{subject}: {error} [{error.code}]")


def _describe_answers(kernel: Kernel, session: Session) -> str:
    """Return how often the last model was asked and how its answer begins, as recorded: sealed text stays sealed."""
    events = [event for event in read(_ledger(kernel, session)) if event.type.startswith("llm.re")]
    roles = [find_value(event.payload, "/request/role", "") for event in events if event.type == "llm.request"]
    text = find_value(events[-1].payload, "/response/text", "") if events else ""
    begins = json.dumps(show(text)[:120], ensure_ascii=False)
    asked = f"the model was asked {roles.count((roles or [''])[-1])} times"
    return f"{asked}; the last answer begins {begins}; all of it: deedbook tree last"


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
