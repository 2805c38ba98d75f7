"""Conditions on single values: equality, globs, paths below folders, ranges; and lookups in arguments.

Text in a call may be long and hostile, so every test is linear in it. Paths are judged lexically, as POSIX text: no
condition on a path holds for a path that is absolute, leaves the root, or is ambiguous. Programs read some paths and
URLs otherwise than they are written (`deedbook.contract.urls`): a condition that allows needs all of their readings,
any other needs one.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from deedbook.contract.pointers import get_member, unescape
from deedbook.contract.urls import readings, resolve_dots

if TYPE_CHECKING:
    import jsonschema_rs


ValueTest: TypeAlias = Callable[[Any], bool]
Lookup: TypeAlias = Callable[[Mapping[str, Any]], Any]

SCALAR: Final = ["null", "boolean", "number", "string"]


def one_or_more(description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of a string or a non-empty list of strings."""
    one = {"type": "string", "minLength": 1}
    schema = {"description": description, "type": ["string", "array"], "minLength": 1, "minItems": 1, "items": one}
    return {**schema, **more}


CONDITION: Final[dict[str, Any]] = {
    "description": "A value that the argument equals, a list of such values, or conditions that must all hold",
    "type": [*SCALAR, "array", "object"],
    "minItems": 1,
    "items": {"type": SCALAR},
    "minProperties": 1,
    "properties": {
        "equals": {"description": "The value, of the same JSON type; true is not 1", "type": SCALAR},
        "in": {"description": "One of these values", "type": "array", "minItems": 1, "items": {"type": SCALAR}},
        "under": one_or_more("A relative path to or below one of these folders; . is the root"),
        "like": one_or_more("Text that fits one of these globs, whole"),
        "min": {"description": "A number, at least this", "type": "number"},
        "max": {"description": "A number, at most this", "type": "number"},
        "present": {"description": "Whether the argument is there at all", "type": "boolean"},
    },
    "additionalProperties": False,
}
"""The JSON Schema of a condition, draft 2020-12."""

_INFINITY: Final = float("inf")
_GLOB_BYTES: Final = 1024 * 1024


class _Absent:
    """The type of `ABSENT`."""


ABSENT: Final = _Absent()
"""The result of a `lookup` that finds nothing; no value test holds for it."""


# --- where a value stands ---------------------------------------------------------------------------------------------


def lookup(pointer: str) -> Lookup:
    """Return a function that finds the value at *pointer* in the arguments of a call, or `ABSENT`."""
    names = split_argument(pointer)
    if len(names) == 1:
        only = names[0]
        return lambda args: args.get(only, ABSENT)

    def walk(args: Mapping[str, Any]) -> Any:
        here: Any = args
        for name in names:
            here = get_member(here, name, ABSENT)
        return here

    return walk


def split_argument(pointer: str) -> list[str]:
    """Return the names that the JSON pointer (RFC 6901) to an argument leads through, at least one.

    Nothing is raised: the schemas of the workspace check pointers, and the charter of a ledger, which is judged again
    by `deedbook verify`, may hold any text.
    """
    return [unescape(token) for token in pointer[1:].split("/")]


# --- conditions -------------------------------------------------------------------------------------------------------


def as_list(value: Any) -> Sequence[Any]:
    """Return *value* if it is a list, else a sequence with only that value."""
    return value if isinstance(value, list | tuple) else (value,)


def conjunction(tests: Sequence[Callable[[Any], bool]]) -> Callable[[Any], bool] | None:
    """Return the test that all *tests* hold, or ``None`` if there are none."""
    if len(tests) < 2:  # short ones are unrolled, since they run at every call
        return tests[0] if tests else None
    if len(tests) == 2:
        first, second = tests
        return lambda subject: first(subject) and second(subject)
    return lambda subject: all(test(subject) for test in tests)


def condition_tests(condition: Any, *, allows: bool) -> Iterator[ValueTest]:
    """Yield the tests of *condition*, a `CONDITION`; only ``present`` yields none."""
    if not isinstance(condition, dict):
        yield _equal_test(as_list(condition))
        return
    if "equals" in condition:
        yield _equal_test([condition["equals"]])
    if "in" in condition:
        yield _equal_test(condition["in"])
    if "under" in condition:
        yield path_test(_under_test([normal_path(folder) for folder in as_list(condition["under"])]), allows=allows)
    if "like" in condition:
        yield _like_test(as_list(condition["like"]), allows=allows)
    if "min" in condition or "max" in condition:
        yield _range_test(condition.get("min", -_INFINITY), condition.get("max", _INFINITY))


def impossible(condition: Mapping[str, Any]) -> Iterator[str]:
    """Yield why no value can meet *condition*, which has the shape of a `CONDITION`."""
    if condition.get("present") is False and len(condition) > 1:
        yield "an argument that is not present meets no other condition; write present: false alone"
    if condition.get("min", -_INFINITY) > condition.get("max", _INFINITY):
        yield "min is above max, so that no number fits"
    for folder in as_list(condition.get("under", ())):
        if normal_path(folder) is None or "*" in folder:
            yield f'under takes relative folders such as "src", no globs; found "{folder}"'
    if too_large(as_list(condition.get("like", ()))):
        yield "the globs are too large together; write fewer or shorter ones"


