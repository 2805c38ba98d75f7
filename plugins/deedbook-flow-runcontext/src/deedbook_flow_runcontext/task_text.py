"""The text that skills are matched against, from a clarification and a scope; pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook import Object

LEFT_OUT: Final = frozenset(
    {"abilities", "constraints", "excluded", "non_goals", "out_of_scope", "principal", "schema_version"}
)
"""Members that do not say what to do: limits, and what is not wanted."""

_DEEPEST: Final = 16


def build_task_text(clarification: Object, scope: Object, task: str = "") -> str:
    """Return the texts of *task*, *clarification* and *scope*, a line each, without the members in `LEFT_OUT`.

    Values are read at most 16 levels deep, in the order in which they are written.
    """
    texts = [task, *_texts(clarification), *_texts(scope)]
    return "\n".join(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if name not in LEFT_OUT:
                yield from _texts(member, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, depth + 1)
