"""An ability that is ready to be called: the immutable record that the door uses, and the scope of a caller."""

from collections.abc import Callable, Collection, Iterator, Mapping
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from deedbook.contract import PATHS, Effects, Failed, Handler, Object, Principal
from deedbook.format import canonical
from deedbook.format.schema import Validator

from .conditions import lookup
from .gates import BoundGate
from .kinds import KINDS

if TYPE_CHECKING:
    from deedbook.plugins.call_files import CallFiles

    from .defaults import DefaultAnswer
    from .limits import BranchLimits
    from .path_mapping import ServerPaths

Patterns: TypeAlias = Mapping[str, Mapping[str, Collection[str]]]
"""Patterns of commands, by ability and JSON pointer to an argument; the command there must match one (`commands`)."""


@attrs.frozen
class Scope:
    """The abilities that a caller may use: *names* of tools and flows, *models* by name; ``None`` means all.

    Of an ability in *commands*, only these commands are allowed.
    """

    why: str
    names: frozenset[str] | None = None
    models: frozenset[str] | None = None
    commands: Patterns = attrs.field(factory=dict, eq=False)

    def allows(self, bound: "BoundAbility") -> bool:
        """Return whether *bound* is in the scope."""
        allowed = self.models if bound.kind == "model" else self.names
        return allowed is None or bound.id in allowed

    def lacks(self, ability: str, args: Object) -> str | None:
        """Return which argument of *ability* is no allowed command; ``None`` if all are allowed."""
        said = self.commands.get(ability)
        if said is None:
            return None
        from . import commands

        for pointer, patterns in said.items():
            command = lookup(pointer)(args)
            if any(commands.fits(pattern, command) for pattern in patterns):
                return None
        pointers, patterns = " or ".join(said), ", ".join(sorted({each for found in said.values() for each in found}))
        return f"{self.why}: {pointers} has to be one command that fits {patterns}, without {commands.SHELL}"


RUN_REFERENCE: Final[Object] = MappingProxyType(
    {
        "type": "object",
        "required": ["context"],
        "properties": {"context": {"type": "string"}},
        "additionalProperties": False,
    }
)
"""The result schema of a flow that keeps a context: a reference to it."""
RUN_REFERENCE_DIGEST: Final = canonical.digest(canonical.encode(dict(RUN_REFERENCE)))
EXTERNAL: Final = "elsewhere"
"""The tool plugin for effects that the caller performs itself, such as a coding agent's own tools."""
OWN_MODEL: Final = "model"
"""The name, under that of a client, of the ability for requests that the client sends to models itself."""
EVERYTHING: Final = Scope("everything")
DURABLE: Final = frozenset({"write", "irreversible"})
"""The effects whose intent must be durable first."""


@attrs.frozen(kw_only=True)
class Caller:
    """The caller: the principal, the class of actor, the scope, the position in a run, and the signals of hooks.

    *wait_seconds* is how long the caller waits for a person's decision; ``None`` leaves it to the session. *run* is the
    span of the flow's call that it acts for, *mode* that of the session (`contract.flow.MODES`). *limits* are those of
    the branches around it.
    """

    principal: Principal
    actor: str
    scope: Scope
    role: str | None = None
    skill: str | None = None
    depth: int = 0
    signals: Object = attrs.field(factory=dict, eq=False)
    wait_seconds: float | None = attrs.field(default=None, eq=False)
    run: str | None = attrs.field(default=None, eq=False)
    mode: str = "interactive"
    limits: "tuple[BranchLimits, ...]" = ()

    def offered_names(self, entry_of: Callable[[str], Mapping[str, Any] | None]) -> frozenset[str]:
        """Return the tools and flows in scope that the limits admit; *entry_of* finds an ability in the charter."""
        names = self.scope.names or frozenset()
        if not self.limits:
            return names
        from .limits import permits_ability

        return frozenset(
            name for name in names if permits_ability(self.limits, name, (entry_of(name) or {}).get("files"))
        )


@attrs.frozen
class EventNames:
    """The event types of one ability's calls, and the payload bytes around arguments and results."""

    intent: str
    result: str
    error: str
    result_actor: str
    name: str
    intent_head: bytes
    intent_tail: bytes
    result_head: bytes
    late_head: bytes
    result_tail: bytes


