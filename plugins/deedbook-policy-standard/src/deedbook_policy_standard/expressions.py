"""Conditions in CEL (github.com/google/cel-spec): compiled when bound, asked about calls and other subjects.

The engine is the package ``cel-expr-python``, of the extra ``deedbook-policy-standard[cel]``. It is imported only where
an expression is written. A condition holds if its value is exactly ``true``, and does not if it is exactly ``false``;
all else, an error above all, raises `Unclear`, and the caller must refuse.

Offered beside the standard functions: the engine's libraries for strings, math, lists, sets and comprehensions with two
variables, each in a fixed version, and `networks.in_cidr` as ``inCidr``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Call, Object, Principal
from deedbook.format.errors import recordable
from deedbook.format.lint import suggest

from . import cost, networks, syntax
from .direct import Direct, compile_direct
from .syntax import Node

Readers: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""The variables of a language, in the order in which messages list them, each with what reads it from a subject."""

LONGEST: Final = 2_000
"""The most characters of an expression."""
MAX_FOLDS: Final = 2
"""How deep ``all``, ``exists``, ``map`` and ``filter`` may be nested: each level multiplies the work."""

_LIBRARIES: Final = {"strings": 4, "math": 2, "lists": 2, "sets": 0, "two-var-comprehensions": 0}
"""The engine's libraries and their versions: a newer engine offers the same functions."""
CONFIGURATION: Final = "name: deedbook\nextensions:\n" + "".join(
    f"- name: {name}\n  version: {version}\n" for name, version in _LIBRARIES.items()
)
"""The engine's configuration."""
_OBJECTS: Final = frozenset({"args", "call", "principal", "facts"})
_IN_CIDR: Final = "inCidr"
_SAID: Final = 300
_FOUND: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)")
_UNKNOWN: Final = re.compile(r"undeclared reference to '([^'.]+)")


class NoEngine(Exception):  # noqa: N818 - it says what is missing
    """The engine is not installed."""


class Unclear(Exception):  # noqa: N818 - it says what the condition is
    """A condition that neither holds nor does not; the message says why."""


@attrs.frozen
class Flaw:
    """What is wrong with an expression, and where: *at* is an offset in its text, in characters."""

    message: str
    at: int = 0


