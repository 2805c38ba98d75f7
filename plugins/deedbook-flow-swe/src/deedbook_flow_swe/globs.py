"""Compare globs over paths without a file at hand: whether one covers another, and whether two overlap; pure.

``*`` is any text without ``/``, ``**`` any text, ``**/`` at the start of a segment any folders or none, and ``/`` at
the end stands for all that is below. A placeholder such as ``{task-id}`` is a part of a segment that is the same
wherever it has the same name, and different from everything else: two globs are compared for one task.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Final

MOST_FOLDERS: Final = 6
"""How often ``**/`` may stand in a glob that is compared."""

_TOKENS: Final = re.compile(r"(?:(?<=/)|\A)\*\*/|\*\*+|\*|\{[^{}]*\}|[\s\S]").findall
_FOLDERS: Final = "**/"
_ANY: Final = "**"
_PART: Final = "*"
_SEPARATOR: Final = "/"

Tokens = tuple[str, ...]
State = tuple[int, int]
"""How many tokens of each of two globs are compared."""


def whole_glob(glob: str) -> str:
    """Return *glob* with a folder at its end as all that is below it."""
    return f"{glob}**" if glob.endswith("/") else glob


def covers(wide: str, narrow: str) -> bool:
    """Return whether every path that fits *narrow* fits *wide*; where that cannot be shown, ``False``."""
    return all(any(_covers(one, other) for one in _split(wide)) for other in _split(narrow))


def overlap(one: str, other: str) -> bool:
    """Return whether some path may fit both globs."""
    return any(_overlap(mine, its) for mine in _split(one) for its in _split(other))


@lru_cache(maxsize=1024)
def _split(glob: str) -> tuple[Tokens, ...]:
    """Return the tokens of a glob, once for each choice of ``**/``: no folder, or any text and a slash."""
    tokens = _TOKENS(whole_glob(glob))
    choices: list[tuple[Tokens, ...]] = [
        ((), (_ANY, _SEPARATOR)) if token == _FOLDERS else ((_ANY if token.startswith(_ANY) else token,),)
        for token in tokens
    ]
    return tuple(sum(each, ()) for each in product(*choices))


def _covers(wide: Tokens, narrow: Tokens) -> bool:
    """Try all ways in which the wildcards of *wide* can take up the tokens of *narrow*."""

    def step(at: int, upto: int) -> Iterator[State]:
        if at == len(wide):
            return
        token, found = wide[at], narrow[upto] if upto < len(narrow) else None
        if _is_wild(token):
            yield at + 1, upto
            if found is not None and _takes(token, found):
                yield at, upto + 1
        elif token == found:
            yield at + 1, upto + 1

    return _is_reachable((len(wide), len(narrow)), step)


def _overlap(one: Tokens, other: Tokens) -> bool:
    """Try all ways in which both globs can fit one path, token by token."""

    def step(at: int, upto: int) -> Iterator[State]:
        mine = one[at] if at < len(one) else None
        its = other[upto] if upto < len(other) else None
        if _is_wild(mine):
            yield at + 1, upto
        if _is_wild(its):
            yield at, upto + 1
        if mine is not None and its is not None:
            if _is_wild(mine) and _takes(mine, its):
                yield at, upto + 1
            if _is_wild(its) and _takes(its, mine):
                yield at + 1, upto
            if mine == its:
                yield at + 1, upto + 1

    return _is_reachable((len(one), len(other)), step)


def _is_reachable(goal: State, step: Callable[[int, int], Iterable[State]]) -> bool:
    """Return whether *step*, which yields the states after one, leads from the beginning of both globs to *goal*."""
    seen: set[State] = set()
    left = [(0, 0)]
    while left:
        state = left.pop()
        if state == goal:
            return True
        if state not in seen:
            seen.add(state)
            left += step(*state)
    return False


def _takes(wildcard: str, token: str) -> bool:
    """Return whether a wildcard takes up a token; ``*`` takes no slash, and nothing that may have one."""
    return wildcard == _ANY or token not in (_ANY, _SEPARATOR)


def _is_wild(token: str | None) -> bool:
    return token in (_ANY, _PART)
