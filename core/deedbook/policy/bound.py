"""An ability, ready to be called: the immutable record that the door works with, and the scope of who asks."""

from collections.abc import Callable, Collection, Iterator, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from deedbook.contract import PATHS, Effects, Failed, Handler, Object, Principal
from deedbook.format import canonical
from deedbook.format.schema import Validator

from .conditions import lookup
from .gates import BoundGate

if TYPE_CHECKING:
    from .path_mapping import ServerPaths

Patterns: TypeAlias = Mapping[str, Mapping[str, Collection[str]]]
"""By ability and JSON pointer to an argument: the patterns of which the command there has to fit one (`commands`)."""


@attrs.frozen
class Scope:
    """Which abilities a caller may use: *names* of tools and flows, *models* by name; ``None`` means all.

    Of an ability in *commands* only these commands are inside.
    """

    why: str
    names: frozenset[str] | None = None
    models: frozenset[str] | None = None
    commands: Patterns = attrs.field(factory=dict, eq=False)

    def allows(self, bound: "BoundAbility") -> bool:
        """Say whether *bound* is inside."""
        allowed = self.models if bound.kind == "model" else self.names
        return allowed is None or bound.id in allowed

    def lacks(self, ability: str, args: Object) -> str | None:
        """Say which argument of *ability* is no command that is inside; ``None`` where all are."""
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


EXTERNAL: Final = "elsewhere"
"""The tool that stands for an effect that the caller has itself, such as a coding agent's own tools."""
EVERYTHING: Final = Scope("everything")
DURABLE: Final = frozenset({"write", "irreversible"})
"""The effects before which the intent has to be durable."""


@attrs.frozen(kw_only=True)
class Caller:
    """Who asks: the principal, the class of actor, the scope, where in a run they stand, and what hooks said of it.

    *patience* is how many seconds they wait for a person who has to decide; ``None`` leaves it to the session.
    """

    principal: Principal
    actor: str
    scope: Scope
    role: str | None = None
    skill: str | None = None
    depth: int = 0
    signals: Object = attrs.field(factory=dict, eq=False)
    patience: float | None = attrs.field(default=None, eq=False)


@attrs.frozen
class EventNames:
    """How the calls of one ability are written: event types, and the payload's bytes around arguments and results."""

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
    """One ability, ready to be called. *timeout* is in seconds (infinity: none), *mask* takes out secrets.

    *outside* says why a caller may not use it with these arguments, where its scope depends on them. *ways* leads from
    paths as a server has them to those that are judged, and back.
    """

    def judged(self, given: bytes) -> bytes:
        """Return *given* arguments, canonical, as they are judged and recorded."""
        return given if self.ways is None else self.ways.to_relative(given, self.takes.valid)

    def told(self, args: Any, given: bytes) -> Any:
        """Return judged *args* as the handler is told them: a server has paths as they were *given*."""
        return args if self.ways is None else self.ways.to_absolute(args, given)

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
    event_names: EventNames
    outside: Callable[[Caller, Object], str | None] | None = None
    ways: "ServerPaths | None" = None
    mask: Callable[[str], str] = str


class Abilities(Mapping[str, BoundAbility]):
    """Every ability by id; one that is not *ready* is bound by *bind* when it is first asked for.

    *bind* raises `BindingError`, and so does whoever asks for such an ability. Iterating over ids binds nothing.
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
        return found if found is not None else self._bound(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def _bound(self, name: str) -> BoundAbility:
        if name not in self._names:
            raise KeyError(name)
        with self._turn:
            if name not in self._ready:
                self._ready[name] = self._bind(name)
            return self._ready[name]


Persona: TypeAlias = Callable[[str, Mapping[str, Any]], str]
"""Reads the persona of an agent, by its name and what the charter says of it; raises `Failed`."""


def no_persona(name: str, card: Mapping[str, Any]) -> str:
    """Raise `Failed`: nobody reads personas here."""
    raise Failed("BINDING_INVALID", f"nobody reads the persona of {name!r} here ({card['source']})")


def event_names(kind: str, name: str) -> EventNames:
    """Return how calls of an ability are written; members stand in canonical order."""
    quoted = canonical.encode(name)
    if kind == "model":
        head = b'{"ability":%b,' % quoted
        return EventNames(
            "llm.request", "llm.response", "llm.error", "agent", "ability",
            head + b'"request":', b"}", head + b'"response":', head + b'"late":true,"response":', b"}",
        )  # fmt: skip
    if kind == "flow":
        head, tail = b'{"flow":%b,' % quoted, b',"flow":%b}' % quoted
        return EventNames(
            "flow.call", "flow.result", "flow.error", "runtime", "flow",
            b'{"args":', tail, head + b'"result":', head + b'"late":true,"result":', b"}",
        )  # fmt: skip
    if kind == "memory":
        head = b'{"ability":%b,' % quoted
        return EventNames(
            "memory.call", "memory.result", "memory.error", "runtime", "ability",
            head + b'"args":', b"}", head + b'"result":', head + b'"late":true,"result":', b"}",
        )  # fmt: skip
    tail = b',"tool_name":%b}' % quoted
    return EventNames(
        "tool.call", "tool.result", "tool.error", "tool", "tool_name",
        b'{"args":', tail, b'{"result":', b'{"late":true,"result":', tail,
    )  # fmt: skip
