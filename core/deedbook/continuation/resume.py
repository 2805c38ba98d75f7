"""Resume a session without an end: close what was lost, and prepare the answers that its run gets again."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from deedbook.call.approval_wait import LONGEST_PAUSE
from deedbook.call.handlers import reconcile
from deedbook.call.pending_calls import OpenAnswer
from deedbook.call.queue import ApprovalQueue
from deedbook.contract import Event, Object
from deedbook.format import canonical
from deedbook.format.context import LIVE, ContextFold, RunContexts
from deedbook.format.errors import ApprovalError, DomainError, LedgerError, fault
from deedbook.format.events import Entry, is_ended, label
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook.format.sealed import Sealer
from deedbook.ledger.ledger import Ledger
from deedbook.ledger.recovery import intents_without_outcome, unknown_outcome
from deedbook.policy.bindings import Bindings
from deedbook.sessions.hooks import read_signals
from deedbook.sessions.runs import Runs

from .parent import ParentSession, ValueMissing, read_parent
from .replay import BindCharter, RunRecord
from .requests import RunRequests, list_charters

_CLOSED = "the run of the call was interrupted"


@attrs.frozen
class OpenPrompt:
    """The prompt whose run is open: its text, the signals of hooks, the span of its ``user.message``, and its flow.

    Without a *flow* of its own, it goes to the profile's.
    """

    prompt: str
    signals: Object
    message: str
    flow: str | None


@attrs.frozen(eq=False)
class Resumption:
    """A session to be resumed: its ledger, read as *parent*, with its *requests* and *contexts*.

    *prompt* is the one whose run is open.
    """

    parent: ParentSession
    requests: RunRequests
    contexts: RunContexts
    prompt: OpenPrompt

    @property
    def start(self) -> Event:
        """The event ``session.start``."""
        return self.parent.events[0]

    @property
    def charter(self) -> str:
        """The digest of the charter that was in force last."""
        return list_charters(self.parent.events)[-1][1]

    def await_answer(self, find_answer: Callable[[str], OpenAnswer | None], seconds: float = 0.0) -> None:
        """Wait up to *seconds* until one of the people for whom the run waits has answered.

        Raises `ApprovalError` (``NEEDS_HUMAN``) if none has. A run that does not wait for a person goes on at once.
        """
        deadline = time.monotonic() + seconds
        while waiting := self._find_unanswered(find_answer):
            if time.monotonic() >= deadline:
                raise ApprovalError(*waiting)
            time.sleep(LONGEST_PAUSE)

    def _find_unanswered(self, find_answer: Callable[[str], OpenAnswer | None]) -> list[DomainError]:
        """Return why the run waits, if all its branches wait for people who have not answered."""
        asked = _waiting_requests(self.requests)
        waits = [find_answer(str(each.payload.get("approval"))) for each in asked]
        errors = [each.error for each in waits if each is not None and each.record is None]
        return errors if len(errors) == len(asked) else []


def read_resumption(place: Path) -> Resumption:
    """Read the session whose ledger is at *place*.

    Raises `LedgerError`: ``SESSION_ENDED``, ``RESUME_REFUSED`` if it has no open run, ``LEDGER_UNSOUND``.
    """
    parent = read_parent(place)
    if is_ended(event.type for event in reversed(parent.events)):
        raise LedgerError(fault("SESSION_ENDED", f"session {parent.session} has ended; there is nothing to resume"))
    requests = RunRequests(parent.events)
    message = _open_message(parent.events, requests)
    if message is None:
        why = f"session {parent.session} has no open run; to give it up: deedbook sessions close {parent.session}"
        raise LedgerError(fault("RESUME_REFUSED", why, place=str(place)))
    contexts = fold(ContextFold(), parent.events)
    return Resumption(parent, requests, contexts, _open_prompt(parent, message))


def has_open_run(events: Sequence[Event]) -> bool:
    """Return whether *events*, a session without an end, leave a run open that can be resumed."""
    return _open_message(events, RunRequests(events)) is not None


def open_requests(events: Sequence[Event]) -> list[Event]:
    """Return the requests for approval at which the open run of *events* waits, one for each branch."""
    return _waiting_requests(RunRequests(events))


def unanswered_requests(state: Path, session: str) -> list[Event]:
    """Return the requests at which the run of a suspended *session* waits, and that nobody has answered, in order.

    Raises `LedgerError`, `FileNotFoundError`.
    """
    events = list(read(state / "sessions" / session))
    if not has_open_run(events):
        return []
    with ApprovalQueue.of(state) as queue:
        found = [(event, queue.get(str(event.payload.get("approval")))) for event in open_requests(events)]
    asked = [event for event, pending in found if pending is not None and pending.answer is None]
    return sorted(asked, key=lambda event: event.seq)


def build_closing(ledger: Ledger, resumption: Resumption, bindings: Bindings) -> list[Entry]:
    """Return an outcome for each lost call but the open runs, and the end of contexts that are lost with them.

    A handler that can reconcile gives the outcome of a call that may have had an effect; otherwise it is unknown.
    """
    events, contexts = resumption.parent.events, resumption.contexts
    lost = [event for event in intents_without_outcome(events) if not _is_open_run(event, resumption.requests)]
    entries = [_outcome(ledger, event, resumption.parent, bindings) for event in reversed(lost)]
    gone = {event.span for event in lost}
    return entries + [_halt(ledger, run) for run, context in contexts.items() if run in gone and context.state in LIVE]


def resume_contexts(ledger: Ledger, resumption: Resumption) -> None:
    """Append ``context.resumed`` for every open run that waits for a person."""
    calls = resumption.requests.calls
    waiting = [
        (run, context.waiting)
        for run, context in resumption.contexts.items()
        if context.waiting and run in calls and calls[run].outcome is None
    ]
    if waiting:
        ledger.append([_entry(ledger, "context.resumed", run, {"state": state}) for run, state in waiting])


def build_runs(
    resumption: Resumption, added: Sequence[Event], sealer: Sealer,
    find_answer: Callable[[str], OpenAnswer | None], bind: BindCharter,
) -> Runs:  # fmt: skip
    """Return the runs of a session, with the events *added* since it was read; they get the recorded answers first."""
    parent = attrs.evolve(resumption.parent, events=[*resumption.parent.events, *added])
    contexts, step = resumption.contexts, ContextFold().step
    for event in added:
        contexts = step(contexts, event)
    runs = Runs(journal=RunRecord(parent, sealer, find_answer, bind).journal, past=contexts, suspends=True)
    for event in parent.events:
        runs.outcomes.step(event)
    return runs


def _waiting_requests(requests: RunRequests) -> list[Event]:
    lasts = (found[-1] for found in requests.branches.values())
    return [last.event for last in lasts if last.kind == "approval" and last.settled is None]


def _open_message(events: Sequence[Event], requests: RunRequests) -> str | None:
    """Return the span of the last prompt, if its run has neither replied nor ended otherwise."""
    last = next((event.span for event in reversed(events) if event.type == "user.message"), None)
    if last is None or any(event.type == "session.forked" for event in events):
        return None  # a fork gets outcomes of its parent, which a resumption would not give it
    found = requests.branches.get(last, ())
    if not found:
        return last if events[0].payload.get("purpose") == "run" else None
    names = [request.name for request in found if request.kind == "event"]
    if "skill.invoke" in names:
        return None if "skill.complete" in names else last
    calls = [request for request in found if request.kind == "call"]
    if not any(request.is_flow for request in calls) or "agent.reply" in names:
        return None
    return last if any(request.is_lost for request in calls) or found[-1].kind == "call" else None


def _open_prompt(parent: ParentSession, message: str) -> OpenPrompt:
    event = next(each for each in parent.events if each.span == message)
    fired = [
        each
        for each in parent.events[: event.seq]
        if each.type == "hook.fired" and each.payload.get("event") == "UserPromptSubmit"
    ]
    try:
        text = parent.open_value(event.payload.get("text"))
        asked = parent.open_value(fired[-1].payload.get("asked", [])) if fired else []
    except ValueMissing as problem:
        raise LedgerError(fault("RESUME_INCOMPLETE", f"the prompt cannot be read any more: {problem}")) from None
    flow = event.payload.get("flow")
    return OpenPrompt(str(text), read_signals(asked), message, None if flow is None else str(flow))


def _is_open_run(event: Event, requests: RunRequests) -> bool:
    return event.type == "flow.call" and event.span in requests.calls


def _outcome(ledger: Ledger, intent: Event, parent: ParentSession, bindings: Bindings) -> Entry:
    """Return the outcome of a lost call: what its handler reconciles, otherwise unknown."""
    names = [value for key, value in intent.payload.items() if key in ("tool_name", "ability", "flow")]
    bound = bindings.find(str(names[0])) if names else None
    if bound is not None and bound.reconciles:
        try:
            args = parent.open_value(intent.payload.get("args"))
        except ValueMissing:
            return unknown_outcome(ledger, intent)
        found = reconcile(bound, args, f"{ledger.session_id}:{intent.span}")
        if found is not None:
            words = bound.event_names
            payload = b"%b%b%b" % (words.result_head, canonical.encode(found.value), words.result_tail)
            kind = label(words.result, words.result_actor, intent.principal)
            return Entry(kind, ledger.span(), intent.span, payload)
    return unknown_outcome(ledger, intent)


def _halt(ledger: Ledger, run: str) -> Entry:
    return _entry(ledger, "context.halted", run, {"reason": _CLOSED})


def _entry(ledger: Ledger, event_type: str, cause: str, payload: Object) -> Entry:
    return Entry(label(event_type, "system", None), ledger.span(), cause, canonical.encode(dict(payload)))
