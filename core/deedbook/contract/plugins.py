"""The plugin contract, version 1.

Every plugin is a class named by an entry point. Its ``spec`` declares, its construction binds (once, at start), the
call works. Import from here, or ``from deedbook import …``; everything else may change. The contract of flows is in
`flow`. The groups: ``deedbook.tools``, ``.providers``, ``.flows``, ``.hooks``, ``.policy_kinds``, ``.skill_loaders``,
``.packs``.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, BinaryIO, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs
import pluggy

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
Object: TypeAlias = Mapping[str, Any]
Effects: TypeAlias = Literal["none", "read", "write", "irreversible"]
Files: TypeAlias = Literal["host", "sandbox", "none"]
Outcome: TypeAlias = Literal["allow", "advisory", "transform", "ask", "deny"]
PATHS: Final = ("/path", "/file_path", "/paths")  # the arguments that are paths, unless an ability declares others

Spec_co = TypeVar("Spec_co", covariant=True)
Instance_co = TypeVar("Instance_co", covariant=True)
Shared = TypeVar("Shared", bound="Closable")

hookimpl = pluggy.HookimplMarker("deedbook")


@attrs.frozen(kw_only=True)
class AbilityDeclaration:
    """An ability as declared in YAML; ``None`` keeps the plugin's own declaration.

    *uses*: abilities it may call, and their effects. *tags* are those of the ability.
    """

    id: str
    settings: Object
    effects: Effects | None
    schema_in: Object | None
    schema_out: Object | None
    uses: Mapping[str, Effects]
    tags: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class EventType:
    """One event type that a plugin records.

    *schema* is the JSON Schema of its payload. *text* is the line that people read: names of members in braces are
    replaced by their values (``"{title}: {total} pages"``); without it the payload is shown as JSON. *layer* is one of
    the runtime's layers, ``L1`` to ``L8`` (`deedbook.format.families.LAYERS`).
    """

    schema: Object
    text: str = ""
    layer: str = ""


@attrs.frozen(kw_only=True)
class HandlerSpec:
    """The declaration of a tool, a provider or a flow.

    *settings*, *takes* and *gives* are JSON Schemas (draft 2020-12) for the ability's ``with:``, its arguments and its
    result. A tool needs *gives*; ``{}`` leaves it to ``schema_out`` in YAML. A flow with *gives* is standalone, without
    it the flow keeps a context (`flow`). YAML may narrow *takes* and *gives* and raise *effects*, never the reverse.
    *interruptible* makes ``timeout_ms`` a limit; otherwise it only marks a late result. The limit of a coroutine begins
    once the handler has returned it (import before that). *reconciles*: the handler is also a `Reconciler`. *check*
    finds faults that no schema can express, when the charter is compiled: it yields each as a JSON pointer into the
    ability's YAML (``/with/argv/2``) and a message. A provider's *check_skill* does the same for the front matter of a
    skill. *records* has the event types that a flow records with `Run.record`, and others with `Ctx.record`; their
    names begin with ``x.`` and the plugin's name (``x.my_flow.seen`` for ``my-flow``). *files* says which files the
    handler itself reaches: only those that it opens with its `Host` (``host``), those, and programs that it confines to
    them (``sandbox``), or ``none``. Without it, a call whose files are limited (`flow.Limits`) cannot use the handler.
    *tiers* is for a provider that asks other models of its profile: the JSON pointer into its settings to the list of
    their tiers. Its calls may use these models and nothing else. *images*: the provider takes
    ``completion_request_v3``, whose messages may have images. *requires* has the modules that the first call imports,
    each with how to install it: `deedbook doctor` reports those that are missing. *named*: ``model:`` of the profile
    must name the provider's model.
    """

    settings: Object = attrs.field(factory=dict)
    takes: Object = attrs.field(factory=lambda: {"type": "object"})
    gives: Object | None = None
    effects: Effects = "write"
    interruptible: bool = False
    reconciles: bool = False
    check: Callable[[AbilityDeclaration], Iterable[tuple[str, str]]] | None = None
    check_skill: "Callable[[Skill], Iterable[tuple[str, str]]] | None" = None
    records: Mapping[str, EventType] = attrs.field(factory=dict)
    files: Files | None = None
    tiers: str | None = None
    images: bool = False
    named: bool = False
    requires: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Subject:
    """Something other than a call that a policy kind judges, such as a finding.

    *schema* is the JSON Schema of its values (draft 2020-12). *answers* are the outcomes that the kind may give about
    it, with ``allow`` and ``deny`` among them.
    """

    schema: Object
    answers: frozenset[str] = frozenset({"allow", "advisory", "deny"})


@attrs.frozen(kw_only=True)
class GateSpec:
    """The declaration of a hook, a policy kind or a skill loader.

    *settings* is the JSON Schema of its YAML settings. *reads* names facts beyond the call, such as ``session.calls``;
    exactly these are passed and recorded. *pure*: the same call and facts give the same answer, so that ``explain`` and
    ``verify`` may ask again. *rewrites*: may answer ``transform``; all rewriters run before all other gates.
    *subjects* are what a policy kind judges besides calls, by name. *calls*: whether a policy kind judges calls. A kind
    that does not has subjects, and its policies take no ``match``. *limits*: policies of the kind only limit
    calls, such as a budget. Their ``allow`` means "within the limit", so a call that nothing else covers gets the
    workspace's ``default``.
    """

    settings: Object = attrs.field(factory=dict)
    reads: frozenset[str] = frozenset()
    pure: bool = False
    rewrites: bool = False
    subjects: Mapping[str, Subject] = attrs.field(factory=dict)
    calls: bool = True
    limits: bool = False


@attrs.frozen
class Principal:
    """The person or client that a call is made for: an id, its channel (*via*), its roles, and *on_behalf_of*."""

    id: str
    via: str
    roles: frozenset[str] = frozenset()
    on_behalf_of: str | None = None


@attrs.frozen(slots=False)  # with slots, construction takes twice as long, and every call constructs one
class Call:
    """One use of an ability, as gates see it.

    *now* is the recorded time (RFC 3339, UTC, milliseconds); a gate has no other clock. *raw* holds the arguments'
    canonical bytes, *facts* those that the gate's ``reads`` names, *scopes* the subjects of the ability, *paths* JSON
    pointers to the arguments that are paths, *mode* is how the session runs (`flow.MODES`).
    """

    ability: str
    kind: str
    args: Object
    effects: Effects
    tags: frozenset[str]
    principal: Principal
    role: str | None
    skill: str | None
    enforcement: str
    session: str
    now: str
    raw: bytes
    facts: Object
    scopes: frozenset[str] = frozenset()
    paths: tuple[str, ...] = PATHS
    mode: str = "interactive"

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical ``{ability, args, principal}``; an approval binds to it."""
        identity = b'{"ability":"%b","args":%b,"principal":"%b"}'
        return sha256(identity % (self.ability.encode(), self.raw, self.principal.id.encode())).hexdigest()


