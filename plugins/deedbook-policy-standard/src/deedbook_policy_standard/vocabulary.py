"""What a condition in CEL may see, by JSON Schema: misspelt names are found when the workspace is compiled.

A `View` is the schemas that a value may fit, each with the document that its references lead through; ``None`` where
that is unknown. A member is missing if no schema of the view has room for it: a schema that lists ``properties`` has
room for these, and for others where ``additionalProperties`` or ``patternProperties`` say so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import jsonschema_rs

from deedbook.contract import MODES, Object
from deedbook.contract.facts import FACTS
from deedbook.contract.pointers import follow_reference, unescape
from deedbook.format.lint import pattern_options, suggest
from deedbook.policy.kinds import KINDS
from deedbook.policy.match import EFFECTS

from .cost import added_element, is_loop
from .expressions import Expression, Flaw, nest_facts
from .syntax import Node, place_of_member

Part: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
View: TypeAlias = tuple[Part, ...] | None

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
TEXT_OR_NULL: Final[Object] = {"type": ["string", "null"]}
"""The JSON Schema of ``role`` and ``skill``."""
_MOMENT: Final = {"type": "string"}

_CALL: Final = {
    "type": "object",
    "properties": {"ability": _TEXT, "kind": {"type": "string", "enum": list(KINDS)},
                   "effects": {"type": "string", "enum": list(EFFECTS)}, "tags": _TEXTS, "scopes": _TEXTS,
                   "session": _TEXT, "now": _MOMENT, "mode": {"type": "string", "enum": list(MODES)}},
}  # fmt: skip
PRINCIPAL: Final[Object] = {
    "type": "object",
    "properties": {"id": _TEXT, "via": _TEXT, "roles": _TEXTS, "on_behalf_of": TEXT_OR_NULL},
}
"""The JSON Schema of ``principal``."""

_TOGETHER: Final = "$together"  # no keyword of JSON Schema: documents that all apply, each with its own references
_EQUAL: Final = frozenset({"_==_", "_!=_"})
_ORDERED: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_SAME_ITEMS: Final = frozenset({"slice", "reverse", "distinct", "sort", "@sortByAssociatedKeys"})
_RESULTS: Final = {
    "size": "integer", "indexOf": "integer", "lastIndexOf": "integer", "join": "string", "lowerAscii": "string",
    "upperAscii": "string", "trim": "string", "replace": "string", "inCidr": "boolean", "sets.contains": "boolean",
    "sets.equivalent": "boolean", "sets.intersects": "boolean", "_&&_": "boolean", "_||_": "boolean", "!_": "boolean",
}  # fmt: skip
_OF_TEXT: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})


def flaws(expression: Expression, args: Iterable[Sequence[Object]], reads: Iterable[str]) -> Iterator[Flaw]:
    """Yield what is misspelt in *expression*, or could never be true.

    *args* has, for every ability that it can be asked about, the JSON Schemas that its arguments fit, all of them (no
    ability: it is unknown); *reads* names the facts that it may look at.
    """
    views: dict[str, View] = {
        "args": tuple(({_TOGETHER: list(schemas)}, {}) for schemas in args) or None,
        "call": _view(_CALL),
        "principal": _view(PRINCIPAL),
        "role": _view(TEXT_OR_NULL),
        "skill": _view(TEXT_OR_NULL),
        "facts": _view(facts_schema(reads)),
    }
    return _find_flaws(expression, views)


def signal_flaws(expression: Expression, variables: Mapping[str, Object]) -> Iterator[Flaw]:
    """Yield what is misspelt in *expression*, or could never be true; each of *variables* fits its JSON Schema."""
    return _find_flaws(expression, {name: _view(schema) for name, schema in variables.items()})


def facts_schema(names: Iterable[str]) -> Object:
    """Return the JSON Schema of the variable ``facts``, if it holds the facts of these *names*."""
    return {"type": "object", "properties": _as_schemas(nest_facts({name: FACTS.get(name, {}) for name in names}))}


def _find_flaws(expression: Expression, views: Mapping[str, View]) -> Iterator[Flaw]:
    found: list[Flaw] = []
    view = _Reader(expression.text, found).read(expression.tree, views)
    yield from found
    kinds = _types(view)
    if not expression.certain and kinds is not None and "boolean" not in kinds:
        yield Flaw(f"is {_describe_kinds(kinds)}; a condition is true or false", 0)


def unknown_argument(pointer: str, args: Sequence[Sequence[Object]]) -> str | None:
    """Return why no call has an argument at *pointer*, the JSON pointer of a match; ``None`` where one may.

    *args* has for every ability the JSON Schemas that its arguments fit, all of them, as for `flaws`. An ability cannot
    have the argument if one of its schemas closes its properties, and the first step of *pointer* is none of them.
    """
    name = unescape(pointer[1:].partition("/")[0])
    if not args or not all(any(_refuses(each, name, each, ()) for each in schemas) for schemas in args):
        return None
    known = {key for schemas in args for each in schemas for part, _ in _pieces(each, each)
             for key in part.get("properties", {})}  # fmt: skip
    return _describe_missing("args", name, sorted(known))


def _refuses(schema: Any, name: str, root: Any, seen: tuple[int, ...]) -> bool:
    """Return whether no object with the member *name* fits *schema*, as far as that can be told without trying."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return schema is False
    listed = name in schema.get("properties", {}) or any(
        _fits(text, name) for text in schema.get("patternProperties", ())
    )
    if schema.get("additionalProperties") is False and not listed:
        return True
    inner = (*seen, id(schema))
    both = [*schema.get("allOf", ()), follow_reference(root, schema.get("$ref"))]
    if any(_refuses(part, name, root, inner) for part in both):
        return True
    options = (schema[key] for key in ("anyOf", "oneOf") if schema.get(key))
    return any(all(_refuses(part, name, root, inner) for part in each) for each in options)


