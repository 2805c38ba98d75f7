"""Compare globs over paths without a file at hand: whether one covers another, and whether two overlap; pure.

``*`` is any text without ``/``, ``**`` any text, ``**/`` at the start of a segment any folders or none, and ``/`` at
the end stands for all that is below. A placeholder such as ``{task-id}`` is a part of a segment that is the same
wherever it has the same name, and different from everything else: two globs are compared for one task.
"""

import re
from functools import lru_cache
from typing import Final

_TOKENS: Final = re.compile(r"(?:(?<=/)|\A)\*\*/|\*\*+|\*|\{[^{}]*\}|[\s\S]").findall
_FOLDERS: Final = "**/"
_ANY: Final = "**"
_PART: Final = "*"
_SEPARATOR: Final = "/"


def whole_glob(glob: str) -> str:
    """Return *glob* with a folder at its end as all that is below it."""
    return f"{glob}**" if glob.endswith("/") else glob


def covers(wide: str, narrow: str) -> bool:
    """Return whether every path that fits *narrow* fits *wide*; where that cannot be shown, ``False``."""
    return _covers(_split(wide), _split(narrow))


def overlap(one: str, other: str) -> bool:
    """Return whether some path may fit both globs."""
    return _overlap(_split(one), _split(other))


@lru_cache(maxsize=1024)
def _split(glob: str) -> tuple[str, ...]:
    return tuple(_ANY if token.startswith(_ANY) and token != _FOLDERS else token for token in _TOKENS(whole_glob(glob)))


def _covers(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """Walk all ways in which the wildcards of *wide* can take up the tokens of *narrow*."""
    seen: set[tuple[int, int]] = set()
    left = [(0, 0)]
    while left:
        state = left.pop()
        if state in seen:
            continue
        seen.add(state)
        at, upto = state
        if at == len(wide):
            if upto == len(narrow):
                return True
            continue
        token, found = wide[at], narrow[upto] if upto < len(narrow) else None
        if token in (_ANY, _PART, _FOLDERS):
            left.append((at + 1, upto))
            left += [(at, upto + 1)] if found is not None and _takes(token, found) else []
            left += [(at + 1, upto + 1)] if token == _FOLDERS and found in (_SEPARATOR, _FOLDERS) else []
        elif token == found:
            left.append((at + 1, upto + 1))
    return False


def _takes(wildcard: str, token: str) -> bool:
    return wildcard != _PART or token not in (_ANY, _FOLDERS, _SEPARATOR)


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Walk both globs over one path, token by token."""
    seen: set[tuple[int, int]] = set()
    left = [(0, 0)]
    while left:
        state = left.pop()
        if state in seen:
            continue
        seen.add(state)
        at, upto = state
        if at == len(one) and upto == len(other):
            return True
        mine = one[at] if at < len(one) else None
        its = other[upto] if upto < len(other) else None
        left += [(at + 1, upto)] if _is_wild(mine) else []
        left += [(at, upto + 1)] if _is_wild(its) else []
        if mine is not None and its is not None:
            left += [(at, upto + 1)] if _is_wild(mine) and _takes(mine, its) else []
            left += [(at + 1, upto)] if _is_wild(its) and _takes(its, mine) else []
            left += [(at + 1, upto + 1)] if mine == its else []
    return False


def _is_wild(token: str | None) -> bool:
    return token in (_ANY, _PART, _FOLDERS)
