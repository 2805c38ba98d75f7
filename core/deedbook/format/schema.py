"""JSON Schema at every boundary: the kernel's own by id, and those from outside.

The kernel's own documents are frozen, keep to the subset that fastjsonschema implements exactly (a test proves it) and
are compiled by it when first asked for. A schema from a workspace, a plugin or a server is foreign text: it passes
the lint and is interpreted by jsonschema-rs, so that it never becomes code. Validation never changes a value, and any
exception inside a validator is a violation.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import attrs

from deedbook.contract import Object
from deedbook.contract.pointers import MEMBER_POINTER, POINTER

from . import canonical
from .errors import IntakeError, SchemaError, SourceError, fault
from .lint import Violation, pattern_options, problems, suggest, violation

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["MAX_BYTES", "Schemas", "Validator", "Violation", "data_folder", "foreign", "lint", "suggest"]

MAX_BYTES: Final = 64 * 1024
MAX_UNFOLDED: Final = 20_000
MAX_VIOLATIONS: Final = 50
_MOST_LOOKS: Final = 2_000
_MOST_BYTES: Final = 64 * 1024 * 1024
_MASK: Final = "the value"
_LONGEST: Final = 400
_PHRASES: Final = MappingProxyType(
    {
        "anyOf": "fits none of the alternatives",
        "oneOf": "fits none of the alternatives",
        "not": "fits what is excluded",
        "contains": "has not the items that it must contain",
        "falseSchema": "nothing is allowed here",
    }
)
_PATTERNS: Final = MappingProxyType(
    {
        MEMBER_POINTER: "is no JSON pointer, which begins with a slash: /name, or /outer/inner",
        POINTER: "is no JSON pointer, which is empty or begins with a slash: /name, or /outer/inner",
    }
)
"""Texts for patterns of the kernel's own schemas."""
_HINTS: Final = MappingProxyType({"schema_version": "; write schema_version: v1"})
"""What to write for a missing key."""
_TYPE_NAMES: Final = MappingProxyType({bool: "boolean", str: "string", list: "array", dict: "object"})


class Validator(Protocol):
    """A compiled schema.

    A value has passed the intake (`canonical.admit`) before: deeper, larger, shared or circular values could crash a
    library and its process.
    """

    def valid(self, value: Any) -> bool:
        """Return whether *value* is valid; the hot path."""
        ...

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Return at most 50 violations of *value*; empty if it is valid. No message quotes a value."""
        ...


def lint(schema: Any) -> tuple[Violation, ...]:
    """Return the faults of *schema*, which may be any value; without faults `foreign` accepts it."""
    try:
        encoded = canonical.encode(schema)
    except IntakeError as refused:
        return (violation((), f"is not JSON: {refused}"),)
    if len(encoded) > MAX_BYTES:
        return (violation((), f"{len(encoded)} bytes; a schema has at most {MAX_BYTES}"),)
    return _faults(encoded)


@lru_cache(maxsize=256)
def _faults(encoded: bytes) -> tuple[Violation, ...]:
    """Lint a schema once: a process meets that of a plugin or an ability at each place that names it."""
    from .schema_cost import SchemaCost

    schema = canonical.decode(encoded)
    if found := tuple(problems(schema)):
        return found
    cost = SchemaCost(schema)
    if cost.circular():
        return (violation((), "a reference leads back to itself without going into the value"),)
    if cost.unfolded_size() <= MAX_UNFOLDED:
        return ()
    return (violation((), f"its definitions, each use counted, are more than {MAX_UNFOLDED} schemas; use fewer"),)


def foreign(schema: Any, *, place: str) -> Validator:
    """Compile a schema from outside: `lint`, then jsonschema-rs with draft 2020-12, formats asserted, nothing fetched.

    *place* is the schema's position, for messages. Raises `SchemaError` (``SCHEMA_REFUSED``) with every fault.
    """
    found = lint(schema)
    if not found:
        try:
            own = canonical.decode(canonical.encode(schema))
            return _Interpreted(_interpret(own), own)
        except Exception as problem:  # noqa: BLE001 - any error of the library refuses the schema
            found = (violation((), str(problem).split("\n", 1)[0][:_LONGEST]),)
    raise SchemaError(*(fault("SCHEMA_REFUSED", str(each), place=place) for each in found))


class Schemas:
    """The kernel's own schemas by id, compiled at their first use."""

    def __init__(self, documents: Mapping[str, Object]) -> None:
        self._documents = dict(documents)
        self._compiled: dict[str, Validator] = {}
        self._interpreted: dict[str, Validator] = {}

    @classmethod
    @cache
    def load(cls, folder: Path) -> "Schemas":
        """Return every ``<id>.json`` in *folder*, read once in a process: released schemas do not change."""
        return cls({path.stem: json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))})

    def ids(self) -> tuple[str, ...]:
        """Return every id, sorted."""
        return tuple(sorted(self._documents))

    def document(self, schema_id: str) -> Object:
        """Return the schema itself, which must not be changed. Raises `SchemaError` (``SCHEMA_UNKNOWN``)."""
        try:
            return self._documents[schema_id]
        except KeyError:
            hint = suggest(schema_id, self._documents)
            raise SchemaError(fault("SCHEMA_UNKNOWN", f'no schema has the id "{schema_id}"{hint}')) from None

    def validator(self, schema_id: str) -> Validator:
        """Return the compiled schema. Raises `SchemaError` (``SCHEMA_UNKNOWN``)."""
        found = self._compiled.get(schema_id)
        if found is None:
            found = self._compiled.setdefault(schema_id, _Compiled(self.document(schema_id)))
        return found

    def interpreted(self, schema_id: str) -> Validator:
        """Return an interpreted `validator`: twenty times quicker to create, and slower to use."""
        found = self._interpreted.get(schema_id)
        if found is None:
            found = self._interpreted.setdefault(schema_id, foreign(self.document(schema_id), place=schema_id))
        return found


