"""The syntax tree of a checked CEL expression, read from the bytes in which its engine hands it out.

Those are a ``google.protobuf.Any`` with a ``cel.expr.CheckedExpr`` (github.com/google/cel-spec, proto/cel/expr). Of the
wire format only what these messages hold is read, so that the engine's own library is all that expressions need.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

Kind: TypeAlias = Literal["constant", "name", "member", "call", "list", "object", "fold"]

Path: TypeAlias = tuple[str, ...]
"""A variable, and the members that lead to one of its values."""
EACH: Final = "[]"
NUMBER: Final = "#"
_Fields: TypeAlias = list[tuple[int, Any]]
_Made: TypeAlias = "Callable[[_Fields, int, Mapping[int, int]], Node]"
_ID: Final = 2
_SOURCE, _TREE, _POSITIONS = 5, 4, 4


@attrs.frozen
class Node:
    """One node: *name* is that of a name, a member, a function, or of what a fold runs through.

    *at* is the offset in the text, in characters. *parts*: of a member what it is taken from, of a call its target (if
    it has one) and its arguments, of an object keys and values in turn, of a fold its range, start, condition, step
    and result; *names* are then its variables. *tests*: only asks whether the member is there (``has``).
    """

    kind: Kind
    at: int
    name: str = ""
    value: Any = None
    parts: tuple["Node", ...] = ()
    names: tuple[str, ...] = ()
    tests: bool = False

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()


def tree(raw: bytes) -> Node:
    """Read a checked expression; raises `ValueError` for what is none."""
    try:
        checked = _fields(_one(_fields(raw), 2))
        positions = {}
        for number, entry in _fields(_one(checked, _SOURCE, b"")):
            if number == _POSITIONS:
                pair = dict(_fields(entry))
                positions[pair.get(1, 0)] = pair.get(2, 0)
        return _node(_one(checked, _TREE), positions)
    except (IndexError, KeyError, TypeError, struct.error) as problem:
        raise ValueError(f"not a checked expression: {problem}") from None


def find_paths(node: Node, bound: Mapping[str, Path | None] = MappingProxyType({})) -> Iterator[Path]:
    """Yield what an expression reads. *bound* has the path of each variable of a fold; ``None``: it is read elsewhere.

    `EACH` in a path stands for the elements of a list or an object, and `NUMBER` at its end for their number alone.
    """
    root, taken = _chain(node)
    if root.kind == "name":
        base = bound.get(root.name, (root.name,))
        if base is not None:
            yield (*base, *taken)
    elif root.kind == "fold":
        yield from _find_fold_paths(root, bound)
    else:
        for part in root.parts:
            yield from find_paths(part, bound)


def _find_fold_paths(node: Node, bound: Mapping[str, Path | None]) -> Iterator[Path]:
    over, *rest = node.parts
    root, taken = _chain(over)
    base = bound.get(root.name, (root.name,)) if root.kind == "name" else None
    element = None if base is None else (*base, *taken, EACH)
    if element is None:
        yield from find_paths(over, bound)
    else:
        yield (*element, NUMBER)
    *variables, collected = node.names
    inner = {**bound, **dict.fromkeys(variables, element), collected: None}
    for part in rest:
        yield from find_paths(part, inner)


def _chain(node: Node) -> tuple[Node, tuple[str, ...]]:
    """Return what members are taken from, and their names in order."""
    taken: list[str] = []
    while node.kind == "member":
        taken.insert(0, node.name)
        node = node.parts[0]
    return node, tuple(taken)


def place_of_member(text: str, node: Node) -> int:
    """Return the offset in *text* of the name of a member; its node stands at the dot, or at the brackets of `has`."""
    start = max(node.at, node.parts[0].at + 1)
    found = re.compile(rf"\.\s*`?({re.escape(node.name)})").search(text, start)
    return found.start(1) if found else node.at


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node(raw: bytes, positions: Mapping[int, int]) -> Node:
    fields = _fields(raw)
    at = positions.get(_one(fields, _ID, 0), 0)
    for number, value in fields:
        if number in _MADE:
            return _MADE[number](_fields(value), at, positions)
    raise ValueError("not a checked expression: a node of no known kind")


def _constant(fields: _Fields, at: int, _: Mapping[int, int]) -> Node:
    number, value = fields[0]
    return Node("constant", at, value=_CONSTANTS[number](value))


def _name(fields: _Fields, at: int, _: Mapping[int, int]) -> Node:
    return Node("name", at, _text(_one(fields, 1)))


def _member(fields: _Fields, at: int, positions: Mapping[int, int]) -> Node:
    parts = (_node(_one(fields, 1), positions),)
    return Node("member", at, _text(_one(fields, 2)), parts=parts, tests=bool(_one(fields, 3, 0)))


def _call(fields: _Fields, at: int, positions: Mapping[int, int]) -> Node:
    parts = tuple(_node(value, positions) for number, value in sorted(fields, key=_target_first) if number in (1, 3))
    return Node("call", at, _text(_one(fields, 2)), parts=parts)


def _target_first(field: tuple[int, Any]) -> int:
    return field[0]


def _list(fields: _Fields, at: int, positions: Mapping[int, int]) -> Node:
    return Node("list", at, parts=tuple(_node(value, positions) for number, value in fields if number == 1))


def _object(fields: _Fields, at: int, positions: Mapping[int, int]) -> Node:
    entries = [_fields(value) for number, value in fields if number == 2]
    parts = (_node(value, positions) for entry in entries for number, value in entry if number in (3, 4))
    return Node("object", at, parts=tuple(parts))


def _fold(fields: _Fields, at: int, positions: Mapping[int, int]) -> Node:
    inside = dict(fields)
    names = tuple(_text(inside[number]) for number in (1, 8, 3) if number in inside)
    parts = tuple(_node(inside[number], positions) for number in (2, 4, 5, 6, 7))
    return Node("fold", at, names[0], parts=parts, names=names)


_MADE: Final[Mapping[int, _Made]] = {3: _constant, 4: _name, 5: _member, 6: _call, 7: _list, 8: _object, 9: _fold}


# --- the wire format --------------------------------------------------------------------------------------------------


def _fields(raw: bytes) -> _Fields:
    """Return the fields of a message by number: numbers as `int`, everything else as bytes."""
    found: _Fields = []
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(raw, at)
            found.append((number, value))
            continue
        size = {1: 8, 5: 4}.get(wire)
        if size is None:
            if wire != 2:
                raise ValueError(f"not a checked expression: wire type {wire}")
            size, at = _varint(raw, at)
        if at + size > len(raw):
            raise ValueError("not a checked expression: it ends too early")
        found.append((number, raw[at : at + size]))
        at += size
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _one(fields: _Fields, number: int, default: Any = None) -> Any:
    found = [value for each, value in fields if each == number]
    if not found and default is None:
        raise KeyError(f"there is no field {number}")
    return found[-1] if found else default


def _text(raw: bytes) -> str:
    return raw.decode()


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_CONSTANTS: Final[Mapping[int, Callable[[Any], Any]]] = {
    1: lambda _: None,
    2: bool,
    3: _to_signed,
    4: int,
    5: lambda raw: struct.unpack("<d", raw)[0],
    6: _text,
    7: bytes,
}