@attrs.frozen(kw_only=True)
class SubjectCase:
    """A subject to be judged: its *name*, and its *value*, which fits the schema of `Subject`.

    The other members are those of the flow that asks, as in `Call`: *facts* are those that the kind's ``reads`` names.
    """

    name: str
    value: Object
    principal: Principal
    role: str | None
    skill: str | None
    enforcement: str
    session: str
    now: str
    facts: Object
    mode: str = "interactive"


@attrs.frozen
class Decision:
    """A gate's answer. *args* only with ``transform``; *signals* are structured hints for the caller.

    A policy that answers ``advisory`` is recorded and shown, and gates nothing: the call goes on as if the policy had
    not been asked. From the strictest: ``deny``, ``ask``, ``transform``, ``advisory``, ``allow``.
    """

    outcome: Outcome
    reason: str = ""
    args: Object | None = None
    signals: Object = attrs.field(factory=dict)


@attrs.frozen
class SubjectDecision:
    """The *decision* about a subject, and the *span* of the ``policy.check`` event that records it."""

    decision: Decision
    span: str


ALLOW = Decision("allow")


def allow(reason: str = "") -> Decision:
    """Return an allowing decision; without a reason it is the shared constant."""
    return Decision("allow", reason) if reason else ALLOW


def advisory(reason: str) -> Decision:
    """Return a decision that is recorded and shown, and gates nothing; policies only."""
    return Decision("advisory", reason)


def deny(reason: str) -> Decision:
    """Return a denying decision."""
    return Decision("deny", reason)


def ask(reason: str) -> Decision:
    """Return a decision that leaves the call to a person."""
    return Decision("ask", reason)


