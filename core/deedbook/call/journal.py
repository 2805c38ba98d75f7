"""The journal of a run: every request of a flow passes it, and is made and recorded under the run's span.

A resumed run has a `replay.ReplayJournal` instead, which gives the recorded answers as long as there are any.
"""

from collections.abc import Callable
from typing import Any

from deedbook.contract import Branch, Json, Object
from deedbook.format.errors import DomainError, Err
from deedbook.policy.bound import Caller

from .call_context import OpenCall, failure, value_of
from .hooks import HookResult


class Journal:
    """The journal of a new run, or of a new branch of it: every request is made."""

    def __init__(self, work: OpenCall) -> None:
        self._work = work

    @property
    def span(self) -> str:
        """The span under which the requests stand: that of the flow's call, or of the branch."""
        return self._work.cause

    def call(self, caller: Caller, ability: str, args: Json, cause: str) -> Json:
        """Use an ability through the door; raises `Failed`."""
        return value_of(self._work.door.call(caller, ability, args, cause))

    async def acall(self, caller: Caller, ability: str, args: Json, cause: str) -> Json:
        """Act like `call`, from a coroutine."""
        return value_of(await self._work.door.acall(caller, ability, args, cause))

    def ask_model(self, caller: Caller, ability: str, request: Object, cause: str) -> tuple[dict[str, Any], str | None]:
        """Ask a model through the door; return the response and the span of the outcome; raises `Failed`."""
        opened = self._work.door.before(caller, ability, dict(request), cause)
        if isinstance(opened, Err):
            raise failure(opened)
        response: Any = value_of(self._work.door.perform(opened.value))
        return response, opened.value.outcome

    def refuse(self, caller: Caller, ability: str, error: DomainError, cause: str) -> None:
        """Record a call that was refused before it was judged, and raise the error as `Failed`."""
        raise failure(self._work.door.refuse(caller, ability, error, cause))

    def write(self, event_type: str, actor: str, payload: Object, cause: str | None = None) -> str:
        """Record one event under the run or under *cause*, and return its span."""
        return self._work.write(event_type, actor, payload, cause)

    def fire(self, event: str, subject: Object, ask: Callable[[], HookResult]) -> HookResult:  # noqa: ARG002
        """Ask the hooks of *event* about *subject*."""
        return ask()

    def value(self, kind: str, make: Callable[[], Json]) -> Json:
        """Make a value that no repetition would give again, and record it."""
        value = make()
        self.write("run.value", "runtime", {"kind": kind, "value": value})
        return value

    def branch(self, branch: Branch) -> "Journal":
        """Begin a branch, and return its journal."""
        allowed = None if branch.allowed is None else sorted(branch.allowed)
        span = self.write("run.branch", "runtime", {"name": branch.name, "allowed": allowed})
        return Journal(self._work.under(span, allowed))

    def suspends(self, problem: BaseException) -> bool:  # noqa: ARG002
        """Return whether *problem* suspends the run, which is then neither failed nor halted."""
        return False
