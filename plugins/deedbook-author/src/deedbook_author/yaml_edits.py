"""Add one member to a YAML text or remove one, and leave everything else as it is.

Lines are inserted or removed where that is certain. Every result is parsed and compared with the intended value. If it
differs, ruamel's round trip, which keeps comments and order, rewrites the text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from io import StringIO
from typing import Any, Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DeedbookError, SourceError, fault
from deedbook.workspace.documents import parse_yaml

Parent: TypeAlias = tuple[str, ...]
"""The keys that lead to an object."""

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@=+-]*(?: [A-Za-z0-9_./@=+-]+)*\.?")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_FLOW_TOKEN: Final = re.compile(r"""[\[\]{}]|"(?:[^"\\]|\\.)*"|'[^']*'|(?<=\s)#[^\n]*""")
_WIDTH: Final = 4096
_LONG: Final = 90


def add_member(text: str, parent: Parent, key: str, value: Any, path: str) -> str:
    """Return *text* with the member *key* of the object at *parent*, which is made if it is missing.

    Raises `DeedbookError` if the member exists, or if no edit gives the intended value and keeps the comments. *path*
    names the file.
    """
    if _has_crlf(text):
        return _to_crlf(add_member(_to_lf(text), parent, key, value, path))
    meant: Any = deepcopy(parse_yaml(text.encode(), path).value)
    for depth in range(len(parent)):
        if _find_object(meant, parent[:depth], path).get(parent[depth]) is None:
            for inner in (key, *reversed(parent[depth + 1 :])):
                value = {inner: value}
            parent, key = parent[:depth], parent[depth]
            break
    target = _find_object(meant, parent, path)
    if target.get(key) is not None:
        raise SourceError(fault("SOURCE_INVALID", f'{".".join(parent)}: has an entry "{key}" already', place=path))
    target[key] = value
    return _first_matching(
        meant,
        path,
        lambda: _insert_lines(text, parent, key, value, path),
        lambda: _insert_in_flow(text, parent, key, value, path),
        lambda: _rewrite_with_comments(text, parent, key, value),
    )


def remove_member(text: str, parent: Parent, key: str, path: str) -> str:
    """Return *text* without the member *key* of the object at *parent*, and without the object if it becomes empty.

    Raises `DeedbookError` if there is no such member, or if no edit gives the intended value.
    """
    if _has_crlf(text):
        return _to_crlf(remove_member(_to_lf(text), parent, key, path))
    meant: Any = deepcopy(parse_yaml(text.encode(), path).value)
    if key not in _find_object(meant, parent, path):
        raise SourceError(fault("SOURCE_INVALID", f'{".".join(parent)}: has no entry "{key}"', place=path))
    if parent and len(_find(meant, parent)) == 1:
        parent, key = parent[:-1], parent[-1]
    del _find(meant, parent)[key]
    return _first_matching(
        meant,
        path,
        lambda: _remove_lines(text, (*parent, key), path),
        lambda: _rewrite(text, lambda document: _find(document, parent).pop(key)),
    )


def _first_matching(meant: Any, path: str, *ways: Callable[[], str]) -> str:
    """Return the text of the first way whose value is *meant*."""
    for way in ways:
        try:
            made = way()
            if parse_yaml(made.encode(), path).value == meant:
                return made
        except (DeedbookError, YAMLError, LookupError):
            continue
    raise SourceError(fault("SOURCE_INVALID", "cannot be edited by a program; change it by hand", place=path))


def _format_member(key: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of a member in block style; what is short and flat is in flow style."""
    flow = f"{' ' * indent}{_scalar(key)}: {_flow(value)}"
    if not isinstance(value, Mapping) or not value or (len(flow) <= _LONG and _depth(value) < 2):
        yield flow
        return
    yield f"{' ' * indent}{_scalar(key)}:"
    for inner, each in value.items():
        yield from _format_member(inner, each, indent + 2)


def _insert_lines(text: str, parent: Parent, key: str, value: Any, path: str) -> str:
    """Insert the lines after the last member of the parent; only for a parent in block style, with a member."""
    if not parent:
        return "\n".join([*text.rstrip("\n").split("\n"), *_format_member(key, value, 0), ""])
    members = _find(parse_yaml(text.encode(), path).value, parent)
    lines, _, end, column = _locate(text.rstrip("\n"), (*parent, list(members)[-1]), path)
    return "\n".join([*lines[:end], *_format_member(key, value, column - 1), *lines[end:], ""])


def _insert_in_flow(text: str, parent: Parent, key: str, value: Any, path: str) -> str:
    """Insert the member before the brace that closes its parent in flow style."""
    document = parse_yaml(text.encode(), path)
    place = document.place(join_pointer(*parent))
    line, column = map(int, place.rpartition(path)[2].split(":")[1:])
    start = sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1
    end = _closing_brace(text, start)
    comma = ", " if _find(document.value, parent) else ""
    return f"{text[:end].rstrip()}{comma}{_scalar(key)}: {_flow(value)}{text[end:]}"


def _remove_lines(text: str, member: Parent, path: str) -> str:
    """Remove the member's lines."""
    lines, start, end, _ = _locate(text, member, path)
    return "\n".join([*lines[:start], *lines[end:]])


def _locate(text: str, member: Parent, path: str) -> tuple[list[str], int, int, int]:
    """Return the lines of *text*, the range of the member's lines in them, and the column of its key (from 1).

    The member ends before the next line that is not indented more than its key; comments at its end are not its own.
    """
    place = parse_yaml(text.encode(), path).place(join_pointer(*member), key=True)
    line, column = map(int, place.rpartition(path)[2].split(":")[1:])
    lines = text.split("\n")
    end = line
    for number in range(line, len(lines)):
        following = lines[number]
        if following.strip() and not following.lstrip().startswith("#"):
            if len(following) - len(following.lstrip()) < column:
                break
            end = number + 1
    return lines, line - 1, end, column


def _closing_brace(text: str, start: int) -> int:
    """Return where the brackets that begin at *start* end; raises `IndexError` if they do not."""
    depth = 0
    for found in _FLOW_TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    raise IndexError("the brackets do not end")


def _rewrite(text: str, change: Callable[[Any], object]) -> str:
    """Return the whole text after *change*, written by the round trip."""
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    document = yaml.load(text)
    change(document)
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _rewrite_with_comments(text: str, parent: Parent, key: str, value: Any) -> str:
    """Return the whole text with the member, rewritten; raises `LookupError` if a comment would be lost."""
    made = _rewrite(text, lambda document: _find(document, parent).update({key: value}))
    if made.count("#") < text.count("#") + _flow({key: value}).count("#"):
        raise LookupError("a comment is lost")
    return made


def _has_crlf(text: str) -> bool:
    """Return whether every line of *text* ends as on Windows."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _to_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _to_crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def _find(value: Any, parent: Parent) -> Any:
    for key in parent:
        value = value[key]
    return value


def _find_object(value: Any, parent: Parent, path: str) -> dict[str, Any]:
    """Return the object at *parent*; raises `DeedbookError` if there is none."""
    for key in parent:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise SourceError(fault("SOURCE_INVALID", f"{'.'.join(parent) or 'the file'} is no object", place=path))
    return value


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list | tuple) else 0


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