class Invalid(Exception):  # noqa: N818 - it says what the expression is
    """An expression that cannot be used."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__("; ".join(flaw.message for flaw in flaws))
        self.flaws = flaws


@attrs.frozen(eq=False)
class Expression:
    """A compiled condition: its *text*, its syntax *tree*, and whether its type is known to be ``bool``.

    *paths* are the values that it reads. *room* is the most units (`cost.units`) that they may have together, so that
    its work is bounded; ``None``: any.
    """

    text: str
    tree: Node
    certain: bool
    paths: tuple[syntax.Path, ...]
    room: int | None
    direct: Direct | None
    _eval: Any
    _error: Any

    def holds(self, view: "View") -> bool:
        """Return whether the condition holds for the subject that *view* was made of; raises `Unclear`."""
        if self.direct is not None:
            answer = self.direct(view.value)
            if answer is not None:
                return answer
        if self.room is not None and view.units(self.paths, self.room) > self.room:
            raise Unclear(f"it sees more than {self.room} elements and characters, which is too much work for it")
        activation = view.activation
        try:
            value = self._eval(activation)
            found = value.value()
        except Exception as problem:  # noqa: BLE001 - the engine reports its errors as RuntimeError, among others
            raise Unclear(_short(str(problem) or type(problem).__name__)) from None
        if found is True or found is False:
            return found
        kind = value.type()  # some errors are values; what is no error may be a secret, and is not quoted
        raise Unclear(_short(str(found) if kind == self._error else f"it is of type {kind.name().lower()}"))


class View:
    """The values of a subject that the expressions of a language read; one is made for all expressions.

    What the engine sees is made when an expression first needs the engine.
    """

    __slots__ = ("_activation", "_language", "_seen", "_subject", "_units")

    def __init__(self, language: "Language", subject: Any) -> None:
        self._language = language
        self._subject = subject
        self._seen: dict[str, Any] = {}
        self._activation: Any = None
        self._units: dict[syntax.Path, int] = {}

    def value(self, name: str) -> Any:
        """Return the value of a variable."""
        if name in self._seen:
            return self._seen[name]
        return self._seen.setdefault(name, self._language.readers[name](self._subject))

    @property
    def activation(self) -> Any:
        """What the engine sees: as much as the expressions of the language use. Raises `Unclear`."""
        if self._activation is None:
            self._activation = self._language.activation(self.value)
        return self._activation

    def units(self, paths: Iterable[syntax.Path], enough: int) -> int:
        """Return the size of the values at *paths*; counting ends above *enough*."""
        total = 0
        for path in paths:
            if self._units.get(path, 0) <= enough:
                self._units[path] = cost.units_at(self.value(path[0]), path[1:], enough)
            total += self._units[path]
            if total > enough:
                break
        return total


class Language:
    """An engine, the variables that expressions may name, and what the expressions compiled by it look at.

    One `View` is made of a call, or of another subject that *readers* read, and serves all expressions: making it
    costs ten times what asking does. *objects* names the variables that are always objects.
    """

    def __init__(self, readers: Readers | None = None, objects: Collection[str] = _OBJECTS) -> None:
        try:
            self._cel: Any = import_module("cel_expr_python.cel")
        except ImportError:
            raise NoEngine from None
        self.readers = CALL if readers is None else readers
        kind = self._cel.Type
        any_object = kind.Map(kind.STRING, kind.DYN)
        self._env = self._cel.NewEnv(
            config=self._cel.NewEnvConfigFromYaml(CONFIGURATION),
            variables={name: any_object if name in objects else kind.DYN for name in self.readers},
            functions=[_declare_in_cidr(self._cel)],
        )
        self._used: frozenset[str] = frozenset()
        self._arguments: frozenset[str] | None = frozenset()

    def compile(self, text: str) -> Expression:
        """Compile *text*; raises `Invalid`."""
        if len(text) > LONGEST:
            raise Invalid(Flaw(f"{len(text)} characters; at most {LONGEST} are accepted", LONGEST))
        try:
            checked = self._env.compile(text)
            tree = syntax.tree(checked.serialize())
        except Exception as problem:  # noqa: BLE001 - as in `Expression.holds`
            raise Invalid(*_flaws(text, str(problem), tuple(self.readers))) from None
        made = checked.return_type()
        if made not in (self._cel.Type.BOOL, self._cel.Type.DYN):
            raise Invalid(Flaw(f"is of type {made.name().lower()}; a condition is true or false"))
        if refused := tuple(_find_refused(tree)):
            raise Invalid(*refused)
        self._used |= {node.name for node in tree.walk() if node.kind == "name"}
        arguments = _arguments(tree)
        self._arguments = None if self._arguments is None or arguments is None else self._arguments | arguments
        certain = made == self._cel.Type.BOOL
        return Expression(
            text,
            tree,
            certain,
            self._paths(tree),
            _room(text, tree),
            compile_direct(tree),
            checked.eval,
            self._cel.Type.ERROR,
        )

    def _paths(self, tree: Node) -> tuple[syntax.Path, ...]:
        found = dict.fromkeys(path for path in syntax.find_paths(tree) if path[0] in self.readers)
        counted = {path[: place + 1] for path in found for place, name in enumerate(path) if name == syntax.EACH
                   and path[place + 1 :] != (syntax.NUMBER,)}  # fmt: skip
        return tuple(path for path in found if path[-1] != syntax.NUMBER or path[:-1] not in counted)

    def view(self, subject: Any) -> View:
        """Return a call, or what else the language reads, as its expressions see it."""
        return View(self, subject)

    def used_values(self, value_of: Callable[[str], Any]) -> dict[str, Any]:
        """Return the variables that the expressions use; of the arguments only those that they name."""
        seen = {name: value_of(name) for name in self._used & self.readers.keys()}
        if self._arguments is not None and "args" in seen:  # a large argument that no condition reads costs nothing
            args = seen["args"]
            seen["args"] = {name: args[name] for name in self._arguments if name in args}
        return seen

    def activation(self, value_of: Callable[[str], Any]) -> Any:
        """Return what the engine sees; raises `Unclear` for values that it cannot hold."""
        try:
            return self._env.Activation(self.used_values(value_of))
        except Exception as problem:  # noqa: BLE001 - as in `Expression.holds`
            raise Unclear(_short(str(problem))) from None


def nest_facts(facts: Object) -> dict[str, Any]:
    """Return facts as expressions see them: ``session.calls`` is ``{session: {calls}}``."""
    made: dict[str, Any] = {}
    for name, value in facts.items():
        group, _, own = name.partition(".")
        made.setdefault(group, {})[own] = value
    return made


def _call(call: Call) -> dict[str, Any]:
    return {
        "ability": call.ability,
        "kind": call.kind,
        "effects": call.effects,
        "tags": sorted(call.tags),
        "scopes": sorted(call.scopes),
        "session": call.session,
        "mode": call.mode,
        "now": call.now,
    }


def read_principal(subject: Any) -> dict[str, Any]:
    """Return the variable ``principal`` of a call or another subject."""
    who: Principal = subject.principal
    return {"id": who.id, "via": who.via, "roles": sorted(who.roles), "on_behalf_of": who.on_behalf_of}


CALL: Final[Readers] = {
    "args": lambda call: call.args,
    "call": _call,
    "principal": read_principal,
    "role": lambda call: call.role,
    "skill": lambda call: call.skill,
    "facts": lambda call: nest_facts(call.facts),
}
"""What a condition about a call may speak of."""


def _arguments(tree: Node) -> frozenset[str] | None:
    """Return the names of the arguments that an expression looks at; ``None``: it looks at all of them together."""
    whole = sum(node.kind == "name" and node.name == "args" for node in tree.walk())
    taken = [node.name for node in tree.walk() if node.kind == "member" and _is_args(node)]
    taken += [str(node.parts[1].value) for node in tree.walk() if node.name == "_[_]" and _is_args(node)
              and isinstance(node.parts[1].value, str)]  # fmt: skip
    return frozenset(taken) if len(taken) == whole else None


def _is_args(node: Node) -> bool:
    return node.parts[0].kind == "name" and node.parts[0].name == "args"


def _declare_in_cidr(cel: Any) -> Any:
    """Return the declaration of ``inCidr(address, network)``."""
    text = cel.Type.STRING
    overload = cel.Overload("inCidr_string_string", cel.Type.BOOL, [text, text], False, networks.in_cidr)
    return cel.FunctionDecl(_IN_CIDR, [overload])


def _find_refused(tree: Node) -> Iterator[Flaw]:
    """Yield what the engine accepts and this language does not."""
    deep = _too_deep(tree, 0)
    if deep is not None:
        yield Flaw(f"all, exists, map and filter are nested more than {MAX_FOLDS} deep", deep.at)
    if cost.degree(tree) > cost.MAX_DEGREE:
        yield Flaw("its work grows too fast with the data that it sees; copy and collect less", tree.at)
    for node in tree.walk():
        if node.name == "cel.@mapInsert":  # its macros compile, and have no implementation in the engine
            yield Flaw("transformMap and transformMapEntry are not offered; use transformList", node.at)
        elif node.name == "lists.range" and not _is_short(node.parts[0]):
            yield Flaw(f"lists.range takes a whole number of at most {cost.LONGEST_RANGE}", node.at)
        elif node.name == _IN_CIDR and (why := _bad_network(node.parts[1])):
            yield Flaw(why, node.parts[1].at)


def _bad_network(network: Node) -> str | None:
    return networks.flaw(network.value) if isinstance(network.value, str) else None


def _is_short(length: Node) -> bool:
    return isinstance(length.value, int) and 0 <= length.value <= cost.LONGEST_RANGE


def _room(text: str, tree: Node) -> int | None:
    degree = cost.degree(tree)
    return cost.room(degree) - len(text) if degree > 1 else None


def _too_deep(node: Node, folds: int) -> Node | None:
    folds += cost.is_loop(node)
    if folds > MAX_FOLDS:
        return node
    return next((found for part in node.parts if (found := _too_deep(part, folds))), None)


def _short(text: str) -> str:
    return recordable(text.split("\n", 1)[0][:_SAID])


# --- what the engine says ---------------------------------------------------------------------------------------------


def _flaws(text: str, said: str, variables: tuple[str, ...]) -> Iterator[Flaw]:
    """Turn the engine's messages into flaws with offsets; those without a place come first in the text."""
    found = list(dict.fromkeys(_FOUND.findall(said)))
    if not found:
        yield Flaw(_short(said))
    lines = text.split("\n")
    for line, column, message in found:
        above, beside = max(int(line) - 1, 0), max(int(column) - 1, 0)
        at = sum(len(each) + 1 for each in lines[:above]) + beside
        yield _explain_unknown(text, message, at, variables)


def _explain_unknown(text: str, message: str, at: int, variables: tuple[str, ...]) -> Flaw:
    unknown = _UNKNOWN.match(message)
    if unknown is None:
        return Flaw(_short(message), at)
    name = unknown[1]
    at = max(text.rfind(name, 0, at + len(name)), 0)
    if re.match(rf"{re.escape(name)}\s*\(", text[at:]):
        return Flaw(f"there is no function {name}", at)
    return Flaw(f"{name} is not known{suggest(name, variables)}; known: {', '.join(variables)}", at)