def data_folder(name: str) -> Path:
    """Return the folder of the kernel's own data, ``schemas`` or ``known``, beside the package or in the checkout."""
    package = Path(__file__).parents[1]
    checkout = package.parent.parent
    for folder in (package / "data" / name, checkout / name):
        if folder.is_dir():
            return folder
    why = f'the data folder "{name}" is missing; reinstall deedbook'
    raise SourceError(fault("SOURCE_INVALID", why, place=str(package)))


# --- validators -------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Interpreted:
    """A foreign schema, interpreted by jsonschema-rs."""

    _check: "jsonschema_rs.Draft202012Validator"
    _schema: Any

    def valid(self, value: Any) -> bool:
        try:
            return self._check.is_valid(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a panic in the library is no Exception and counts as a violation
            return False

    def violations(self, value: Any) -> tuple[Violation, ...]:
        try:
            size = len(canonical.encode(value))
            if self._check.is_valid(value):
                return ()
            if not self._can_say(value, size):
                return (violation((), "does not fit its schema; the value is too large or too deep to say where"),)
            found = (each for error in self._check.iter_errors(value) for each in _explain(error, self._schema))
            return tuple(islice(found, MAX_VIOLATIONS))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - as above
            why = str(problem) if isinstance(problem, IntakeError) else type(problem).__name__
            return (violation((), f"cannot be validated: {why}"),)

    def _can_say(self, value: Any, size: int) -> bool:
        """Return whether all errors can be listed: each alternative that fails keeps a copy of the value."""
        from .schema_cost import SchemaCost

        cost = SchemaCost(self._schema)
        within = cost.depth_within(_MOST_LOOKS)
        return _depth(value) <= within and (not cost.alternatives or size * cost.unfolded_size() <= _MOST_BYTES)


def _depth(value: Any) -> int:
    depth = -1
    level: list[Any] = [[value]]
    while level:
        depth += 1
        inner = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
        level = [item for item in inner if isinstance(item, dict | list)]
    return depth


class _Compiled:
    """One of the kernel's own schemas: fastjsonschema decides, jsonschema-rs describes violations."""

    def __init__(self, document: Object) -> None:
        import fastjsonschema

        self._document = dict(document)
        # the library rewrites $ref in its argument, and fills in defaults unless that is disabled
        self._run = fastjsonschema.compile(copy.deepcopy(self._document), handlers=_Nowhere(), use_default=False)
        self._words: _Interpreted | None = None

    def valid(self, value: Any) -> bool:
        try:
            self._run(value)
        except Exception:  # noqa: BLE001 - any exception counts as a violation
            return False
        return True

    def violations(self, value: Any) -> tuple[Violation, ...]:
        if self.valid(value):
            return ()
        if self._words is None:
            self._words = _Interpreted(_interpret(self._document), self._document)
        return self._words.violations(value) or (Violation("$", "does not fit its schema"),)


class _Nowhere(dict[str, Any]):
    """Handlers for every scheme, which fetch nothing."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __getitem__(self, scheme: str) -> Any:
        return _no_retrieval


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"{uri} leads out of the document")


def _interpret(schema: Any) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    # without $id, which could name one of the library's own documents, # means this one
    local = {key: value for key, value in schema.items() if key != "$id"} if isinstance(schema, dict) else schema
    return jsonschema_rs.Draft202012Validator(
        local,
        validate_formats=True,
        ignore_unknown_formats=False,
        retriever=_no_retrieval,
        pattern_options=pattern_options(),
        mask=_MASK,
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _explain(error: "jsonschema_rs.ValidationError", schema: Any) -> Iterator[Violation]:
    """Yield the violations as texts that state what was expected and never repeat the value."""
    where, kind = error.instance_path, error.kind
    fields = kind.as_dict()
    match kind.name:
        case "additionalProperties" | "unevaluatedProperties":
            known = _beside(schema, error.schema_path).get("properties", {})
            for key in fields["unexpected"]:
                yield violation([*where, key], f"unknown key{suggest(key, known)}")
        case "anyOf" | "oneOf" if branch := _closest_errors(fields.get("context", ()), where):
            for inner in branch:
                yield from _explain(inner, schema)
        case _:
            yield violation(where, _words(error, schema)[:_LONGEST])


def _words(error: "jsonschema_rs.ValidationError", schema: Any) -> str:
    name, fields = error.kind.name, error.kind.as_dict()
    if name in ("pattern", "not", "propertyNames") and (title := _beside(schema, error.schema_path).get("title")):
        return f"expected {title}"
    if name == "required":
        missing = fields["property"]
        return f'the key "{missing}" is missing{_HINTS.get(missing, "")}'
    if name == "type":
        return f"expected {' or '.join(fields['types'])}, found {_type_name(error.instance)}"
    if name == "enum":
        return error.message.removeprefix(f"{_MASK} ") + _nearest_option(error.instance, fields["options"])
    if name == "oneOf" and "more than one" in error.message:
        return "fits more than one of the alternatives"
    message = error.message.removeprefix(f"{_MASK} ")
    for pattern, meaning in _PATTERNS.items():
        if message.endswith(f'does not match "{pattern}"'):
            return message.removesuffix(f'does not match "{pattern}"') + meaning
    return _PHRASES.get(name) or message


def _nearest_option(value: Any, options: list[Any]) -> str:
    return suggest(value, [option for option in options if isinstance(option, str)]) if isinstance(value, str) else ""


def _closest_errors(branches: Sequence[Sequence[Any]], where: list[str | int]) -> Sequence[Any]:
    """Return the errors of the only alternative that the value is close to: its type and its constants match."""
    near = [branch for branch in branches if not any(_is_foreign_to(error, where) for error in branch)]
    return near[0] if len(near) == 1 else ()


def _is_foreign_to(error: "jsonschema_rs.ValidationError", where: list[str | int]) -> bool:
    below = len(error.instance_path) - len(where)
    return (below == 0 and error.kind.name == "type") or (below <= 1 and error.kind.name in ("const", "enum"))


def _type_name(value: Any) -> str:
    return "null" if value is None else _TYPE_NAMES.get(type(value), "number")


def _beside(schema: Any, path: list[str | int]) -> dict[str, Any]:
    """Return the schema that contains the keyword at *path*."""
    for step in path[:-1]:
        schema = schema[step]
    return schema if isinstance(schema, dict) else {}
