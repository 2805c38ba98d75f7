"""Simple conditions without the engine: what most of them say needs no conversion of the data.

Compiled are selections, comparisons of text, whole numbers, booleans and null, sums and differences, ``in`` a list of
constants, ``has``, ``size``, ``startsWith``, ``endsWith``, ``contains``, ``all`` and ``exists`` over short lists, and
``!``, ``&&`` and ``||`` of these. An answer is given only
where no error is possible and both sides are of one type; for all else the function returns ``None``, and the engine
is asked. So both agree wherever the engine can hold the data.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from .syntax import Node

Variables: TypeAlias = Callable[[str], Any]
"""Returns the value of a variable by its name."""
Direct: TypeAlias = Callable[[Variables], bool | None]
_Value: TypeAlias = Callable[[Variables], Any]

_LEAST, _MOST = -(2**63), 2**63 - 1
_EQUAL: Final = {"_==_": operator.eq, "_!=_": operator.ne}
_ORDER: Final = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}
_SUMS: Final = {"_+_": operator.add, "_-_": operator.sub}
_LONGEST: Final = 1_000  # items of a list: the engine's own limit is ten times that
_OF_TEXT: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "startsWith": str.startswith, "endsWith": str.endswith, "contains": str.__contains__,
}  # fmt: skip


class _Unsupported(Exception):  # noqa: N818 - it says what an expression is
    """Part of an expression that only the engine evaluates."""


class _Undecided(Exception):  # noqa: N818 - it says what an evaluation is
    """Values that only the engine compares."""


def compile_direct(tree: Node) -> Direct | None:
    """Return the function of a condition, or ``None`` for one that only the engine evaluates."""
    try:
        test = _test(tree)
    except _Unsupported:
        return None

    def evaluate(variables: Variables) -> bool | None:
        try:
            found = test(variables)
        except (_Undecided, KeyError, TypeError):
            return None
        return found if type(found) is bool else None

    return evaluate


def _test(node: Node) -> _Value:
    """Return the function of a part that is a boolean, or raises."""
    if node.kind == "member" and node.tests:
        return _presence(node)
    if node.kind == "call":
        if node.name in ("_&&_", "_||_"):
            return _junction(node)
        if node.name == "!_":
            return _negation(_test(node.parts[0]))
        if node.name in _EQUAL or node.name in _ORDER:
            return _comparison(node)
        if node.name == "@in" and node.parts[1].kind == "list":
            return _choice(node)
        if node.name in _OF_TEXT and len(node.parts) == 2:
            return _text_test(_OF_TEXT[node.name], _value(node.parts[0]), _value(node.parts[1]))
        raise _Unsupported
    if node.kind == "fold":
        return _quantifier(node)
    return _value(node)


def _quantifier(node: Node) -> _Value:
    """Return the function of ``all`` or ``exists`` with one variable; the first item that decides ends it."""
    over, start, _, step, result = node.parts
    ends = {"_&&_": False, "_||_": True}.get(step.name)
    if ends is None or len(node.names) != 2 or start.value is ends or result.kind != "name":
        raise _Unsupported
    variable, collected = node.names
    if step.parts[0].name != collected or any(each.kind == "fold" for each in step.walk()):
        raise _Unsupported
    items, test = _value(over), _test(step.parts[1])

    def quantifier(variables: Variables) -> Any:
        found = items(variables)
        if type(found) is not list or len(found) > _LONGEST:
            raise _Undecided
        for item in found:
            answer = test(lambda name, item=item: item if name == variable else variables(name))  # type: ignore[misc]
            if type(answer) is not bool:
                raise _Undecided
            if answer is ends:
                return ends
        return not ends

    return quantifier


def _junction(node: Node) -> _Value:
    one, other = _test(node.parts[0]), _test(node.parts[1])
    ends = node.name == "_||_"

    def junction(variables: Variables) -> Any:
        first = one(variables)
        if type(first) is not bool:
            raise _Undecided
        return first if first is ends else other(variables)

    return junction


def _negation(test: _Value) -> _Value:
    def negation(variables: Variables) -> Any:
        found = test(variables)
        if type(found) is not bool:
            raise _Undecided
        return not found

    return negation


def _comparison(node: Node) -> _Value:
    one, other = _value(node.parts[0]), _value(node.parts[1])
    is_equality = node.name in _EQUAL
    holds = _EQUAL[node.name] if is_equality else _ORDER[node.name]
    if any(part.kind == "constant" and part.value is None for part in node.parts):
        return _null_test(one, other, holds) if is_equality else _refuse()

    def comparison(variables: Variables) -> Any:
        first, second = one(variables), other(variables)
        kind = type(first)
        if kind is not type(second):
            raise _Undecided
        if kind is int:
            if not (_LEAST <= first <= _MOST and _LEAST <= second <= _MOST):
                raise _Undecided
        elif kind is not str and not (kind is bool and is_equality):
            raise _Undecided
        return holds(first, second)

    return comparison


def _null_test(one: _Value, other: _Value, holds: Callable[[Any, Any], bool]) -> _Value:
    def null_test(variables: Variables) -> Any:
        first, second = one(variables), other(variables)
        if not all(value is None or type(value) in (str, bool) for value in (first, second)):
            raise _Undecided
        return holds(first is None, second is None)

    return null_test


def _choice(node: Node) -> _Value:
    values = [part.value for part in node.parts[1].parts]
    if not all(part.kind == "constant" and type(part.value) is str for part in node.parts[1].parts):
        raise _Unsupported
    accepted, one = frozenset(values), _value(node.parts[0])

    def choice(variables: Variables) -> Any:
        found = one(variables)
        return found in accepted if type(found) is str else _raise_undecided()

    return choice


def _text_test(holds: Callable[[str, str], bool], one: _Value, other: _Value) -> _Value:
    def text_test(variables: Variables) -> Any:
        first, second = one(variables), other(variables)
        return holds(first, second) if type(first) is str and type(second) is str else _raise_undecided()

    return text_test


def _presence(node: Node) -> _Value:
    of, name = _value(node.parts[0]), node.name

    def presence(variables: Variables) -> Any:
        found = of(variables)
        return name in found if isinstance(found, Mapping) else _raise_undecided()

    return presence


def _value(node: Node) -> _Value:
    """Return the function of a part's value; it raises where there is none."""
    if node.kind == "constant" and type(node.value) in (str, int, bool, type(None)):
        value = node.value
        return lambda _: value
    if node.kind == "name":
        name = node.name
        return lambda variables: variables(name)
    if node.kind == "member" and not node.tests:
        return _member(_value(node.parts[0]), node.name)
    if node.kind == "call" and node.name == "_[_]":
        return _index(_value(node.parts[0]), _value(node.parts[1]))
    if node.kind == "call" and node.name == "size" and len(node.parts) == 1:
        return _size(_value(node.parts[0]))
    if node.kind == "call" and node.name in _SUMS:
        return _sum(_SUMS[node.name], _value(node.parts[0]), _value(node.parts[1]))
    raise _Unsupported


def _member(of: _Value, name: str) -> _Value:
    return lambda variables: of(variables)[name]


def _index(of: _Value, key: _Value) -> _Value:
    def index(variables: Variables) -> Any:
        found, name = of(variables), key(variables)
        return found[name] if type(name) is str else _raise_undecided()

    return index


def _size(of: _Value) -> _Value:
    def size(variables: Variables) -> Any:
        found = of(variables)
        return len(found) if isinstance(found, str | list | Mapping) else _raise_undecided()

    return size


def _sum(add: Callable[[int, int], int], one: _Value, other: _Value) -> _Value:
    def sum_of(variables: Variables) -> Any:
        numbers = one(variables), other(variables)
        if not all(type(number) is int and _LEAST <= number <= _MOST for number in numbers):
            raise _Undecided
        found = add(*numbers)
        return found if _LEAST <= found <= _MOST else _raise_undecided()

    return sum_of


def _raise_undecided() -> Any:
    raise _Undecided


def _refuse() -> Any:
    raise _Unsupported
