"""How the work of an expression grows with the data that it sees, known before it runs.

The engine ends an expression after 10,000 steps of its comprehensions. It does not count what one step builds: a text
that is split in each step of a comprehension over a list takes memory in proportion to the product of both. The
`degree` of an expression is the highest power of the size of its data that its work and its results may reach. From
degree 2 on, `room` bounds the data.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from .syntax import EACH, NUMBER, Node, Path

WORK: Final = 10**8
"""The most units of work: characters written, or elements visited, copied or compared."""
MAX_DEGREE: Final = 3
"""The highest degree that is accepted: with more, almost no data would be small enough."""
LONGEST_RANGE: Final = 100
"""The most elements that ``lists.range`` makes."""

_COPIES: Final = frozenset({
    "_+_", "split", "join", "replace", "lowerAscii", "upperAscii", "trim", "substring", "reverse", "slice", "flatten",
    "sort", "format", "strings.quote",
})  # fmt: skip
_PAIRS: Final = frozenset({
    "sets.contains", "sets.equivalent", "sets.intersects", "distinct", "@sortByAssociatedKeys", "@in",
})  # fmt: skip
_NO_LOOP: Final = "#unused"  # the variable of a fold that only names a value, as the engine writes `sortBy`


def degree(tree: Node) -> int:
    """Return the degree of an expression; 1: its work grows at most with the size of its data."""
    meter = _Meter()
    size = meter.size(tree, {}, frozenset(), looped=False)
    return max(1, size, meter.work)


def room(of_degree: int) -> int:
    """Return the most units of data, as `units` counts them, for an expression *of_degree*."""
    return int(math.pow(WORK, 1 / of_degree) + 1e-6)


def units(value: Any, enough: int) -> int:
    """Return the size of a value: its elements and the characters of its text. Counting ends above *enough*."""
    counted = 0
    waiting = [value]
    while waiting and counted <= enough:
        each = waiting.pop()
        counted += 1
        if isinstance(each, str):
            counted += len(each)
        elif isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
    return counted


def units_at(value: Any, path: Path, enough: int) -> int:
    """Return the size of what is at *path* below *value* (`syntax.find_paths`); counting ends above *enough*."""
    for index, name in enumerate(path):
        if name == NUMBER:
            return 0
        if name == EACH and isinstance(value, list | tuple | Mapping):
            return _units_of_each(value, path[index + 1 :], enough)
        if not isinstance(value, Mapping):
            break
        value = value.get(name)
    return units(value, enough)


def _units_of_each(value: Any, rest: Path, enough: int) -> int:
    total = sum(map(len, value)) if isinstance(value, Mapping) else 0
    for each in value.values() if isinstance(value, Mapping) else value:
        total += units_at(each, rest, enough) + bool(rest)
        if total > enough:
            break
    return total


def is_loop(node: Node) -> bool:
    """Return whether a fold repeats its body."""
    return node.kind == "fold" and node.name != _NO_LOOP


class _Meter:
    """Reads a tree. A size is the power of the data's size that a value may reach; *work* is the highest of the work.

    *inner* has the variables of the innermost comprehension. Over all its steps together they are as large as the list
    that it runs through, so that copying only these multiplies nothing.
    """

    def __init__(self) -> None:
        self.work = 0

    def size(self, node: Node, sizes: Mapping[str, int], inner: frozenset[str], *, looped: bool) -> int:
        if node.kind == "constant":
            return 0
        if node.kind == "name":
            return sizes.get(node.name, 1)
        if node.kind == "fold":
            return self._fold(node, sizes, inner, looped=looped)
        parts = [self.size(part, sizes, inner, looped=looped) for part in node.parts]
        if node.kind == "call":
            grown, work = _call(node, parts)
            if work:
                self.work = max(self.work, work + (looped and not _is_of(node, inner)))
            return grown
        return max(parts, default=0)

    def _fold(self, node: Node, sizes: Mapping[str, int], inner: frozenset[str], *, looped: bool) -> int:
        over, start, condition, step, result = node.parts
        size = self.size(over, sizes, inner, looped=looped)
        first = self.size(start, sizes, inner, looped=looped)
        collected = node.names[-1]
        if not is_loop(node):
            own = inner | {collected} if _is_of(start, inner) else inner
            return self.size(result, {**sizes, collected: first}, own, looped=looped)
        own = frozenset(node.names[:-1])
        inside = {**sizes, **dict.fromkeys(own, size), collected: 0}
        self.size(condition, inside, own, looped=True)
        element = added_element(step, collected)
        if element is None:
            self.size(step, inside, own, looped=True)
            return 0
        for part in (*_guards(step), element):
            self.size(part, inside, own, looped=True)
        each = self.size(element, inside, own, looped=True)
        if not _is_of(element, own):  # the engine counts the steps of all comprehensions together
            return max(size, each if _collects(element) else each + 1)
        return max(size, each) + _repeats(element, own)


def _call(node: Node, parts: list[int]) -> tuple[int, int]:
    """Return the size of a call's result, and its work; 0: its work is no more than that of reading its operands."""
    most = max(parts, default=0)
    name = node.name
    if name == "_?_:_":
        return max(parts[1:]), 0
    if name == "replace":
        grown = parts[0] + (0 if _never_longer(node) else max(1, *parts[2:]))
        return grown, grown
    if name == "join":
        grown = parts[0] + (max(1, parts[1]) if len(parts) > 1 and node.parts[1].value != "" else 0)
        return grown, grown
    if name in _COPIES:
        return most, most
    if name in _PAIRS:
        return most, 2 * parts[0] if len(parts) == 1 else sum(parts) if name != "@in" else parts[1]
    return most, 0


