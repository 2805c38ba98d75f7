"""Add members to a YAML text and leave everything that is in it as it is.

A member is inserted after the last one of its object. Every result is parsed and compared with the intended value.
If it differs, ruamel's round trip, which keeps comments and order, rewrites the text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DeedbookError, SourceError, fault
from deedbook.workspace.documents import parse_yaml

from .declarations import Addition

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@=+-]*(?: [A-Za-z0-9_./@=+-]+)*\.?")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_FLOW_TOKEN: Final = re.compile(r"""[\[\]{}]|"(?:[^"\\]|\\.)*"|'[^']*'""")
_WIDTH: Final = 4096
_LONG: Final = 90


def add_member(text: str, addition: Addition, path: str) -> str:
    """Return *text* with one member more; raises `DeedbookError` if no edit gives the intended value."""
    meant: Any = deepcopy(parse_yaml(text.encode(), path).value)
    _target(meant, addition)[addition.key] = addition.value
    for way in (_insert_lines, _insert_in_flow, _rewrite):
        try:
            made = way(text, addition, path)
            if parse_yaml(made.encode(), path).value == meant:
                return made
        except (DeedbookError, YAMLError, KeyError, IndexError):
            continue
    at = join_pointer(*addition.parent, addition.key)
    raise SourceError(fault("SOURCE_INVALID", f"{at} cannot be added by a program; add it by hand", place=path))


def format_member(key: str, value: Any, indent: int = 0) -> Iterator[str]:
    """Yield the lines of a member in block style; what is short and flat is in flow style."""
    flow = f"{' ' * indent}{_scalar(key)}: {_flow(value)}"
    if not isinstance(value, Mapping) or not value or (len(flow) <= _LONG and _depth(value) < 2):
        yield flow
        return
    yield f"{' ' * indent}{_scalar(key)}:"
    for inner, each in value.items():
        yield from format_member(inner, each, indent + 2)


def _insert_lines(text: str, addition: Addition, path: str) -> str:
    """Insert the lines after the last member of the parent; only for a parent in block style, with a member."""
    document = parse_yaml(text.encode(), path)
    parent = _target(document.value, addition)
    lines = text.rstrip("\n").split("\n")
    if not addition.parent:
        return "\n".join([*lines, *format_member(addition.key, addition.value), ""])
    last = join_pointer(*addition.parent, list(parent)[-1])
    line, column = map(int, document.place(last, key=True).rpartition(path)[2].split(":")[1:])
    end = line
    for number in range(line, len(lines)):
        following = lines[number]
        if following.strip() and not following.lstrip().startswith("#"):
            if len(following) - len(following.lstrip()) < column:
                break
            end = number + 1
    added = format_member(addition.key, addition.value, column - 1)
    return "\n".join([*lines[:end], *added, *lines[end:], ""])


def _insert_in_flow(text: str, addition: Addition, path: str) -> str:
    """Insert the member before the brace that closes its parent in flow style."""
    document = parse_yaml(text.encode(), path)
    place = document.place(join_pointer(*addition.parent))
    line, column = map(int, place.rpartition(path)[2].split(":")[1:])
    start = sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1
    end = _closing_brace(text, start)
    comma = ", " if _target(document.value, addition) else ""
    return f"{text[:end].rstrip()}{comma}{_scalar(addition.key)}: {_flow(addition.value)}{text[end:]}"


def _closing_brace(text: str, start: int) -> int:
    """Return where the brackets that begin at *start* end; raises `IndexError` if they do not."""
    depth = 0
    for found in _FLOW_TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    raise IndexError("the brackets do not end")


def _rewrite(text: str, addition: Addition, _path: str) -> str:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    document = yaml.load(text)
    _target(document, addition)[addition.key] = addition.value
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _target(value: Any, addition: Addition) -> Any:
    for key in addition.parent:
        value = value[key]
    return value


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
