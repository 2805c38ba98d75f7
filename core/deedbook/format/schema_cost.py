"""Estimate the cost of validating with a schema, before it is used.

A few kilobytes of schema can require more validation steps than there are atoms: definitions that each use the next one
twice, or alternatives that both recurse. Here a schema is a graph: its parts are the nodes, and an edge leads to a part
that validates the same value, or a value inside it. The schema has passed the lint, so every reference is valid.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

from deedbook.contract.pointers import join_pointer

MAX_DEPTH: Final = 64

_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_INSIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("items", "prefixItems", "contains", "unevaluatedItems"), "array"),
        **dict.fromkeys(
            ("patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties"), "object"
        ),
        "properties": "property",
    }
)


class SchemaCost:
    """The graph of one schema, from its root."""

    def __init__(self, schema: Any) -> None:
        self.alternatives = False
        self._same: dict[int, list[int]] = {}
        self._inside: dict[int, dict[str, list[int]]] = {}
        self._root = id(schema)
        self._targets = dict(_targets(schema, ""))
        self._add(schema)

    def _add(self, schema: Any) -> None:
        waiting = [schema]
        while waiting:
            part = waiting.pop()
            if id(part) in self._same:
                continue
            same = self._same[id(part)] = []
            inside: dict[str, list[int]] = {"array": [], "object": [], "property": []}
            self._inside[id(part)] = inside
            for keyword, child in _children(part, self._targets):
                (inside[_INSIDE[keyword]] if keyword in _INSIDE else same).append(id(child))
                self.alternatives |= keyword in ("anyOf", "oneOf")
                waiting.append(child)

    def circular(self) -> bool:
        """Return whether a part validates the same value by itself again, and so never ends."""
        try:
            self._order()
        except CycleError:
            return True
        return False

    def _order(self) -> list[int]:
        return list(TopologicalSorter(self._same).static_order())

    def unfolded_size(self) -> int:
        """Return the number of parts if each use of a definition is a copy; a recursive part ends the copy."""
        sizes: dict[int, int] = {}
        open_parts = {self._root: 1}
        stack = [(self._root, iter(self._edges(self._root)))]
        while stack:
            part, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                sizes[part] = open_parts.pop(part)
                if stack:
                    open_parts[stack[-1][0]] += sizes[part]
            elif child in sizes or child in open_parts:
                open_parts[part] += sizes.get(child, 1)
            else:
                open_parts[child] = 1
                stack.append((child, iter(self._edges(child))))
        return sizes[self._root]

    def _edges(self, part: int) -> list[int]:
        return [*self._same[part], *chain.from_iterable(self._inside[part].values())]

    def depth_within(self, limit: int) -> int:
        """Return how deep a value may be so that each path into it is validated at most *limit* times."""
        order = self._order()
        deeper = dict.fromkeys(order, 0)
        for depth in range(MAX_DEPTH + 1):
            now = self._looks(order, deeper)
            if now[self._root] > limit:
                return depth - 1
            if now == deeper:
                break
            deeper = now
        return MAX_DEPTH

    def _looks(self, order: list[int], deeper: Mapping[int, int]) -> dict[int, int]:
        best = dict.fromkeys(order, 0)
        for kind in ("array", "object"):
            looks: dict[int, int] = {}
            for part in order:
                below = sum(deeper[other] for other in self._inside[part][kind])
                if kind == "object":  # a path goes through one property
                    below += max((deeper[other] for other in self._inside[part]["property"]), default=0)
                looks[part] = 1 + below + sum(looks[other] for other in self._same[part])
                best[part] = max(best[part], looks[part])
        return best


def _children(part: Any, targets: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if not isinstance(part, dict):
        return
    for keyword, value in part.items():
        if keyword in ("$ref", "$dynamicRef"):
            yield keyword, targets[unquote(value)]
        elif keyword in _SAME or keyword in _INSIDE:
            yield from ((keyword, child) for _, child in _parts(value, keyword))


def _parts(value: Any, keyword: str) -> Iterator[tuple[str, Any]]:
    """Yield the schemas under a keyword, each with the step that leads to it."""
    if isinstance(value, list):
        yield from ((f"/{keyword}/{index}", child) for index, child in enumerate(value))
    elif keyword in ("properties", "patternProperties", "dependentSchemas", "$defs"):
        for name, child in value.items():
            yield join_pointer(keyword, name), child
    else:
        yield f"/{keyword}", value


def _targets(schema: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """Yield the possible targets of a reference, without percent-encoding, each with its schema."""
    yield f"#{pointer}", schema
    if not isinstance(schema, dict):
        return
    yield from ((f"#{schema[name]}", schema) for name in ("$anchor", "$dynamicAnchor") if name in schema)
    for keyword, value in schema.items():
        if keyword in _SAME or keyword in _INSIDE or keyword in ("$defs", "contentSchema"):
            for step, child in _parts(value, keyword):
                yield from _targets(child, pointer + step)