def group_by_type(values: Sequence[Any]) -> Mapping[type, frozenset[Any]]:
    """Return scalars by the types that may equal them, as in JSON: numbers by value, but true is not 1."""
    accepted: dict[type, frozenset[Any]] = {}
    for kinds in ((str,), (bool,), (type(None),), (int, float)):
        accepted.update(dict.fromkeys(kinds, frozenset(value for value in values if type(value) in kinds)))
    return accepted


def _equal_test(values: Sequence[Any]) -> ValueTest:
    accepted = group_by_type(values)
    # the empty tuple, since other values may be unhashable
    return lambda value: value in accepted.get(type(value), ())


def path_test(fits: ValueTest, *, allows: bool) -> ValueTest:
    """Return the test of a path by *fits*, which gets each of its readings as a `normal_path` or ``None``."""
    enough = all if allows else any

    def test(value: Any) -> bool:
        return type(value) is str and enough(fits(normal_path(each)) for each in readings(value))

    return test


def _under_test(folders: Sequence[str | None]) -> ValueTest:
    if "" in folders:
        return lambda path: path is not None
    exact = frozenset(folders)
    below = tuple(f"{folder}/" for folder in folders)
    return lambda path: path is not None and (path.startswith(below) or path in exact)


def _like_test(globs: Sequence[str], *, allows: bool) -> ValueTest:
    """Return the test of globs on text; a path or URL with ``..`` must neither pass nor evade it.

    A reading is in the common form of URLs, so it is compared with that form of the globs, too.
    """
    written, common = glob_test(globs), glob_test([*globs, *map(resolve_dots, globs)])
    if allows:
        return lambda value: written(value) and all(common(each) and not _DOTTED(each) for each in readings(value))

    def like(value: Any) -> bool:
        found = readings(value) if type(value) is str else ()
        return any(common(each) or common(normal_path(each)) for each in found)

    return like


_DOTTED: Final = re.compile(r"(?:\A|/)\.\.?(?:/|\Z)").search


def _range_test(low: float, high: float) -> ValueTest:
    return lambda value: type(value) in (int, float) and low <= value <= high


# --- paths ------------------------------------------------------------------------------------------------------------


def normal_path(path: Any) -> str | None:
    """Return *path* as POSIX text without ``.``, ``..`` and doubled slashes; ``""`` is the root itself.

    Returns ``None`` if no path condition holds: for anything but a string, the empty string, an absolute path, one that
    leaves the root, and text that another program may read differently (a leading ``~``, drive or URL scheme, a
    backslash, a control character or lone surrogate, space at either end). Lexical: links are not followed.
    """
    if type(path) is not str or not _CLEAR(path):
        return None
    if path[0] != "." and path[-1] != "/" and "/." not in path and "//" not in path:
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part and part != ".":
            parts.append(part)
    normal = "/".join(parts)
    return normal if not normal or _CLEAR(normal) else None


_CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\"
_CLEAR: Final = re.compile(
    rf"(?![A-Za-z][A-Za-z0-9+.-]*:)[^/~\s{_CONTROL}](?:[^{_CONTROL}]*[^\s{_CONTROL}])?"
).fullmatch


# --- globs ------------------------------------------------------------------------------------------------------------


def glob_test(globs: Sequence[str]) -> ValueTest:
    """Return the test for text that matches one of *globs*, whole; anything but a string matches none.

    ``*`` stands for any text without ``/``, ``**`` for any text, ``**/`` at the start of a segment for any folders or
    none; every other character for itself. Raises `ValueError` for globs that are `too_large`.
    """
    if not any("*" in glob for glob in globs):
        exact = frozenset(globs)
        return lambda value: type(value) is str and value in exact
    is_valid = _automaton(f"^({'|'.join(map(_glob_pattern, globs))})$").is_valid
    return lambda value: type(value) is str and is_valid(value)


def too_large(globs: Sequence[str]) -> bool:
    """Return whether *globs* together need an automaton of more than 1 MiB."""
    import jsonschema_rs

    try:
        glob_test(globs)
    except jsonschema_rs.ValidationError:
        return True
    return False


def _automaton(pattern: str) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    # jsonschema-rs runs in linear time; with `re`, a long text and three stars could block the call
    options = jsonschema_rs.RegexOptions(size_limit=_GLOB_BYTES)
    return jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=options)


def _glob_pattern(glob: str) -> str:
    return "".join(map(_glob_part, _GLOB_PARTS(glob)))


_GLOB_PARTS: Final = re.compile(r"(?:(?<=/)|\A)\*\*/|\*+|[^*]+").findall
_SPECIAL: Final = re.compile(r"[\\^$.|?+()\[\]{}]")


def _glob_part(part: str) -> str:
    if part == "**/":
        return r"([\s\S]*/)?"
    if part[0] == "*":
        return "[^/]*" if part == "*" else r"[\s\S]*"
    return _SPECIAL.sub(r"\\\g<0>", part)
