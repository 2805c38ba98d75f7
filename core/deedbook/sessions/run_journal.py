"""The journal of a run: every request of a flow passes it, and is made and recorded under one span.

A session that continues a record has a journal of its own: `continuation.replay.ReplayJournal` gives a resumed run the
recorded answers, and the journal of a fork gives recorded outcomes to calls that today's charter allows.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from deedbook.call.call_context import failure, value_of
from deedbook.call.door import Door
from deedbook.call.handlers import ServeApproved, Ticket
from deedbook.contract import Branch, Json, Object
from deedbook.format.errors import DomainError, Err, Result
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller

from .hooks import HookResult

_FIRST_VALUES: Final = frozenset({"now", "random", "id"})
"""The kinds of values that version 1 of ``run.value`` knows."""


class Write(Protocol):
    """Records one event by its type, actor and payload, under the span *cause*, and returns its span."""

    def __call__(self, event_type: str, actor: str, payload: Object, *, cause: str) -> str:
        """Record the event."""


class RunJournal:
    """The journal of what stands under *span*: a prompt, a run, or a branch of it. Every request is made.

    *door* is asked for calls, *record* writes the other events.
    """

    def __init__(self, door: Door, record: Write, span: str) -> None:
        self.span = span
        self._door, self._record = door, record

    @property
    def bindings(self) -> Bindings:
        """The charter from which a flow reads what it may use: skills, abilities, roles and their instructions."""
        return self._door.bindings

    def request(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Any]:
        """Use an ability through the door."""
        opened = self._door.before(caller, ability, args, cause)
        return opened if isinstance(opened, Err) else self.perform(opened.value)

    async def arequest(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Any]:
        """Act like `request`, from a coroutine."""
        opened = await self._door.abefore(caller, ability, args, cause)
        return opened if isinstance(opened, Err) else await self.aperform(opened.value)

    def perform(self, ticket: Ticket) -> Result[Any]:
        """Let the door perform an opened call."""
        return self._door.perform(ticket)

    async def aperform(self, ticket: Ticket) -> Result[Any]:
        """Act like `perform`, from a coroutine."""
        return await self._door.aperform(ticket)

    def call(self, caller: Caller, ability: str, args: Json, cause: str) -> Json:
        """Act like `request`; return the value, or raise `Failed`."""
        return value_of(self.request(caller, ability, args, cause))

    async def acall(self, caller: Caller, ability: str, args: Json, cause: str) -> Json:
        """Act like `call`, from a coroutine."""
        return value_of(await self.arequest(caller, ability, args, cause))

    def ask_model(self, caller: Caller, ability: str, request: Object, cause: str) -> tuple[dict[str, Any], str | None]:
        """Ask a model through the door; return the response and the span of the outcome; raises `Failed`."""
        opened = self._door.before(caller, ability, dict(request), cause)
        if isinstance(opened, Err):
            raise failure(opened)
        response: Any = value_of(self.perform(opened.value))
        return response, opened.value.outcome

    def refuse(self, caller: Caller, ability: str, error: DomainError, cause: str) -> None:
        """Record a call that was refused before it was judged, and raise the error as `Failed`."""
        raise failure(self._door.refuse(caller, ability, error, cause))

    def write(self, event_type: str, actor: str, payload: Object, cause: str | None = None) -> str:
        """Record one event under the journal's span or under *cause*, and return its span."""
        return self._record(event_type, actor, payload, cause=cause or self.span)

    def fire(self, event: str, subject: Object, ask: Callable[[], HookResult]) -> HookResult:  # noqa: ARG002
        """Ask the hooks of *event* about *subject*."""
        return ask()

    def decide(
        self,
        policy: str,  # noqa: ARG002
        subject: str,  # noqa: ARG002
        value: Object,  # noqa: ARG002
        ask: Callable[[], tuple[Object, str]],
    ) -> tuple[Object, str]:
        """Ask *policy* about *value*; return the payload of the recorded answer and its span."""
        return ask()

    def value(self, kind: str, make: Callable[[], Json]) -> Json:
        """Make a value that no repetition would give again, and record it."""
        value = make()
        later = {} if kind in _FIRST_VALUES else {"schema_version": "v2"}
        self.write("run.value", "runtime", {"kind": kind, "value": value, **later})
        return value

    def next_request_seq(self) -> int | None:
        """Return the number of the event with which the next recorded request begins, if there is one."""
        return None

    def branch(self, branch: Branch) -> "RunJournal":
        """Record that *branch* begins, and return its journal."""
        allowed = None if branch.allowed is None else sorted(branch.allowed)
        payload: dict[str, Any] = {"name": branch.name, "allowed": allowed}
        if branch.limits is not None:
            from deedbook.policy.limits import limits_document

            limits = limits_document(branch.limits)
            payload |= {"skill": branch.skill, "limits": limits, "schema_version": "v3"}
        elif branch.skill is not None:
            payload |= {"skill": branch.skill, "schema_version": "v2"}
        return self.under(self.write("run.branch", "runtime", payload))

    def under(self, span: str) -> "RunJournal":
        """Return the journal of what stands under *span*."""
        return RunJournal(self._door, self._record, span)


@attrs.frozen
class SessionOrigin:
    """The origin of a session: the *event* recorded under ``session.start``, with its *payload*.

    *journal* makes the journals of its runs. *fork_of* is the session that it forks, and *serve_approved* decides about
    calls that a person must decide (`handlers.ServeApproved`).
    """

    event: str
    payload: Object
    journal: Callable[[Door, Write, str], RunJournal] = RunJournal
    fork_of: str = ""
    serve_approved: ServeApproved | None = None
