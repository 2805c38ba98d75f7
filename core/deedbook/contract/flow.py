"""The contract of flows, version 2: what an orchestration receives in addition to a `contracts.Ctx`.

A flow is a class like every plugin (``deedbook.flows``). Its handler is called with a `Run`: the roles, the run's typed
state, and methods that record the run. There are two kinds:

- A flow whose spec has no ``gives`` writes its state to ``run.context`` and returns ``None``. A flow that
  calls it gets a reference, ``{"context": RUN}``, and reads the context: reply, end state and report stand only there.
- A flow whose spec has ``gives`` is standalone. It has no context (``run.context`` is ``None``) and returns its result.

A run may be interrupted and resumed. Then the flow is called again and gets the recorded answers until it makes a
request that has no record. So a flow takes time, random numbers and ids from the run, and makes the same requests when
it gets the same answers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import attrs

from .plugins import Ctx, Effects, Json, Object, Skill, SubjectDecision

MODES: Final = ("interactive", "autofix", "report-only", "headless")
"""How a session runs: with a person present, with automatic fixes, without changes, or without a person."""


class Agent(Protocol):
    """One role inside a flow; its principal is ``agent:<role>``, on behalf of the session's principal."""

    role: str
    instructions: str

    def complete(self, request: Object, *, tier: str | None = None) -> dict[str, Any]:
        """Send a ``completion_request_v2`` to the role's model through the door; return the response.

        *tier* is one of `Run.tiers`, whose model is asked instead of the role's. *model*, *role*, *skill* and
        *schema_version* are filled in. Raises `Failed`; ``NOT_AVAILABLE`` for an unknown tier, and records nothing.
        """

    def count_tokens(self, request: Object, *, tier: str | None = None) -> "TokenCount":
        """Return how many tokens the model would read if `complete` got the same arguments; the count is recorded.

        A resumed run gets the recorded count. Raises `Failed` (``NOT_AVAILABLE``) for an unknown tier.
        """

    def use(self, tool_call: Object) -> Json:
        """Perform one of the last response's ``tool_calls`` through the door, as its child; raises `Failed`."""

    def message(self, schema: str, response: Object) -> dict[str, Any]:
        """Return the response's text as the JSON that *schema* demands.

        Raises `Failed` with ``MALFORMED_AGENT_MESSAGE``, after recording the violation.
        """

    def tools(self) -> list[dict[str, Any]]:
        """Return the abilities in scope as tool definitions: ``name``, ``description``, ``schema_in``."""


@attrs.frozen
class TokenCount:
    """The number of *tokens* of a request, counted *by* its ``provider``, or an ``estimate`` by the number of bytes."""

    tokens: int
    by: Literal["provider", "estimate"]


class Context(Protocol):
    """The run's typed state. Each method records one ``context.*`` event and returns ``None``.

    CREATED → CLARIFIED → SCOPED → PLANNED → EXECUTING → VERIFYING → COMPLETED, or FAILED, HALTED, NEEDS_HUMAN; from
    CLARIFIED a plan may follow at once, and from VERIFYING back to EXECUTING is rework. A move that the machine does
    not know raises `Failed` (``SCHEMA_VIOLATION``), which names the legal ones, and records nothing. An artifact that
    states a ``schema_version`` must fit that schema: ``clarification_v1`` or ``lead_directive_v2``, ``scope_v1``,
    ``plan_v1`` or ``plan_v2``, ``verification_v1``.
    """

    @property
    def state(self) -> str:
        """The present state's name."""

    def read(self) -> "RunState":
        """Return the state as it is now; changing it changes nothing."""

    def clarify(self, clarification: Object) -> None:
        """Move to CLARIFIED with the clarified request."""

    def set_scope(self, scope: Object) -> None:
        """Move to SCOPED with the limits of the work."""

    def plan(self, plan: Object) -> None:
        """Move to PLANNED with the steps."""

    def begin_execution(self) -> None:
        """Move to EXECUTING, for the first time or again."""

    def verify(self, report: Object) -> None:
        """Record the report (``worker_report_v1``) as ``worker.report``, and move to VERIFYING."""

    def complete(self, verification: Object) -> None:
        """Move to COMPLETED with the verification that passed."""

    def fail(self, reason: str) -> None:
        """Move to FAILED."""

    def halt(self, reason: str) -> None:
        """Move to HALTED."""

    def need_human(self, reason: str) -> None:
        """Move to NEEDS_HUMAN: a person has to take over."""

    def add_finding(self, finding: Object) -> None:
        """Add a finding (``context_finding_v1``; ``schema_version`` may be left out) to the log, without a move."""

    def note(self, event_type: str, data: Object) -> None:
        """Add an entry to the execution log, without a move."""


class RunState(Protocol):
    """The state of a run, as `Run.read_context` returns it; it does not change any more.

    *reply* is the output of the report of a completed run, otherwise the reason of its end.
    """

    run: str
    parent: str | None
    state: str
    task: Json
    source: Json
    clarification: Object | None
    scope: Object | None
    plan: Object | None
    attempts: int
    report: Object | None
    verification: Object | None
    reason: Json
    log: Sequence[Any]

    @property
    def reply(self) -> str:
        """The text for the person who asked."""


@attrs.frozen(kw_only=True)
class AbilityInfo:
    """An ability that a run may use, as the charter has it: a tool, a flow or a memory ability; never a model."""

    id: str
    kind: str
    summary: str
    effects: Effects
    tags: frozenset[str]


