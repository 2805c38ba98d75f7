"""The one match grammar: which abilities, principals, roles, paths and arguments something is about.

Hooks, policies, approvals and exposure all say it in the same words (``docs/match.md``). A match is compiled once, when
bound. Its static part (kind, abilities, tags, effects, scopes) is decided for each ability at freeze; only the dynamic
part (principals, roles, paths, args) is asked at a call, and it is made of closures: what is not written costs nothing.

All keys must hold, a list means any of it, an argument that is not there holds nothing. Where a call could be read in
two ways, a match that *allows* wants all of it to fit; every other match guards, and holds as soon as something fits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs
import jsonschema_rs

from deedbook.contract import PATHS, Call, Effects, Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DomainError, IntakeError, fault, raise_all
from deedbook.format.lint import Violation, suggest, violation

from .conditions import (
    ABSENT,
    CONDITION,
    POINTER,
    Lookup,
    ValueTest,
    accepted_by_type,
    condition_tests,
    conjunction,
    glob_test,
    impossible,
    listed,
    lookup,
    normal_path,
    some,
    too_large,
)

Test: TypeAlias = Callable[[Call], bool]
Steps: TypeAlias = tuple[str | int, ...]

KINDS: Final = ("tool", "flow", "model", "memory")
DEFAULT_KINDS: Final = ("tool", "flow")
EFFECTS: Final = ("none", "read", "write", "irreversible")
DYNAMIC: Final = frozenset({"principals", "roles", "paths", "args"})
"""The keys that are about a call, and not about its ability."""

_CHOICES: Final = MappingProxyType({"kind": KINDS, "effects": EFFECTS})


def _choice(description: str, names: Sequence[str]) -> dict[str, Any]:
    return some(description, pattern=f"^({'|'.join(names)})$", items={"enum": list(names)})


SCHEMA: Final[dict[str, Any]] = {
    "description": "What this is about. All keys must hold; a list means any of it.",
    "type": "object",
    "properties": {
        "kind": _choice("Kinds of ability; tool and flow unless named", KINDS),
        "abilities": some("Globs over ability ids; * stays within a segment, ** crosses /"),
        "tags": some("The ability has one of these tags"),
        "effects": _choice("The ability's effects are one of these", EFFECTS),
        "principals": some("Globs over the id of the principal"),
        "roles": some("The acting role, or a role of the principal, is one of these"),
        "scopes": some("The ability's routing_hints.scopes hold one of these"),
        "paths": some("Globs over the paths among the arguments, relative and normalised"),
        "args": {
            "description": "Conditions on arguments, by JSON pointer (RFC 6901)",
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": POINTER},
            "additionalProperties": CONDITION,
        },
    },
    "additionalProperties": False,
}
"""The JSON Schema of a match, draft 2020-12, to be put where a workspace file holds one."""


@cache
def _shape() -> jsonschema_rs.Draft202012Validator:
    """Return `SCHEMA`, compiled at the first match."""
    return jsonschema_rs.Draft202012Validator(SCHEMA)


@attrs.frozen
class AbilityFacts:
    """What the static part of a match asks of an ability; *paths* are JSON pointers to arguments that hold paths."""

    id: str
    kind: str
    effects: Effects
    tags: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    paths: tuple[str, ...] = PATHS


@attrs.frozen(eq=False, kw_only=True)
class Match:
    """A compiled match; a static key that is not written is ``None``.

    *holds* is the dynamic part for an ability whose paths stand at `PATHS`. It expects arguments that passed intake.
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

        *place* is where it stands and *at* the way to it inside the document, both for messages. *allows*: what holds
        is let through, so that every path of a call has to fit; otherwise one is enough. Raises `BindingError`
        (``BINDING_INVALID``) with all that is wrong.
        """
        raise_all(BindingError, (_refused(each, place) for each in _problems(body, at)))
        own: dict[str, Any] = canonical.decode(canonical.encode(body))

        def dynamic(paths: Iterable[str]) -> Test | None:
            return conjunction(tuple(_tests(own, paths, allows=allows)))

        return cls(
            kinds=frozenset(listed(own.get("kind", DEFAULT_KINDS))),
            abilities=glob_test(listed(own["abilities"])) if "abilities" in own else None,
            tags=_names(own, "tags"),
            effects=_names(own, "effects"),
            scopes=_names(own, "scopes"),
            holds=dynamic(PATHS) or _always,
            dynamic=dynamic,
        )

    def could_match(self, ability: AbilityFacts) -> bool:
        """Decide the static part: whether any call of *ability* may match."""
        return (
            ability.kind in self.kinds
            and (self.effects is None or ability.effects in self.effects)
            and (self.abilities is None or self.abilities(ability.id))
            and (self.tags is None or not self.tags.isdisjoint(ability.tags))
            and (self.scopes is None or not self.scopes.isdisjoint(ability.scopes))
        )

    def test_for(self, ability: AbilityFacts) -> Test | None:
        """Return the dynamic part for *ability*, its paths standing where it says; ``None`` if every call holds."""
        if ability.paths != PATHS:
            return self._dynamic(ability.paths)
        return None if self.holds is _always else self.holds


# --- the dynamic part -------------------------------------------------------------------------------------------------


def _always(_call: Call) -> bool:
    return True


def _names(body: Object, key: str) -> frozenset[str] | None:
    return frozenset(listed(body[key])) if key in body else None


def _tests(body: Object, paths: Iterable[str], *, allows: bool) -> Iterator[Test]:
    if "principals" in body:
        yield _principal_test(glob_test(listed(body["principals"])))
    if "roles" in body:
        yield _role_test(frozenset(listed(body["roles"])))
    if "paths" in body:
        yield _path_test(glob_test(listed(body["paths"])), tuple(map(lookup, paths)), all if allows else any)
    for pointer, condition in body.get("args", {}).items():
        yield _argument_test(pointer, condition, allows=allows)


def _principal_test(fits: ValueTest) -> Test:
    return lambda call: fits(call.principal.id)


def _role_test(roles: frozenset[str]) -> Test:
    return lambda call: call.role in roles or not roles.isdisjoint(call.principal.roles)


def _path_test(fits: ValueTest, lookups: Sequence[Lookup], enough: Callable[[Iterable[bool]], bool]) -> Test:
    def test(call: Call) -> bool:
        found = [path for find in lookups for path in _paths_in(find(call.args))]
        return bool(found) and enough(fits(normal_path(path)) for path in found)

    return test


def _paths_in(value: Any) -> Sequence[Any]:
    return () if value is ABSENT else listed(value)


def _argument_test(pointer: str, condition: Any, *, allows: bool) -> Test:
    find = lookup(pointer)
    if not isinstance(condition, dict) and not set("/~") & set(pointer[1:]):
        return _equal_argument(pointer[1:], accepted_by_type(listed(condition)))
    if condition == {"present": False}:
        return lambda call: find(call.args) is ABSENT
    test = conjunction(tuple(condition_tests(condition, allows=allows)))
    if test is None:
        return lambda call: find(call.args) is not ABSENT
    return lambda call: test(find(call.args))


def _equal_argument(name: str, accepted: Mapping[type, frozenset[Any]]) -> Test:
    """Return the commonest test as one function: a top-level argument that equals a value."""

    def test(call: Call) -> bool:
        value = call.args.get(name, ABSENT)
        return value in accepted.get(type(value), ())

    return test


# --- what is wrong with a match ---------------------------------------------------------------------------------------


def _refused(problem: Violation, place: str | None) -> DomainError:
    return fault("BINDING_INVALID", str(problem), place=place)


def _problems(body: Any, at: Steps) -> Iterator[Violation]:
    """Yield all that is wrong with *body*: what is no JSON, or its shape, or what could never hold."""
    try:
        canonical.encode(body)
    except IntakeError as refused:
        yield violation(at, f"is not JSON: {refused.error.message}")
        return
    shape = [each for error in _shape().iter_errors(body) for each in _explain(error, at)]
    yield from shape or _contradictions(body, at)


def _explain(error: jsonschema_rs.ValidationError, at: Steps) -> Iterator[Violation]:
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
    for glob in listed(body.get("paths", ())):
        if normal_path(glob) != glob:
            yield violation((*at, "paths"), f'"{glob}" fits no path; expected a glob over relative, normalised paths')
    for key in ("abilities", "principals", "paths"):
        if too_large(listed(body.get(key, ()))):
            yield violation((*at, key), "the globs are too large together; write fewer or shorter ones")
    for pointer, condition in body.get("args", {}).items():
        if isinstance(condition, dict):
            yield from (violation((*at, "args", pointer), why) for why in impossible(condition))
