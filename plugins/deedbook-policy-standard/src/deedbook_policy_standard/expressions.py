"""Conditions in CEL (github.com/google/cel-spec): compiled when bound, asked about calls.

The engine is the package ``cel-expr-python``, of the extra ``deedbook-policy-standard[cel]``. It is imported only where
an expression is written. A condition holds if its value is exactly ``true``, and does not if it is exactly ``false``;
all else, an error above all, raises `Unclear`, and whoever asks has to refuse.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import attrs

from deedbook.contract import Call, Object
from deedbook.format.errors import recordable
from deedbook.format.lint import suggest

from . import syntax
from .syntax import Node

VARIABLES: Final = ("args", "call", "principal", "role", "skill", "facts")
"""What an expression may speak of."""
LONGEST: Final = 2_000
"""The most characters of an expression."""
MAX_FOLDS: Final = 2
"""How deep ``all``, ``exists``, ``map`` and ``filter`` may be nested: each level multiplies the work."""

_OBJECTS: Final = frozenset({"args", "call", "principal", "facts"})
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
    """A compiled condition: its *text*, its syntax *tree*, and whether its type is known to be ``bool``."""

    text: str
    tree: Node
    certain: bool
    _eval: Any
    _error: Any

    def holds(self, sight: Any) -> bool:
        """Say whether the condition holds for the call that *sight* was made of; raises `Unclear`."""
        try:
            value = self._eval(sight)
            found = value.value()
        except Exception as problem:  # noqa: BLE001 - the engine reports its errors as RuntimeError, among others
            raise Unclear(_short(str(problem) or type(problem).__name__)) from None
        if found is True or found is False:
            return found
        kind = value.type()  # some errors are values; what is no error may be a secret, and is not quoted
        raise Unclear(_short(str(found) if kind == self._error else f"it is of type {kind.name().lower()}"))


class Language:
    """An engine, and what the expressions compiled by it look at.

    One *sight* is made of a call and serves all of them: making it costs ten times what asking does.
    """

    def __init__(self) -> None:
        try:
            self._cel: Any = import_module("cel_expr_python.cel")
        except ImportError:
            raise NoEngine from None
        kind = self._cel.Type
        objects = kind.Map(kind.STRING, kind.DYN)
        self._env = self._cel.NewEnv(variables={name: objects if name in _OBJECTS else kind.DYN for name in VARIABLES})
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
            raise Invalid(*_flaws(text, str(problem))) from None
        made = checked.return_type()
        if made not in (self._cel.Type.BOOL, self._cel.Type.DYN):
            raise Invalid(Flaw(f"is of type {made.name().lower()}; a condition is true or false"))
        deep = _too_deep(tree, 0)
        if deep is not None:
            raise Invalid(Flaw(f"all, exists, map and filter are nested more than {MAX_FOLDS} deep", deep.at))
        self._used |= {node.name for node in tree.walk() if node.kind == "name"}
        arguments = _arguments(tree)
        self._arguments = None if self._arguments is None or arguments is None else self._arguments | arguments
        return Expression(text, tree, made == self._cel.Type.BOOL, checked.eval, self._cel.Type.ERROR)

    def sight(self, call: Call) -> Any:
        """Return *call* as the expressions see it, as much of it as they use; raises `Unclear`."""
        seen = {name: _SEEN[name](call) for name in self._used & _SEEN.keys()}
        if self._arguments is not None and "args" in seen:  # a large argument that nobody asks about costs nothing
            seen["args"] = {name: call.args[name] for name in self._arguments if name in call.args}
        try:
            return self._env.Activation(seen)
        except Exception as problem:  # noqa: BLE001 - as in `Expression.holds`
            raise Unclear(_short(str(problem))) from None


def nested(facts: Object) -> dict[str, Any]:
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


def _principal(call: Call) -> dict[str, Any]:
    who = call.principal
    return {"id": who.id, "via": who.via, "roles": sorted(who.roles), "on_behalf_of": who.on_behalf_of}


_SEEN: Final[Mapping[str, Any]] = {
    "args": lambda call: call.args,
    "call": _call,
    "principal": _principal,
    "role": lambda call: call.role,
    "skill": lambda call: call.skill,
    "facts": lambda call: nested(call.facts),
}


def _arguments(tree: Node) -> frozenset[str] | None:
    """Return the names of the arguments that an expression looks at; ``None``: it looks at all of them together."""
    whole = sum(node.kind == "name" and node.name == "args" for node in tree.walk())
    taken = [node.name for node in tree.walk() if node.kind == "member" and _is_args(node)]
    taken += [str(node.parts[1].value) for node in tree.walk() if node.name == "_[_]" and _is_args(node)
              and isinstance(node.parts[1].value, str)]  # fmt: skip
    return frozenset(taken) if len(taken) == whole else None


def _is_args(node: Node) -> bool:
    return node.parts[0].kind == "name" and node.parts[0].name == "args"


def _too_deep(node: Node, folds: int) -> Node | None:
    folds += node.kind == "fold"
    if folds > MAX_FOLDS:
        return node
    return next((found for part in node.parts if (found := _too_deep(part, folds))), None)


def _short(text: str) -> str:
    return recordable(text.split("\n", 1)[0][:_SAID])


# --- what the engine says ---------------------------------------------------------------------------------------------


def _flaws(text: str, said: str) -> Iterator[Flaw]:
    """Turn the engine's messages into flaws with offsets; those without a place come first in the text."""
    found = list(dict.fromkeys(_FOUND.findall(said)))
    if not found:
        yield Flaw(_short(said))
    lines = text.split("\n")
    for line, column, message in found:
        above, beside = max(int(line) - 1, 0), max(int(column) - 1, 0)
        at = sum(len(each) + 1 for each in lines[:above]) + beside
        yield _explained(text, message, at)


def _explained(text: str, message: str, at: int) -> Flaw:
    unknown = _UNKNOWN.match(message)
    if unknown is None:
        return Flaw(_short(message), at)
    name = unknown[1]
    at = max(text.rfind(name, 0, at + len(name)), 0)
    if re.match(rf"{re.escape(name)}\s*\(", text[at:]):
        return Flaw(f"there is no function {name}", at)
    return Flaw(f"{name} is not known{suggest(name, VARIABLES)}; known: {', '.join(VARIABLES)}", at)
