"""The match grammar: which abilities, principals, roles, paths and arguments something applies to.

Hooks, policies, approvals and exposure all use it (``docs/match.md``). A match is compiled once, when it is bound. Its
static part (kind, abilities, tags, effects, scopes) is decided for each ability at start; only the dynamic part
(principals, roles, paths, args) runs at a call. It consists of closures: keys that are not written cost nothing. All
keys must hold, a list means any of its items, a missing argument matches nothing. If a call is ambiguous, a match that
*allows* requires all readings to match; every other match guards, and holds as soon as one reading matches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from deedbook.contract import PATHS, Call, Effects, Object
from deedbook.contract.pointers import MEMBER_POINTER
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DomainError, IntakeError, fault, raise_all
from deedbook.format.lint import Violation, suggest, violation

from .conditions import (
    ABSENT,
    CONDITION,
    Lookup,
    ValueTest,
    as_list,
    condition_tests,
    conjunction,
    glob_test,
    group_by_type,
    impossible,
    lookup,
    normal_path,
    one_or_more,
    path_test,
    split_argument,
    too_large,
)
from .kinds import DEFAULT_KINDS, KINDS

if TYPE_CHECKING:
    import jsonschema_rs

Test: TypeAlias = Callable[[Call], bool]
Steps: TypeAlias = tuple[str | int, ...]

EFFECTS: Final = ("none", "read", "write", "irreversible")
DYNAMIC: Final = frozenset({"principals", "roles", "paths", "args"})
"""The keys about a call rather than its ability."""

_CHOICES: Final = MappingProxyType({"kind": tuple(KINDS), "effects": EFFECTS})


def _choice(description: str, names: Sequence[str]) -> dict[str, Any]:
    return one_or_more(description, pattern=f"^({'|'.join(names)})$", items={"enum": list(names)})


SCHEMA: Final[dict[str, Any]] = {
    "description": "What this is about. All keys must hold; a list means any of it.",
    "type": "object",
    "properties": {
        "kind": _choice("Kinds of ability; tool and flow unless named", tuple(KINDS)),
        "abilities": one_or_more("Globs over ability ids; * stays within a segment, ** crosses /"),
        "tags": one_or_more("The ability has one of these tags"),
        "effects": _choice("The ability's effects are one of these", EFFECTS),
        "principals": one_or_more("Globs over the id of the principal"),
        "roles": one_or_more("The acting role, or a role of the principal, is one of these"),
        "scopes": one_or_more("The ability's routing_hints.scopes hold one of these"),
        "paths": one_or_more("Globs over the paths among the arguments, relative and normalised"),
        "args": {
            "description": "Conditions on arguments, by JSON pointer (RFC 6901)",
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": MEMBER_POINTER},
            "additionalProperties": CONDITION,
        },
    },
    "additionalProperties": False,
}
"""The JSON Schema of a match, draft 2020-12, for embedding in the schemas of workspace files."""


@cache
def _shape() -> "jsonschema_rs.Draft202012Validator":
    """Return the validator of `SCHEMA`, compiled at its first use."""
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(SCHEMA)


@attrs.frozen
class AbilityFacts:
    """The facts of an ability for the static part of a match; *paths* are JSON pointers to its path arguments."""

    id: str
    kind: str
    effects: Effects
    tags: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    paths: tuple[str, ...] = PATHS


@attrs.frozen(eq=False, kw_only=True)
class Match:
    """A compiled match; a static key that is not written is ``None``.

    *holds* is the dynamic part for an ability with paths at `PATHS`. It expects arguments that passed intake.
    """

    kinds: frozenset[str]
    abilities: ValueTest | None
    tags: frozenset[str] | None
    effects: frozenset[str] | None
    scopes: frozenset[str] | None
    holds: Test
    _dynamic: Callable[[Iterable[str]], Test | None]

    @classmethod
    def compile(cls, body: Any, place: str | None = None, *, at: Steps = (), allows: bool = False) -> "Match":
        """Compile *body*, the value of a ``match:`` in a workspace file.

        *place* is its position and *at* the path to it inside the document, both for messages. *allows*: a match lets a
        call pass, so every path of the call must match; otherwise one is enough. Raises `BindingError`
        (``BINDING_INVALID``) with all faults.
        """
        raise_all(BindingError, (_refusal(each, place) for each in _problems(body, at)))
        own: dict[str, Any] = canonical.decode(canonical.encode(body))

        def dynamic(paths: Iterable[str]) -> Test | None:
            return conjunction(tuple(_tests(own, paths, allows=allows)))

        return cls(
            kinds=frozenset(as_list(own.get("kind", DEFAULT_KINDS))),
            abilities=glob_test(as_list(own["abilities"])) if "abilities" in own else None,
            tags=_names(own, "tags"),
            effects=_names(own, "effects"),
            scopes=_names(own, "scopes"),
            holds=dynamic(PATHS) or _always,
            dynamic=dynamic,
        )

    def could_match(self, ability: AbilityFacts) -> bool:
        """Decide the static part: return whether any call of *ability* may match."""
        return (
            ability.kind in self.kinds
            and (self.effects is None or ability.effects in self.effects)
            and (self.abilities is None or self.abilities(ability.id))
            and (self.tags is None or not self.tags.isdisjoint(ability.tags))
            and (self.scopes is None or not self.scopes.isdisjoint(ability.scopes))
        )

    def test_for(self, ability: AbilityFacts) -> Test | None:
        """Return the dynamic part for *ability* with its own paths; ``None`` if every call matches."""
        if ability.paths != PATHS:
            return self._dynamic(ability.paths)
        return None if self.holds is _always else self.holds


# --- the dynamic part -------------------------------------------------------------------------------------------------


def _always(_call: Call) -> bool:
    return True


def _names(body: Object, key: str) -> frozenset[str] | None:
    return frozenset(as_list(body[key])) if key in body else None


def _tests(body: Object, paths: Iterable[str], *, allows: bool) -> Iterator[Test]:
    if "principals" in body:
        yield _principal_test(glob_test(as_list(body["principals"])))
    if "roles" in body:
        yield _role_test(frozenset(as_list(body["roles"])))
    if "paths" in body:
        fits = path_test(glob_test(as_list(body["paths"])), allows=allows)
        yield _path_test(fits, tuple(map(lookup, paths)), all if allows else any)
    for pointer, condition in body.get("args", {}).items():
        yield _argument_test(pointer, condition, allows=allows)


def _principal_test(fits: ValueTest) -> Test:
    return lambda call: fits(call.principal.id)


def _role_test(roles: frozenset[str]) -> Test:
    return lambda call: call.role in roles or not roles.isdisjoint(call.principal.roles)


def _path_test(fits: ValueTest, lookups: Sequence[Lookup], enough: Callable[[Iterable[bool]], bool]) -> Test:
    def test(call: Call) -> bool:
        found = [path for find in lookups for path in _paths_in(find(call.args))]
        return bool(found) and enough(fits(path) for path in found)

    return test


def _paths_in(value: Any) -> Sequence[Any]:
    return () if value is ABSENT else as_list(value)


def _argument_test(pointer: str, condition: Any, *, allows: bool) -> Test:
    find, names = lookup(pointer), split_argument(pointer)
    if not isinstance(condition, dict) and len(names) == 1:
        return _equal_argument(names[0], group_by_type(as_list(condition)))
    if condition == {"present": False}:
        return lambda call: find(call.args) is ABSENT
    test = conjunction(tuple(condition_tests(condition, allows=allows)))
    if test is None:
        return lambda call: find(call.args) is not ABSENT
    return lambda call: test(find(call.args))


def _equal_argument(name: str, accepted: Mapping[type, frozenset[Any]]) -> Test:
    """Return the most common test as one function: a top-level argument that equals a value."""

    def test(call: Call) -> bool:
        value = call.args.get(name, ABSENT)
        return value in accepted.get(type(value), ())

    return test


# --- what is wrong with a match ---------------------------------------------------------------------------------------


def _refusal(problem: Violation, place: str | None) -> DomainError:
    return fault("BINDING_INVALID", str(problem), place=place)


def _problems(body: Any, at: Steps) -> Iterator[Violation]:
    """Yield all faults of *body*: values that are not JSON, a wrong shape, or conditions that cannot hold."""
    try:
        canonical.encode(body)
    except IntakeError as refused:
        yield violation(at, f"is not JSON: {refused.error.message}")
        return
    shape = [each for error in _shape().iter_errors(body) for each in _explain(error, at)]
    yield from shape or _contradictions(body, at)


def _explain(error: "jsonschema_rs.ValidationError", at: Steps) -> Iterator[Violation]:
    where = (*at, *error.instance_path)
    schema: Any = SCHEMA
    for step in error.schema_path[:-1]:
        schema = schema[step]
    keyword = error.schema_path[-1]
    if keyword == "additionalProperties":
        for key in error.kind.as_dict()["unexpected"]:
            yield violation((*where, key), f"unknown key{suggest(key, schema['properties'])}")
    elif "propertyNames" in error.schema_path:
        yield violation(where, f'{error.message}; an argument is named by a JSON pointer such as "/path"')
    else:
        names = [name for key in error.instance_path[:1] for name in _CHOICES.get(str(key), ())]
        hint = suggest(error.instance, names) if isinstance(error.instance, str) else ""
        yield violation(where, f"{error.message}{hint}")


def _contradictions(body: Object, at: Steps) -> Iterator[Violation]:
    for glob in as_list(body.get("paths", ())):
        if normal_path(glob) != glob:
            yield violation((*at, "paths"), f'"{glob}" fits no path; expected a glob over relative, normalised paths')
    for key in ("abilities", "principals", "paths"):
        if too_large(as_list(body.get(key, ()))):
            yield violation((*at, key), "the globs are too large together; write fewer or shorter ones")
    for pointer, condition in body.get("args", {}).items():
        if isinstance(condition, dict):
            yield from (violation((*at, "args", pointer), why) for why in impossible(condition))