def _as_schemas(groups: Object) -> dict[str, Any]:
    return {name: {"type": "object", "properties": facts} for name, facts in groups.items()}


def _view(schema: Object) -> View:
    return ((schema, schema),)


class _Reader:
    """Reads one syntax tree against what its variables may hold; collects flaws."""

    def __init__(self, text: str, found: list[Flaw]) -> None:
        self._text = text
        self._flaws = found

    def read(self, node: Node, views: Mapping[str, View]) -> View:
        """Return what *node* may be, where the variables are *views*."""
        if node.kind == "name":
            return views.get(node.name)
        if node.kind == "member":
            return self._member(node, node.name, self.read(node.parts[0], views), place_of_member(self._text, node))
        if node.kind == "fold":
            return self._fold(node, views)
        parts = [self.read(part, views) for part in node.parts]
        if node.kind == "call":
            return self._call(node, parts)
        return _view({"const": node.value}) if node.kind == "constant" else None

    def _member(self, node: Node, name: str, view: View, at: int) -> View:
        parts, known = _members(view, name)
        if known is None or parts is None or parts:
            return parts
        path = _path(node.parts[0])
        kinds = _types(view)
        if kinds is not None and "object" not in kinds:
            self._flaws.append(Flaw(f"{path} is {_describe_kinds(kinds)}, which has no {name}", at))
        else:
            self._flaws.append(Flaw(_describe_missing(path, name, sorted(known)), at))
        return None

    def _call(self, node: Node, parts: list[View]) -> View:
        if node.name == "_[_]":
            return self._index(node, parts[0])
        if node.name in _EQUAL | _ORDERED:
            self._comparison(node, parts)
        elif node.name == "@in":
            self._choice(node, parts[0])
        elif node.name in _OF_TEXT and parts and not _overlaps(parts[0], {"string"}):
            target = node.parts[0]
            at = place_of_member(self._text, target) if target.kind == "member" else target.at
            why = f"{_path(target)} is {_describe_kinds(_types(parts[0]))}, which has no {node.name}"
            self._flaws.append(Flaw(why, at))
        if node.name == "_?_:_":
            return None if None in parts[1:] else (*(parts[1] or ()), *(parts[2] or ()))
        if node.name in _SAME_ITEMS and parts and _types(parts[0]) == {"array"}:
            return parts[0]
        kind = _RESULTS.get(node.name)
        return _view({"type": kind}) if kind else None

    def _index(self, node: Node, view: View) -> View:
        key = node.parts[1]
        if key.kind != "constant":
            return _items(view)
        if isinstance(key.value, str):
            return self._member(node, key.value, view, key.at)
        return _items(view)

    def _comparison(self, node: Node, parts: list[View]) -> None:
        one, other = _types(parts[0]), _types(parts[1])
        if one is None or other is None or "null" in one | other:
            return
        if not _overlaps(parts[0], other):
            never = "never equal" if node.name in _EQUAL else "not in any order"
            self._flaws.append(Flaw(f"{_describe_kinds(one)} and {_describe_kinds(other)} are {never}", node.at))
        elif node.name in _EQUAL:
            for mine, its in ((0, 1), (1, 0)):
                self._value(node.parts[its], parts[mine], _path(node.parts[mine]))

    def _choice(self, node: Node, view: View) -> None:
        """Check the constants of ``x in [...]`` against what ``x`` may be."""
        if node.parts[1].kind == "list":
            for part in node.parts[1].parts:
                self._value(part, view, _path(node.parts[0]))

    def _value(self, node: Node, view: View, path: str) -> None:
        """Find a constant that is none of the values that *view*, the value at *path*, may have."""
        if node.kind != "constant" or node.value is None or view is None:
            return
        known = [schema.get("enum") for part in view for schema, _ in _pieces(*part)]
        values = [each for enum in known for each in enum or ()]
        if values and None not in known and node.value not in values:
            hint = suggest(node.value, map(str, values)) if isinstance(node.value, str) else ""
            self._flaws.append(Flaw(f"{path} is never {node.value!r:.80}{hint}", node.at))

    def _fold(self, node: Node, views: Mapping[str, View]) -> View:
        collected = node.names[-1]
        over, start, condition, step, result = node.parts
        whole = self.read(over, views)
        first = self.read(start, views)
        inside = {**views, **self._variables(node, whole), collected: first}
        self.read(condition, inside)
        element = added_element(step, collected)
        if element is None:
            self.read(step, inside)
            return self.read(result, {**inside, collected: first if not is_loop(node) else None})
        for part in step.parts[:1] if step.name == "_?_:_" else ():
            self.read(part, inside)
        each = self.read(element, inside)
        return None if each is None else tuple(({"type": "array", "items": schema}, root) for schema, root in each)

    @staticmethod
    def _variables(node: Node, over: View) -> dict[str, View]:
        """Return what the variables of a comprehension hold: one is an item or a key, two are key and value."""
        kinds = _types(over)
        keys = {"array": "integer", "object": "string"}
        key = _view({"type": keys[kind]}) if kinds and len(kinds) == 1 and (kind := min(kinds)) in keys else None
        if len(node.names) > 2:
            return {node.names[0]: key, node.names[1]: _items(over)}
        return {node.name: _items(over) if kinds == {"array"} else key}