def transform(args: Object, reason: str = "") -> Decision:
    """Return a decision that continues with *args* instead; only rewriters may."""
    return Decision("transform", reason, args)


class Failed(Exception):  # noqa: N818 - the field's term for a handler's own failure
    """A handler's own failure: recorded as the call's error with *code*; any other exception is ``TOOL_ERROR``.

    *lost*: it is unknown whether the work was done; if the ability has effects, the recorded outcome is ``unknown``.
    A nested call whose outcome is unknown raises it with *lost* set. *retryable*: the same call may succeed later,
    after *retry_after* seconds if that is known.
    *source*: the file of the skill that a loader cannot read; without it, the whole loader has failed.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        lost: bool = False,
        source: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.retryable, self.lost, self.source = code, retryable, lost, source
        self.retry_after = retry_after


class Secret(Protocol):
    """A secret that does not print."""

    def reveal(self) -> str:
        """Return the value; keep it out of results, errors and logs."""


@attrs.frozen
class FolderEntry:
    """One directory entry: *path* is relative to the root, *size* in bytes (0 for a folder)."""

    path: str
    folder: bool
    size: int


@attrs.frozen
class ProgramResult:
    """The result of a program: its exit status (minus the signal that ended it), and its outputs."""

    status: int
    out: bytes
    err: bytes


class RunningProgram(Protocol):
    """A running program, and the ends of its pipes as raw binary files."""

    @property
    def stdin(self) -> BinaryIO:
        """Its standard input, to write to."""

    @property
    def stdout(self) -> BinaryIO:
        """Its standard output; end of file means that the program ended or closed it."""

    def complaint(self) -> str:
        """Return how it ended, if it did, and the end of its standard error, without secrets."""

    def close(self) -> None:
        """Kill it and all processes that it started, and close both files; may be called twice."""


class Closable(Protocol):
    """An object that the kernel closes at its own end."""

    def close(self) -> None:
        """Release all resources; may be called twice."""


@attrs.frozen(kw_only=True)
class Route:
    """A target for prompts: an ability, or a section (``.system/ROUTING.md#releases``) of a routing document.

    *title* is its summary or heading. A section names *abilities* and has *links* to files, which are not followed.
    """

    id: str
    title: str
    text: str = ""
    triggers: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()
    abilities: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@attrs.frozen
class RankedRoute:
    """A route that matches *by* ``id``, ``trigger`` or ``text``; *trigger* is the longest match that stands alone."""

    route: Route
    by: str
    words: int
    score: float
    reason: str
    trigger: str = ""


class Routes(Protocol):
    """The targets for prompts under the charter. A ranking is a hint and grants no permission."""

    abilities: Sequence[Route]
    knowledge: Sequence[Route]

    def rank(
        self, prompt: str, principal: Principal, limit: int
    ) -> tuple[Sequence[RankedRoute], Sequence[RankedRoute]]:
        """Return the best abilities available to *principal*, and the best sections, at most *limit* of each."""


class Host(Protocol):
    """The kernel's side of binding: passed once, when a plugin is constructed.

    Paths are relative to the workspace's allowed roots. No link is followed and nothing outside is reached: a refused
    path raises `Failed` with ``PATH_REFUSED``, an absent file ``FileNotFoundError``.
    """

    def secret(self, name: str) -> Secret:
        """Return the secret declared under ``secrets:``; an undeclared one is a binding error."""

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""

    def scan(self, path: str) -> Sequence[FolderEntry]:
        """List a folder, sorted by path; links and special files are left out."""

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        """Write a whole file atomically and return the SHA-256 of *data*.

        *expected* is the SHA-256 of the present content, ``""`` if the file must not exist; other content raises
        `Failed` with ``WRITE_CONFLICT``. The workspace's ``.system``, ``.git``, ``.env`` and state are refused.
        """

    def remove(self, path: str, *, expected: str) -> None:
        """Remove a file whose content has the SHA-256 *expected*; refuses what `replace` refuses."""

    def schema(self, name: str) -> Object:
        """Return a copy of the kernel's schema of that id, for a model; raises `Failed` (``SCHEMA_UNKNOWN``)."""

    def catalogue(self) -> Routes:
        """Return the targets for prompts; raises `Failed` (``BINDING_INVALID``) while there is no charter yet."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] = {},
        cwd: str = "",
        seconds: float,
        limit: int = 1_048_576,
    ) -> ProgramResult:
        """Run a program without a shell.

        All its processes are killed when it ends, exceeds its time or output, or the kernel dies. *limit*: bytes of an
        output. Raises ``TOOL_TIMEOUT``, ``OUTPUT_TOO_LARGE``, ``NOT_STARTED``, ``WORKER_BROKEN``.
        """

    def keep(self, argv: Sequence[str], *, env: Mapping[str, str] = {}, cwd: str = "") -> RunningProgram:
        """Start a program as `run` does, and return its pipes; it ends with the kernel at the latest.

        Raises `Failed` (``NOT_STARTED``; ``PATH_REFUSED`` for a handler that declares ``files: host`` or ``none``).
        """

    def share(self, key: str, make: Callable[[], Shared]) -> Shared:
        """Return the object that *make* creates, once for each *key* in a kernel; the kernel closes it.

        It may be called from any thread. *make* must be quick; begin *key* with your distribution's name.
        """


@attrs.frozen(kw_only=True)
class Approval:
    """A person's signed answer that released a call: the *id* of the request, and the *approver*, a principal's id."""

    id: str
    approver: str


class Ctx(Protocol):
    """The kernel's side of one call.

    *approval* is the answer of the person who approved exactly this call; ``None`` if no person was asked about it. The
    kernel has checked the signature, and the approval is used up.
    """

    principal: Principal
    session: str
    idempotency_key: str
    approval: Approval | None

    def remaining(self) -> float:
        """Return the seconds left; zero or less when late or cancelled; infinity without a limit."""

    def progress(self, delta: Json) -> None:
        """Show *delta* to the caller; it never enters the ledger."""

    def load(self, model: str) -> None:
        """Let a model that this call may use import what it needs (`Loader`); the time does not count for this call."""

    def record(self, event_type: str, payload: Object) -> None:
        """Record an event of a type that ``HandlerSpec.records`` declares, below this call; raises `Failed`."""

    def call(self, ability: str, args: Object) -> Json:
        """Use another ability through the same door, as a child of this call; raises `Failed`.

        In a request to a model, *model* may be left out: its tier has it. A flow gives ``{context, state, reply}``.
        """

    async def acall(self, ability: str, args: Object) -> Json:
        """Do what `call` does, from a coroutine."""


class Handler(Protocol):
    """The handler of a tool, a provider or a flow: called with a private copy of the recorded arguments."""

    def __call__(self, args: Any, ctx: Any, /) -> Json | Awaitable[Json]:
        """Act, and return the result; raise `Failed` for a failure of its own."""


class Reconciler(Handler, Protocol):
    """A handler that can find out the outcome of an earlier call."""

    def reconcile(self, args: Object, idempotency_key: str) -> Json | None:
        """Return the result of a call whose outcome was lost, or ``None`` if it is still unknown."""


@runtime_checkable
class ProgramStarter(Protocol):
    """A handler that starts a program whose command line is known before the call."""

    def command_line(self, args: Object, /) -> tuple[Sequence[str], str]:
        """Return the program with its arguments, and the folder in which it runs, relative to the workspace.

        The request for an approval has the digests of the files that it names. Nothing may be started.
        """


class TokenCounter(Handler, Protocol):
    """A provider's handler that can count the tokens of a request itself; the method is optional."""

    def count_tokens(self, request: Object, /) -> int | None:
        """Return how many tokens of a ``completion_request_v2`` the model would read; ``None`` if it cannot tell.

        The method must be quick and must not use the network: it passes no door. After an exception, and for any other
        answer, the kernel estimates the number. A provider with `HandlerSpec.tiers` is counted as the first of these.
        """


class Loader(Handler, Protocol):
    """A provider's handler that can import ahead what its first call needs; the method is optional."""

    def load(self) -> None:
        """Import it; the call reports what is missing."""


class Gate(Protocol):
    """The gate that a policy kind constructs, if it judges calls."""

    def __call__(self, call: Call, /) -> Decision:
        """Judge *call*; an exception, a late answer or anything but a `Decision` denies."""


class SubjectGate(Protocol):
    """The gate that a policy kind constructs, if it has subjects."""

    def decide(self, case: SubjectCase, /) -> Decision:
        """Judge *case*, and record the decision's signals with it.

        An exception, a late answer, or anything but a `Decision` that the subject's answers name denies.
        """


@attrs.frozen(kw_only=True)
class PolicyTarget:
    """An ability that a policy applies to, as the charter has it.

    *takes* holds the JSON Schemas that its arguments match, all of them. It is empty where they are unknown, as for a
    request to a model.
    """

    id: str
    kind: str
    effects: Effects
    tags: frozenset[str]
    scopes: frozenset[str]
    paths: tuple[str, ...]
    takes: tuple[Object, ...] = ()


@attrs.frozen(kw_only=True)
class PolicyProblem:
    """A problem that a policy kind finds in the body of a policy.

    *pointer* is a JSON pointer into the body, such as ``/rules/0/when``, and *at* an offset in characters into the text
    there. *rule* is the index of the affected rule, in a body that lists ``rules``; the places of *other_rules* are
    added to the message. *own*: the problem refuses only a policy of the workspace's own; a pack may name abilities
    that this workspace lacks.
    """

    message: str
    pointer: str = ""
    at: int | None = None
    rule: int | None = None
    other_rules: tuple[int, ...] = ()
    own: bool = False
    code: str = "BINDING_INVALID"


class PolicyChecks(Protocol):
    """The checks of a policy kind before any call: static or class methods of its class, each optional.

    *body* is the policy in YAML without ``kind`` and ``match``; *abilities* are those that the policy applies to. An
    exception is a fault of the plugin (``PLUGIN_BROKEN``). There is no need to inherit from this class.
    """

    @staticmethod
    def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[PolicyProblem]:
        """Yield the faults of a body that may be malformed; any fault refuses the workspace.

        Called when the charter is compiled. If it yields nothing, the kernel checks the body against ``spec.settings``.
        *abilities* is empty where they are unknown.
        """

    @staticmethod
    def reads(body: Object) -> Iterable[str]:
        """Return the facts that this policy reads in addition to ``spec.reads``; the body may be malformed."""

    @staticmethod
    def lint(body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[PolicyProblem]:
        """Yield doubtful parts of a valid body, such as a rule that never decides; they refuse nothing.

        The message continues "rule 1 of policy NAME", or "policy NAME" without *rule*. Called by ``lock``, ``policy
        list``, ``registry lint``, ``doctor`` and ``explain``, and to explain a denial.
        """

    @staticmethod
    def reachable(body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[int | None]:
        """Return the rules of a valid body that can decide about *abilities*, by index; ``None`` is the default.

        Called by ``policy test``, which counts the rules and the default of a kind that has this method.
        """


@attrs.frozen
class Skill:
    """Operational knowledge in Markdown. *allowed* has the names in its ``allowed-tools``; *source* is its file."""

    name: str
    description: str
    body: str
    allowed: frozenset[str] = frozenset()
    triggers: tuple[str, ...] = ()
    metadata: Object = attrs.field(factory=dict)
    source: str = ""


class Skills(Protocol):
    """The callable that a skill loader constructs."""

    def __call__(self) -> Iterable[Skill | Failed]:
        """Yield every skill; a faulty skill is yielded as `Failed`, never skipped silently."""


class Plugin(Protocol[Spec_co, Instance_co]):
    """The common form of every plugin class."""

    @property
    def spec(self) -> Spec_co:
        """The plugin's declaration; read without constructing it."""

    def __call__(self, settings: Object, host: Host, /) -> Instance_co:
        """Construct, once, when bound."""


HandlerPlugin: TypeAlias = Plugin[HandlerSpec, Handler]  # deedbook.tools, .providers, .flows: three groups, one shape
PolicyKind: TypeAlias = Plugin[
    GateSpec, Gate | SubjectGate
]  # deedbook.policy_kinds: settings are the policy's YAML body; `PolicyChecks`
Hook: TypeAlias = Plugin[GateSpec, object]  # deedbook.hooks: methods of `lifecycle.Lifecycle`, with `hookimpl`
SkillLoader: TypeAlias = Plugin[GateSpec, Skills]  # deedbook.skill_loaders


@attrs.frozen
class Event:
    """One line of a ledger, parsed."""

    seq: int
    type: str
    actor: str
    principal: str | None
    span: str
    parent: str | None
    ts: str
    payload: Object
