"""Change one entry of a section of ``deedbook.yaml`` and keep everything else as it is.

Lines are inserted or removed where that is certain. Every result is parsed again and compared with the intended value.
If it differs, ruamel's round trip, which keeps comments and order, rewrites the whole file.
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

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@=+-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_WIDTH: Final = 4096
_LONG: Final = 60


def add_entry(text: str, section: str, name: str, body: Mapping[str, Any], path: str) -> str:
    """Return YAML *text* with the entry *name* in *section*; raises `DeedbookError` if the entry exists."""
    value: Any = parse_yaml(text.encode(), path).value
    if name in (value.get(section) or {}):
        raise SourceError(fault("SOURCE_INVALID", f'{section}: has an entry "{name}" already', place=path))
    meant = deepcopy(value)
    meant[section] = {**(meant.get(section) or {}), name: dict(body)}
    return _first_matching(
        meant, path, lambda: _insert(text, section, name, body, path), lambda: _rewrite(text, section, meant)
    )


def remove_entry(text: str, section: str, name: str, path: str) -> str:
    """Return YAML *text* without the entry *name* of *section*, and without the section if it becomes empty."""
    value: Any = parse_yaml(text.encode(), path).value
    meant = deepcopy(value)
    del meant[section][name]
    if not meant[section]:
        del meant[section]
    return _first_matching(
        meant, path, lambda: _remove_lines(text, section, name, path), lambda: _rewrite(text, section, meant)
    )


def _first_matching(meant: Any, path: str, *ways: Any) -> str:
    """Return the text of the first way whose value is *meant*."""
    for way in ways:
        try:
            made: str = way()
            if parse_yaml(made.encode(), path).value == meant:
                return made
        except DeedbookError:
            continue
    raise SourceError(fault("SOURCE_INVALID", "cannot be edited by a program; change it by hand", place=path))


def _insert(text: str, section: str, name: str, body: Mapping[str, Any], path: str) -> str:
    """Insert the entry's lines before the section's first entry, or add a new section at the end."""
    document = parse_yaml(text.encode(), path)
    value: Any = document.value
    lines = text.splitlines(keepends=True)
    if not value.get(section):
        block = [f"{section}:\n", *(f"  {line}\n" for line in _entry(name, body))]
        return "".join([*lines[:-1], lines[-1].rstrip("\n") + "\n", "\n", *block]) if lines else "".join(block)
    first = join_pointer(section, next(iter(value[section])))
    line, column = map(int, document.place(first, key=True).rpartition(path)[2].split(":")[1:])
    indent = " " * (column - 1)
    return "".join([*lines[: line - 1], *(f"{indent}{each}\n" for each in _entry(name, body)), *lines[line - 1 :]])


def _remove_lines(text: str, section: str, name: str, path: str) -> str:
    """Remove the entry's lines: up to the next line that is not indented more than its key."""
    document = parse_yaml(text.encode(), path)
    value: Any = document.value
    only = len(value[section]) == 1
    at = join_pointer(section) if only else join_pointer(section, name)
    line, column = map(int, document.place(at, key=True).rpartition(path)[2].split(":")[1:])
    lines = text.splitlines(keepends=True)
    end = line
    for number in range(line, len(lines)):
        following = lines[number]
        if following.strip() and not following.lstrip().startswith("#"):
            if len(following) - len(following.lstrip()) < column:
                break
            end = number + 1
    return "".join([*lines[: line - 1], *lines[end:]])


def _rewrite(text: str, section: str, meant: Any) -> str:
    """Return the whole file with *section* as it is *meant*, written by the round trip."""
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    try:
        document = yaml.load(text) or {}
        if section not in meant:
            del document[section]
        else:
            there = document.setdefault(section, {})
            for gone in [key for key in there if key not in meant[section]]:
                del there[gone]
            there.update({key: value for key, value in meant[section].items() if key not in there})
        out = StringIO()
        yaml.dump(document, out)
    except YAMLError as problem:
        raise SourceError(fault("SOURCE_INVALID", str(problem))) from None
    return out.getvalue()


def _entry(name: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an entry in block style with values in flow style; a long mapping gets a line for each key."""
    yield f"{_scalar(name)}:"
    for key, value in body.items():
        flow = _flow(value)
        if isinstance(value, Mapping) and len(flow) > _LONG:
            yield f"  {_scalar(key)}:"
            yield from (f"    {_scalar(inner)}: {_flow(each)}" for inner, each in value.items())
        else:
            yield f"  {_scalar(key)}: {flow}"


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