def _never_longer(node: Node) -> bool:
    """Return whether ``text.replace(old, new)`` is no longer than the text: both are constants, the new one shorter."""
    old, new = (part.value for part in node.parts[1:3])
    return isinstance(old, str) and isinstance(new, str) and bool(old) and len(new) <= len(old)


def added_element(step: Node, collected: str) -> Node | None:
    """Return what a comprehension adds to its list in each step; ``None``: it makes none."""
    if step.name == "_?_:_":
        step = step.parts[1]
    if step.kind == "call" and step.name == "_+_" and step.parts[0].name == collected and step.parts[1].kind == "list":
        return step.parts[1].parts[0]
    return None


def _collects(node: Node) -> bool:
    """Return whether *node* makes a list of what its steps see around it, so that its size has their number."""
    if not is_loop(node):
        return False
    element = added_element(node.parts[3], node.names[-1])
    return element is not None and not _is_of(element, frozenset(node.names[:-1]))


def _guards(step: Node) -> tuple[Node, ...]:
    return step.parts[:1] if step.name == "_?_:_" else ()


def _is_of(node: Node, names: frozenset[str]) -> bool:
    """Return whether all variables of *node* are among *names*, or its own."""
    own = {name for each in node.walk() if each.kind == "fold" for name in each.names}
    return all(each.name in names or each.name in own for each in node.walk() if each.kind == "name")


def _repeats(element: Node, names: frozenset[str]) -> bool:
    """Return whether *element* may be larger than the variables of which it is made: it has a part of them twice."""
    found = sorted(_paths(element, names))
    return any(later[: len(first)] == first for first, later in pairwise(found))


def _paths(node: Node, names: frozenset[str]) -> Iterator[tuple[str, ...]]:
    path = _path(node)
    if path:
        if path[0] in names:
            yield path
        return
    for part in node.parts:
        yield from _paths(part, names)


def _path(node: Node) -> tuple[str, ...]:
    if node.kind == "name":
        return (node.name,)
    if node.kind == "member":
        above = _path(node.parts[0])
        return (*above, node.name) if above else ()
    return ()