# --- what a schema has room for ---------------------------------------------------------------------------------------


def _pieces(schema: Any, root: Mapping[str, Any], seen: set[int] | None = None) -> Iterator[Part]:
    """Yield the plain schemas that together make *schema*: what it refers to, and its alternatives, each once."""
    seen = set() if seen is None else seen
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    if _TOGETHER in schema:
        for each in schema[_TOGETHER]:
            yield from _pieces(each, each, seen)
        return
    inner = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    inner += [schema[key] for key in ("then", "else") if key in schema]
    target = follow_reference(root, schema.get("$ref"))
    if target is not None:
        inner.append(target)
    if schema.keys() - {"allOf", "anyOf", "oneOf", "$ref", "$defs"} or not inner:
        yield schema, root
    for part in inner:
        yield from _pieces(part, root, seen)


def _members(view: View, name: str) -> tuple[View, set[str] | None]:
    """Return what the member *name* may be (nothing: it is missing), and the names that are known, if all are."""
    if view is None:
        return None, None
    found: list[Part] = []
    known: set[str] = set()
    for schema, root in view:
        parts, names = _members_of(schema, root, name)
        if names is None:
            return None, None
        found += parts
        known |= names
    return tuple(found), known


def _members_of(schema: Any, root: Mapping[str, Any], name: str) -> tuple[list[Part], set[str] | None]:
    pieces = list(_pieces(schema, root))
    found: list[tuple[Any, Mapping[str, Any]]] = []
    known: set[str] = set()
    lists = False
    for piece, own in pieces:
        properties = piece.get("properties", {})
        known |= properties.keys()
        lists = lists or any(key in piece for key in ("properties", "additionalProperties"))
        found += [(properties[name], own)] if name in properties else []
        found += [(part, own) for text, part in piece.get("patternProperties", {}).items() if _fits(text, name)]
    if not found:
        found = [(piece["additionalProperties"], own) for piece, own in pieces if piece.get("additionalProperties")]
    if any(not isinstance(part, Mapping) for part, _ in found):
        return [], None
    kinds = _types(((schema, root),))
    if not found and not lists and (kinds is None or "object" in kinds):
        return [], None
    return found, known


