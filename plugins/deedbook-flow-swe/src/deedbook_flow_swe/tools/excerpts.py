"""Excerpts of code: the parts of a file that matter for some names, where the whole file is too long; pure.

The head and the tail of the file are kept, the definitions of the names, and what mentions them, as far as there is
room. A line in brackets stands for each part that is left out, so that no reader takes the excerpt for the file.
"""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import attrs

_HEAD: Final = 12
_TAIL: Final = 6
_AROUND: Final = 6
"""Lines before and after a line that mentions a name, in a file that is no Python."""
_MARK: Final = "[lines {} to {} are left out]\n"


@attrs.frozen
class Span:
    """The lines *first* to *last* of a file, from 1; the lower its *rank*, the more it matters."""

    first: int
    last: int
    rank: int


def cut_text(path: str, text: str, names: Collection[str], most_bytes: int) -> str:
    """Return *text*, or an excerpt of at most *most_bytes* if it is longer; empty if not even one line fits."""
    if len(text.encode()) <= most_bytes:
        return text
    lines = text.splitlines(keepends=True)
    kept: set[int] = set()
    for span in sorted(_find_spans(path, text, lines, names), key=lambda each: (each.rank, each.first)):
        wider = kept | set(range(span.first, span.last + 1))
        if len(_render(lines, wider).encode()) <= most_bytes:
            kept = wider
    return _render(lines, kept) if kept else ""


def _find_spans(path: str, text: str, lines: Sequence[str], names: Collection[str]) -> Iterator[Span]:
    last = len(lines)
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b") if names else None
    yield Span(1, min(_HEAD, last), 1)
    yield Span(max(1, last - _TAIL + 1), last, 1)
    definitions = list(_find_definitions(text)) if path.endswith(".py") else []
    for name, first, end in definitions:
        if name in names:
            yield Span(first, end, 0)
        elif words and any(words.search(line) for line in lines[first - 1 : end]):
            yield Span(first, end, 2)
    if words is None or definitions:
        return
    for number, line in enumerate(lines, 1):
        if words.search(line):
            yield Span(max(1, number - _AROUND), min(last, number + _AROUND), 2)


def _find_definitions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the first and the last line of each function, method, class and assignment of a module."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in module.body:
        yield from _find_names(node)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                yield from _find_names(inner)


def _find_names(node: ast.stmt) -> Iterator[tuple[str, int, int]]:
    end = node.end_lineno or node.lineno
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        yield node.name, first, end
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from ((each.id, node.lineno, end) for each in targets if isinstance(each, ast.Name))


def _render(lines: Sequence[str], kept: Collection[int]) -> str:
    made: list[str] = []
    number = 1
    while number <= len(lines):
        if number in kept:
            made.append(lines[number - 1])
            number += 1
            continue
        first = number
        while number <= len(lines) and number not in kept:
            number += 1
        made.append(_MARK.format(first, number - 1))
    return "".join(made)
