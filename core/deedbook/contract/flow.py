"""The contract of flows, version 1: what an orchestration receives in addition to a `contracts.Ctx`.

A flow is a class like every plugin (``deedbook.flows``). Its handler is called with a `Run`: the roles, the session's
typed state, and methods that record the run.
"""

from typing import Any, Protocol

from .plugins import Ctx, Json, Object, Skill


class Agent(Protocol):
    """One role inside a flow; its principal is ``agent:<role>``, on behalf of the session's principal."""

    role: str
    instructions: str

    def complete(self, request: Object) -> dict[str, Any]:
        """Send a ``completion_request_v2`` to the role's model through the door; return the response.

        *model*, *role*, *skill* and *schema_version* are filled in. Raises `Failed`.
        """

    def use(self, tool_call: Object) -> Json:
        """Perform one of the last response's ``tool_calls`` through the door, as its child; raises `Failed`."""

    def message(self, schema: str, response: Object) -> dict[str, Any]:
        """Return the response's text as the JSON that *schema* demands.

        Raises `Failed` with ``MALFORMED_AGENT_MESSAGE``, after recording the violation.
        """

    def tools(self) -> list[dict[str, Any]]:
        """Return the abilities in scope as tool definitions: ``name``, ``description``, ``schema_in``."""


class Context(Protocol):
    """The session's typed state. Each method records one ``context.*`` event and returns ``None``.

    CREATED → CLARIFIED → SCOPED → PLANNED → EXECUTING → VERIFYING → COMPLETED, or FAILED, HALTED, NEEDS_HUMAN; from
    VERIFYING back to EXECUTING is rework. A move that the machine does not know raises `Failed` (``SCHEMA_VIOLATION``).
    """

    @property
    def state(self) -> str:
        """The present state's name."""

    def clarify(self, clarification: Object) -> None:
        """Move to CLARIFIED with the clarified request."""

    def scope(self, scope: Object) -> None:
        """Move to SCOPED with the limits of the work."""

    def plan(self, plan: Object) -> None:
        """Move to PLANNED with the steps."""

    def execute(self) -> None:
        """Move to EXECUTING, for the first time or again."""

    def verify(self, report: Object) -> None:
        """Move to VERIFYING with the report of the work."""

    def complete(self, verification: Object) -> None:
        """Move to COMPLETED with the verification that passed."""

    def fail(self, reason: str) -> None:
        """Move to FAILED."""

    def halt(self, reason: str) -> None:
        """Move to HALTED."""

    def need_human(self, reason: str) -> None:
        """Move to NEEDS_HUMAN."""

    def note(self, event_type: str, data: Object) -> None:
        """Add an entry to the execution log, without a move."""


class Run(Ctx, Protocol):
    """The argument of a flow: a `Ctx` with roles and records; *signals* are those of the prompt."""

    context: Context
    skill: Skill | None
    signals: Object

    def fire(self, event: str, subject: Object) -> Object:
        """Ask the hooks of an event that flows fire, and return the *subject* as they leave it; raises `Failed`."""

    def agent(self, role: str) -> Agent:
        """Hand over to *role*: records ``agent.transition`` and returns the role."""

    def record(self, event_type: str, payload: Object) -> None:
        """Record a ``worker.report``, or an event of a type that the flow's `spec.records` declares.

        The payload is checked against the schema of its type. Raises `Failed` (``NOT_AVAILABLE``,
        ``SCHEMA_VIOLATION``).
        """
