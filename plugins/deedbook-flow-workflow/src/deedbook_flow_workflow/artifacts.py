"""The files of artifacts: how they are named, what they hold, and whether a file fits its template.

A name comes from the template's pattern, such as ``{date}-{slug}.md``. A Markdown file holds its value as front matter,
above the text that the template makes of it; a JSON file is its value.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deedbook import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, fault
from deedbook.format.schema import foreign, suggest
from deedbook.workspace.documents import parse_front_matter

from .definition import Artifact

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_LOOPS: Final = 2
"""How deep the loops of a template may be nested: each level multiplies the work."""
FIELDS: Final[Mapping[str, str]] = {
    "cycle": r"[a-z0-9-]+",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "generation": r"[1-9][0-9]*",
    "phase": r"[a-z0-9-]+",
    "session": r"[A-Za-z0-9_-]+",
    "slug": r"[a-z0-9]+(?:-[a-z0-9]+)*",
    "time": r"[0-9]{6}",
}
"""The fields of a pattern, each with the texts that may stand there."""

_FIELD: Final = re.compile(r"[{]([a-z]+)[}]")
_KEY: Final = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z][a-z0-9_]*")
"""Keys that mean the same to every reader of YAML without quotes."""
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG: Final = 60
_ESCAPED: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ALLOWED: Final = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem,
    nodes.Filter, nodes.For, nodes.If, nodes.Not, nodes.And, nodes.Or, nodes.Compare, nodes.Operand,
)  # fmt: skip
_FILTERS: Final = frozenset({"default", "join", "length", "lower", "sort", "title", "trim", "upper"})


# --- names ------------------------------------------------------------------------------------------------------------


def make_slug(text: str) -> str:
    """Return *text* as a part of a file's name: lower-case ASCII words joined by hyphens, at most 60 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _NO_WORD.sub("-", plain).strip("-")[:_LONGEST_SLUG].strip("-") or "untitled"


def find_unknown_fields(pattern: str) -> list[str]:
    """Return the fields of a pattern that there are not."""
    return [name for name in _FIELD.findall(pattern) if name not in FIELDS]


def build_name(pattern: str, values: Mapping[str, str | int]) -> str:
    """Return the name of a file. Raises `ValueError` for a field without a value, or with one that cannot be there."""

    def fill(found: re.Match[str]) -> str:
        field = found[1]
        if field not in values:
            raise ValueError(f"the pattern {pattern} needs a value for {{{field}}}")
        text = str(values[field])
        if not re.fullmatch(FIELDS[field], text):
            raise ValueError(f"{text[:80]!r} cannot stand for {{{field}}} in the pattern {pattern}")
        return text

    return _FIELD.sub(fill, pattern)


def fits_pattern(pattern: str, name: str) -> bool:
    """Return whether *name* is one that the pattern makes."""
    parts = _FIELD.split(pattern)
    expected = "".join(FIELDS[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.fullmatch(expected, name) is not None


# --- content ----------------------------------------------------------------------------------------------------------


def find_template_flaws(template: str) -> Iterator[tuple[str, int]]:
    """Yield what a template may not have, with its line: only values, filters, conditions and loops are allowed."""
    try:
        tree = _environment().parse(template)
    except jinja2.TemplateSyntaxError as problem:
        yield f"not a template: {problem.message}", problem.lineno
        return
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, _ALLOWED):
            yield f"{type(node).__name__.lower()} is not allowed in a template", node.lineno
        elif isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            yield f"there is no filter {node.name}{suggest(node.name, _FILTERS)}", node.lineno
    deep = _find_deep_loop(tree, 0)
    if deep is not None:
        yield f"loops are nested more than {MAX_LOOPS} deep", deep.lineno


def render_file(artifact: Artifact, value: Object) -> bytes:
    """Return the bytes of an artifact's file that holds *value*, which fits the schema."""
    if artifact.pattern.endswith(".json"):
        return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode() + b"\n"
    front = "".join(f"{key if _KEY.fullmatch(key) else _yaml(key)}: {_yaml(each)}\n" for key, each in value.items())
    text = _environment().from_string(artifact.template).render(dict(value))
    return f"---\n{front}---\n{text.strip()}\n".encode()


def check_file(artifact: Artifact, schema: Object, path: str, raw: bytes) -> Iterator[DomainError]:
    """Yield what is wrong with a produced file: its folder, its name, and what it holds.

    *path* is relative to the workspace.
    """
    place = PurePosixPath(path)
    if str(place.parent) != artifact.folder or ".." in place.parts:
        why = f"lies in {place.parent}; the files of this artifact lie in {artifact.folder} ({artifact.place})"
        yield fault("PATH_REFUSED", why, place=path)
    if not fits_pattern(artifact.pattern, place.name):
        why = f"is not named {artifact.pattern}, as its template says ({artifact.place})"
        yield fault("SOURCE_INVALID", why, place=path)
    try:
        value, where = _read_value(artifact, path, raw)
    except DeedbookError as problem:
        yield from problem.errors
        return
    for violation in foreign(schema, place=artifact.schema).violations(value):
        why = f"does not fit {artifact.schema}: {violation.path}: {violation.message}"
        yield fault("SCHEMA_VIOLATION", why, place=where(violation.pointer))


def _read_value(artifact: Artifact, path: str, raw: bytes) -> tuple[Any, Any]:
    """Return the value that a file holds, and a function from JSON pointers to places."""
    if artifact.pattern.endswith(".json"):
        return canonical.parse(raw), lambda pointer: f"{path}: {pointer or '/'}"
    document, _ = parse_front_matter(raw, path, MAX_BYTES)
    return document.value, document.place


def _yaml(value: Any) -> str:
    """Return *value* as JSON that is also YAML: characters that YAML does not allow are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )


def _find_deep_loop(node: nodes.Node, loops: int) -> nodes.Node | None:
    loops += isinstance(node, nodes.For)
    if loops > MAX_LOOPS:
        return node
    return next((found for each in node.iter_child_nodes() if (found := _find_deep_loop(each, loops))), None)