@attrs.frozen(kw_only=True)
class SkillInfo:
    """A skill of the charter.

    *limited* has the abilities of which it allows some commands only. *missing* has the names in its ``allowed-tools``
    that grant nothing, each with the reason.
    """

    skill: Skill
    limited: frozenset[str] = frozenset()
    missing: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AgentInfo:
    """An agent of the charter, as its card describes it; its persona is not read for this.

    *capabilities* are the names on the card, *abilities* those of the abilities that they grant. *unknown* has the
    capabilities that grant nothing, each with the reason: a call of one is refused.
    """

    name: str
    domain: str
    capabilities: frozenset[str]
    abilities: frozenset[str]
    unknown: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Limits:
    """What a branch, and all that it calls, may use and reach; ``None`` is no limit.

    *abilities* and *forbidden* are globs over the ids of tools, flows and memory abilities. *reads* and *writes* are
    globs over files, from the workspace's root: ``*`` stays within a segment, ``**`` crosses ``/``, ``src/`` is all
    below it, and ``!`` before a glob excludes. With *reads* or *writes*, an ability can only be used if its handler
    declares its ``files`` (`HandlerSpec`). Limits never widen what the scope allows; those of nested branches add up.
    """

    abilities: Collection[str] | None = None
    forbidden: Collection[str] = ()
    reads: Collection[str] | None = None
    writes: Collection[str] | None = None


@attrs.frozen
class Branch:
    """One branch of `Run.parallel`: its *name* in the record, and its *work*, which gets a run of its own.

    With *allowed*, the branch may use only these abilities of the run's scope. With *skill*, the branch works under
    that skill of the charter, whose ``allowed-tools`` are its scope; in a run that has a skill, it may allow nothing
    that the run's skill does not allow. Hooks of ``SkillStart`` are asked before the work begins. With *limits*, the
    branch is limited further, also in its files.
    """

    name: str
    work: "Callable[[Run], Json]"
    allowed: Collection[str] | None = None
    skill: str | None = None
    limits: Limits | None = None


@attrs.frozen(kw_only=True)
class RecordedOutcome:
    """What an ability answered beneath a run: its id, its *kind* (``tool``, ``model`` or ``memory``), and a *digest*.

    The digest is the ``payload_hash`` of the recorded outcome: the same for the same answer of the same ability.
    """

    ability: str
    kind: str
    digest: str


class Run(Ctx, Protocol):
    """The argument of a flow: a `Ctx` with roles and records; *signals* are those of the prompt.

    *mode* is that of the session, one of `MODES`.
    """

    context: Any
    """A `Context`, or ``None`` in a standalone flow and inside a branch."""
    skill: Skill | None
    signals: Object
    mode: str

    def fire(self, event: str, subject: Object) -> Object:
        """Ask the hooks of an event that flows fire, and return the *subject* as they leave it; raises `Failed`."""

    def agent(self, role: str) -> Agent:
        """Hand over to *role*: records ``agent.transition`` and returns the role."""

    def record(self, event_type: str, payload: Object) -> None:
        """Record a ``worker.report``, or an event of a type that the flow's `spec.records` declares.

        The payload is checked against the schema of its type. Raises `Failed` (``NOT_AVAILABLE``,
        ``SCHEMA_VIOLATION``).
        """

    def decide(self, policy: str, subject: str, value: Object) -> SubjectDecision:
        """Ask *policy* about *value*, one of its kind's subjects, and record the answer as ``policy.check``.

        An exception, a late answer or one that the kind may not give denies. Under ``enforcement: observe`` every
        answer but ``allow`` is recorded as it is and returned as ``advisory``. Raises `Failed` and records nothing for
        an unknown policy or subject (``NOT_AVAILABLE``) and for an invalid value (``SCHEMA_VIOLATION``). A resumed run
        gets the recorded answer.
        """

    def subjects(self, policy: str) -> frozenset[str]:
        """Return what *policy* judges besides calls; raises `Failed` (``NOT_AVAILABLE``) for an unknown policy."""

    def answer(self, text: str) -> None:
        """Take the context through its remaining states to COMPLETED, with a report whose output is *text*.

        For a flow that has no stages of its own.
        """

    def read_context(self, result: Json) -> RunState:
        """Return the context that *result* refers to: what `call` returned for a flow that keeps one."""

    def outcomes(self) -> list[RecordedOutcome]:
        """Return the outcomes with a result that are recorded beneath this run or branch, each once, in order.

        Those of the runs that it called and of its branches are among them. A resumed run gets the same.
        """

    def abilities(self) -> list[AbilityInfo]:
        """Return the abilities in the scope of this run or branch, sorted by id. A resumed run gets the same."""

    def skills(self) -> list[SkillInfo]:
        """Return all skills of the charter, sorted by name. A skill may allow what is outside the scope of this run."""

    def tiers(self) -> frozenset[str]:
        """Return the names under ``models:`` in the profile. A resumed run gets the same."""

    def agents(self) -> list[AgentInfo]:
        """Return the agents of the charter that have a card, sorted by name. No persona is read.

        An agent may have abilities that are outside the scope of this run.
        """

    def parallel(self, branches: Sequence[Branch], *, return_failures: bool = False) -> list[Any]:
        """Run the branches side by side, each on a thread and with a run of its own, and return their results in order.

        All branches end before the first failure, in their order, is raised. With *return_failures*, the `Failed` that
        a branch raised stands in the place of its result instead.
        """

    def now(self) -> str:
        """Return the recorded time (RFC 3339, UTC, milliseconds)."""

    def random(self) -> float:
        """Return a recorded random number, at least 0 and less than 1."""

    def new_id(self) -> str:
        """Return a recorded id of 32 hexadecimal digits that nothing else has."""
