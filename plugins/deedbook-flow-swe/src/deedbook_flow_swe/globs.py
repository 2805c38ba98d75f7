"""Compare globs over paths without a file at hand: whether one covers another, and whether two overlap; pure.

``*`` is any text without ``/``, ``**`` any text, ``**/`` at the start of a segment any folders or none, and ``/`` at
the end stands for all that is below. A placeholder such as ``{task-id}`` is a part of a segment that is the same
wherever it has the same name, and different from everything else: two globs are compared for one task.
"""

import re
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
        if _is_wild(token):
            left.append((at + 1, upto))
            left += [(at, upto + 1)] if found is not None and _takes(token, found) else []
        elif token == found:
            left.append((at + 1, upto + 1))
    return False


def _overlap(one: Tokens, other: Tokens) -> bool:
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


def _takes(wildcard: str, token: str) -> bool:
    """Return whether a wildcard takes up a token; ``*`` takes no slash, and nothing that may have one."""
    return wildcard == _ANY or token not in (_ANY, _SEPARATOR)


def _is_wild(token: str | None) -> bool:
    return token in (_ANY, _PART)