def _fits(pattern: str, name: str) -> bool:
    # the engine of all patterns: linear, since their authors are not trusted
    return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=pattern_options()).is_valid(name)


def _items(view: View) -> View:
    """Return what the items of a list, or the values of an object, may be."""
    if view is None:
        return None
    pieces = [piece for part in view for piece in _pieces(*part)]
    found = [(piece[key], root) for piece, root in pieces for key in ("items", "additionalProperties") if key in piece]
    sure = found and all(isinstance(schema, Mapping) for schema, _ in found)
    return tuple(found) if sure and not any("prefixItems" in piece for piece, _ in pieces) else None


def _types(view: View) -> set[str] | None:
    """Return the JSON types that a value may have; numbers are one type."""
    if not view:
        return None
    made: set[str] = set()
    for schema, root in view:
        kinds = _types_of(schema, root, set())
        if kinds is None:
            return None
        made |= kinds
    return {"number" if kind == "integer" else kind for kind in made}


def _types_of(schema: Any, root: Mapping[str, Any], seen: set[int]) -> set[str] | None:
    """Return the types that *schema* allows; what was *seen* on the way, as in a circle, allows any type."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return None
    seen.add(id(schema))
    if _TOGETHER in schema:
        return {"object"}
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    if "const" in schema or "enum" in schema:
        return {_type_name(value) for value in schema.get("enum", [schema.get("const")])}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = [_types_of(part, root, seen) for part in schema[key]]
            return None if None in options else set().union(*(kinds for kinds in options if kinds))
    both = [*schema.get("allOf", ()), follow_reference(root, schema.get("$ref"))]
    return next((kinds for part in both if (kinds := _types_of(part, root, seen))), None)


def _type_name(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object", bytes: "bytes"}
    return names.get(type(value), "number")


def _overlaps(view: View, kinds: set[str]) -> bool:
    own = _types(view)
    return own is None or not own.isdisjoint(kinds)


# --- in words ---------------------------------------------------------------------------------------------------------


def _path(node: Node) -> str:
    """Return a node as it is written, as far as it is a path."""
    if node.kind == "name":
        return node.name
    if node.kind == "member":
        return f"{_path(node.parts[0])}.{node.name}"
    return f"{_path(node.parts[0])}[…]" if node.kind == "call" and node.name == "_[_]" else "this"


def _describe_missing(path: str, name: str, known: list[str]) -> str:
    names = f"{suggest(name, known)}; known: {', '.join(known) or 'none'}"
    if path == "args":
        return f"no ability that this rule can be about has the argument {name}{names}"
    if path.partition(".")[0] == "facts":
        return f"{path} has no {name}{names}; facts are declared with reads: […]"
    return f"{path} has no {name}{names}"


def _describe_kinds(kinds: set[str] | None) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aeio' else 'a'} {kind}" for kind in sorted(kinds or ()))
