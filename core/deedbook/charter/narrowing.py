"""Check whether a schema in YAML narrows the plugin's schema or widens it.

Both schemas are checked at every call, so what YAML leaves out stays as the plugin has it; what YAML states must not
allow more than the plugin does. Each widening is proved by a witness: a value that the schema in YAML accepts and the
plugin's refuses. What cannot be proved is accepted, and decided at the call.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract.pointers import escape
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError
from deedbook.format.lint import suggest
from deedbook.format.schema import foreign

from .instances import TYPES, instances, merge_schemas, unfold

Embed: TypeAlias = Callable[[Any], Iterable[Any]]
"""Maps a value of a part to whole values that contain it, which the plugin would accept with another value."""

_LEVELS: Final = 8
_SHOWN: Final = 120
_LOWER: Final = ("minimum", "exclusiveMinimum")
_UPPER: Final = ("maximum", "exclusiveMaximum")
_LEAST: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = ("maxLength", "maxItems", "maxProperties")
_COMPARED: Final = (*_LOWER, *_UPPER, *_LEAST, *_MOST, "pattern", "format", "multipleOf", "uniqueItems")


@attrs.frozen
class Widening:
    """One thing that YAML allows and the plugin does not: its JSON *pointer* in YAML's schema, and a *witness*."""

    pointer: str
    message: str
    witness: Any


