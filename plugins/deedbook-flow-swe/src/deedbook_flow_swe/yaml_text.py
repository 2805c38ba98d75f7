"""YAML text of JSON values, for files that people read; pure. The same value always gives the same bytes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def render_yaml(value: Mapping[str, Any]) -> str:
    """Return *value* as YAML: a line for each member in its order, and every scalar as JSON, which is also YAML."""
    return "".join(f"{line}\n" for line in _render_object(value))


def _render_object(value: Mapping[str, Any]) -> Iterator[str]:
    for name, each in value.items():
        yield from _render_member(f"{_render_key(name)}:", each)


def _render_member(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield head
        yield from (f"  {line}" for line in _render_object(value))
    elif _is_list_of_objects(value):
        yield head
        for each in value:
            first, *rest = _render_object(each)
            yield f"  - {first}"
            yield from (f"    {line}" for line in rest)
    else:
        yield f"{head} {json.dumps(value, ensure_ascii=False)}"


def _is_list_of_objects(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(each, Mapping) and each for each in value)


def _render_key(name: str) -> str:
    """Return a key without quotes where YAML cannot read it as anything else than this text."""
    return name if name.replace("_", "").isalpha() and name.isascii() else json.dumps(name, ensure_ascii=False)