@attrs.frozen(eq=False, kw_only=True)
class BoundAbility:
    """One ability, ready to be called. *timeout* is in seconds (infinity: none), *mask* removes secrets.

    *keeps_context*: a flow that writes its state to a context and returns nothing. *scope_violation* returns why a
    caller may not use it with these arguments, if its scope depends on them. *server_paths* maps paths of a server to
    those that are judged, and back. *files* is what the handler declares (`contract.HandlerSpec`), *call_files* holds
    the calls of its host. *default* answers for calls that no policy covers (``None``: they are allowed).
    """

    def judged_args(self, given: bytes) -> bytes:
        """Return the canonical arguments that are judged and recorded, for the *given* ones."""
        return given if self.server_paths is None else self.server_paths.to_relative(given, self.takes.valid)

    def handler_args(self, args: Any, given: bytes) -> Any:
        """Return the arguments for the handler: a server gets its paths as they were *given*."""
        return args if self.server_paths is None else self.server_paths.to_absolute(args, given)

    id: str
    kind: str
    summary: str
    effects: Effects
    tags: frozenset[str]
    scopes: frozenset[str] = frozenset()
    paths: tuple[str, ...] = PATHS
    handler: Handler
    takes: Validator
    gives: Validator
    takes_document: Mapping[str, Any]
    interruptible: bool
    timeout: float
    durable: bool
    uses: Scope
    big_integers: bool
    rewriters: tuple[BoundGate, ...]
    guards: tuple[BoundGate, ...]
    policies: tuple[BoundGate, ...]
    observers: tuple[BoundGate, ...]
    creators: tuple[BoundGate, ...] = ()
    reads: frozenset[str]
    reconciles: bool = False
    keeps_context: bool = False
    event_names: EventNames
    scope_violation: Callable[[Caller, Object], str | None] | None = None
    server_paths: "ServerPaths | None" = None
    mask: Callable[[str], str] = str
    files: str | None = None
    call_files: "CallFiles | None" = None
    default: "DefaultAnswer | None" = None


class AbilityTable(Mapping[str, BoundAbility]):
    """Every ability by id; one that is not *ready* is bound by *bind* at its first lookup.

    *bind* raises `BindingError`, and so does the lookup. Iterating over ids binds nothing.
    """

    def __init__(
        self, names: Collection[str], ready: dict[str, BoundAbility], bind: Callable[[str], BoundAbility]
    ) -> None:
        self._names = names
        self._ready = ready
        self._bind = bind
        self._turn = RLock()

    def __getitem__(self, name: str) -> BoundAbility:
        found = self._ready.get(name)
        return found if found is not None else self._bind_once(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def _bind_once(self, name: str) -> BoundAbility:
        if name not in self._names:
            raise KeyError(name)
        with self._turn:
            if name not in self._ready:
                self._ready[name] = self._bind(name)
            return self._ready[name]


Persona: TypeAlias = Callable[[str, Mapping[str, Any]], str]
"""Reads the persona of an agent, by its name and its entry in the charter; raises `Failed`."""


def no_persona(name: str, card: Mapping[str, Any]) -> str:
    """Raise `Failed`: these bindings cannot read personas."""
    raise Failed("BINDING_INVALID", f"the persona of {name!r} cannot be read here ({card['source']})")


def event_names(kind: str, name: str) -> EventNames:
    """Return the event names of an ability's calls; members are in canonical order."""
    row = KINDS[kind]
    subject = b'"%b":%b' % (row.named.encode(), canonical.encode(name))
    given, answer = (b'"%b":' % member.encode() for member in (row.given, row.answer))

    def around(first: str, members: bytes) -> tuple[bytes, bytes]:
        """Return the bytes around a value that follows *members*, of which *first* is the first."""
        is_behind = row.named < first
        return (b"{%b,%b" % (subject, members), b"}") if is_behind else (b"{%b" % members, b",%b}" % subject)

    late, _ = around("late", b'"late":true,' + answer)
    return EventNames(
        row.intent, row.result, row.error, row.actor, row.named,
        *around(row.given, given), around(row.answer, answer)[0], late, around(row.answer, answer)[1],
    )  # fmt: skip