def widenings(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> list[Widening]:
    """Return where *narrow* (from YAML) allows what *wide* (the plugin's) refuses; each place once."""
    try:
        walk = _Comparison(foreign(narrow, place="narrow").valid, foreign(wide, place="wide").valid)
    except DeedbookError:
        return []  # each schema is refused at its own place
    found = {each.pointer: each for each in walk.compare(unfold(narrow), unfold(wide), "", lambda value: [value])}
    return list(found.values())


class _Comparison:
    """One comparison; *mine* and *theirs* validate a whole value by YAML's schema and by the plugin's."""

    def __init__(self, mine: Callable[[Any], bool], theirs: Callable[[Any], bool]) -> None:
        self.mine = mine
        self.theirs = theirs

    def compare(self, narrow: Any, wide: Any, at: str, embed: Embed, level: int = 0) -> Iterator[Widening]:
        """Compare the parts of both schemas that describe the same place of a value."""
        if not isinstance(narrow, dict) or wide is True or level > _LEVELS:
            return
        if wide is False:
            yield from self._prove(instances(narrow), at, "the plugin allows nothing here", embed)
            return
        for part in wide.get("allOf", ()):
            yield from self.compare(narrow, part, at, embed, level + 1)
        for word in ("allOf", "anyOf", "oneOf"):
            for index, branch in enumerate(narrow.get(word, ())):
                yield from self.compare(branch, wide, f"{at}/{word}/{index}", embed, level + 1)
        yield from self._values(narrow, wide, at, embed)
        yield from self._bounds(narrow, wide, at, embed)
        yield from self._members(narrow, wide, at, embed, level)
        yield from self._elements(narrow, wide, at, embed, level)

    def _prove(self, values: Iterable[Any], at: str, why: str, embed: Embed) -> Iterator[Widening]:
        """Yield a widening, if one of *values* proves it."""
        for value in values:
            for whole in embed(value):
                if self.mine(whole) and not self.theirs(whole):
                    yield Widening(at, f"{why}; {_json_text(value)} would fit here", whole)
                    return

    # --- one value ----------------------------------------------------------------------------------------------------

    def _values(self, narrow: Any, wide: Any, at: str, embed: Embed) -> Iterator[Widening]:
        allowed = _types(wide)
        names = " or ".join(allowed) or "nothing"
        for word in ("const", "enum"):
            if word in narrow:
                members = [narrow[word]] if word == "const" else narrow[word]
                why = f"the plugin allows {_options(wide) or names}"
                yield from self._prove(members, f"{at}/{word}", why, embed)
        if "type" not in narrow or "const" in narrow or "enum" in narrow:
            return
        kinds = narrow["type"]
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if kind not in allowed and not (kind == "integer" and "number" in allowed):
                values = instances({**merge_schemas(_without_type(wide), narrow), "type": kind})
                yield from self._prove(values, f"{at}/type", f"the plugin allows {names}", embed)

    def _bounds(self, narrow: Any, wide: Any, at: str, embed: Embed) -> Iterator[Widening]:
        """Compare keyword by keyword: drop the plugin's bound that YAML loosens, and look for a value."""
        for word in narrow:
            family = next((each for each in (_LOWER, _UPPER) if word in each), (word,))
            theirs = {each: wide[each] for each in family if each in wide}
            if not theirs or word not in _COMPARED or wide.get(word) == narrow[word]:
                continue
            if word in (*_LOWER, *_LEAST) and all(narrow[word] > bound for bound in theirs.values()):
                continue
            if word in (*_UPPER, *_MOST) and all(narrow[word] < bound for bound in theirs.values()):
                continue
            rest = {key: value for key, value in wide.items() if key not in family}
            limits = ", ".join(f"{name}: {_json_text(value)}" for name, value in theirs.items())
            values = _around(merge_schemas(rest, narrow), theirs)
            yield from self._prove(values, f"{at}/{word}", f"the plugin says {limits}", embed)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _members(self, narrow: Any, wide: Any, at: str, embed: Embed, level: int) -> Iterator[Widening]:
        inside, theirs = narrow.get("properties", {}), wide.get("properties", {})
        extra = wide.get("additionalProperties", True)
        patterns = "patternProperties" in wide
        for name, part in inside.items():
            place = f"{at}/properties/{escape(name)}"
            within = self._within(narrow, wide, embed, name)
            if name in theirs:
                yield from self.compare(part, theirs[name], place, within, level + 1)
            elif not patterns and extra is False:
                why = f"the plugin takes no {name!r}{suggest(name, theirs)}; it takes {', '.join(theirs) or 'nothing'}"
                yield from self._prove(instances(part), place, why, within)
            elif not patterns:
                yield from self.compare(part, extra, place, within, level + 1)
        if "required" in narrow:
            for name in wide.get("required", ()):
                if name not in narrow["required"]:
                    bases = (self._without(base, name) for base in self._bases(narrow, wide, embed))
                    why = f"the plugin requires {name!r}; add it, or leave required out"
                    yield from self._prove(bases, f"{at}/required", why, embed)
        mine = narrow.get("additionalProperties", False)
        if mine is not False and extra is not True:
            name = next(name for name in ("other", "other-1", "other-2") if name not in {**inside, **theirs})
            within = self._within(narrow, wide, embed, name)
            if extra is False:
                why = f"the plugin takes nothing but {', '.join(theirs) or 'nothing'}"
                values: Iterable[Any] = instances(mine)
                yield from self._prove(values, f"{at}/additionalProperties", why, within)
            else:
                yield from self.compare(mine, extra, f"{at}/additionalProperties", within, level + 1)

    def _bases(self, narrow: Any, wide: Any, embed: Embed) -> Iterator[dict[str, Any]]:
        """Yield objects that the plugin accepts here: those that fit both schemas first, then its own."""
        both = merge_schemas(wide, narrow)
        needed = dict.fromkeys([*wide.get("required", ()), *narrow.get("required", ())])
        both |= {"required": list(needed)} if needed else {}
        for schema in (both, wide):
            for value in instances(schema):
                if isinstance(value, dict) and any(self.theirs(whole) for whole in embed(value)):
                    yield value

    def _within(self, narrow: Any, wide: Any, embed: Embed, name: str) -> Embed:
        def within(value: Any) -> Iterator[Any]:
            for base in self._bases(narrow, wide, embed):
                yield from embed({**base, name: value})

        return within

    @staticmethod
    def _without(base: dict[str, Any], name: str) -> dict[str, Any]:
        return {key: value for key, value in base.items() if key != name}

    # --- arrays -------------------------------------------------------------------------------------------------------

    def _elements(self, narrow: Any, wide: Any, at: str, embed: Embed, level: int) -> Iterator[Widening]:
        if "prefixItems" in narrow or "prefixItems" in wide or "items" not in narrow or "items" not in wide:
            return

        def within(value: Any) -> Iterator[Any]:
            least = max(int(wide.get("minItems", 0)), int(narrow.get("minItems", 0)), 1)
            for base in ([], *instances({**wide, "type": "array"})):
                rest = [item for item in base if item != value][: least - 1]
                if len(rest) == least - 1:
                    yield from embed([value, *rest])

        yield from self.compare(narrow["items"], wide["items"], f"{at}/items", within, level + 1)


def _around(schema: dict[str, Any], bounds: Mapping[str, Any]) -> Iterator[Any]:
    """Yield instances of *schema*, then values just outside the plugin's own bounds."""
    yield from instances(schema)
    for word, bound in bounds.items():
        closer = {
            "minimum": {"maximum": bound},
            "exclusiveMinimum": {"maximum": bound},
            "maximum": {"minimum": bound},
            "exclusiveMaximum": {"minimum": bound},
        }.get(word)
        if closer is None and word in (*_LEAST, *_MOST):
            closer = (
                {word.replace("max", "min"): bound + 1} if word in _MOST else {word.replace("min", "max"): bound - 1}
            )
        if closer is not None:
            yield from instances({**schema, **closer})


def _types(schema: Any) -> tuple[str, ...]:
    """Return the types that a schema can accept, as far as it states them; ``integer`` is part of ``number``."""
    if not isinstance(schema, dict):
        return () if schema is False else TYPES
    kinds = schema.get("type")
    own = TYPES if kinds is None else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        own = tuple(kind for kind in own if any(_is(value, kind) for value in values))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            branches = {kind for branch in schema[word] for kind in _types(branch)}
            own = tuple(kind for kind in own if kind in branches or (kind == "integer" and "number" in branches))
    return own


def _is(value: Any, kind: str) -> bool:
    names = {bool: ("boolean",), str: ("string",), int: ("integer", "number"), float: ("number",)}
    names |= {list: ("array",), dict: ("object",), type(None): ("null",)}
    return kind in names[type(value)]


def _without_type(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its type keywords; the rest does not restrict values of other types."""
    gone = ("type", "const", "enum", "anyOf", "oneOf")
    return {key: value for key, value in schema.items() if key not in gone}


def _options(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return _json_text(schema["const"])
    return " or ".join(map(_json_text, schema.get("enum", ())))[:_SHOWN]


def _json_text(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
