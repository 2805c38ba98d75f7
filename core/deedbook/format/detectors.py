"""Detectors of values that must not be public, found in linear time in any text.

``card`` finds payment card numbers, ``secret`` tokens of well-known forms, and a workspace adds patterns of its own.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

NAMES: Final = frozenset({"card", "secret"})
"""The detectors of the kernel."""

_HEX_ID: Final = re.compile(r"(?=.*[a-f])(?:[0-9a-f]{32}|[0-9a-f]{64})")
_GROUPS: Final = re.compile(r"[0-9]+(?:[ -][0-9]+)*")
_SIXTEEN: Final = re.compile(r"(?<![0-9_])[0-9]{16}(?![0-9_])")
_IN_A_NAME: Final = re.compile(r"(?<![0-9])(?<!\bcall_)(?<!\btoolu_)(?<!\bfc_)[2-6][0-9]{15}(?![0-9])")
_CARD_HINT: Final = "[0-9]([ -]?[0-9]){12}"
TOKENS: Final = (
    "gh[opsur]_[A-Za-z0-9]{36}", "github_pat_[A-Za-z0-9_]{22}", "glpat-[A-Za-z0-9_-]{20}",
    "(AKIA|ASIA)[A-Z0-9]{16}", "AIza[A-Za-z0-9_-]{35}", "[rs]k_(live|test)_[A-Za-z0-9]{16}",
    "xox[abeoprs]-[A-Za-z0-9-]{10}", "hf_[A-Za-z0-9]{30}", "npm_[A-Za-z0-9]{36}", "pypi-[A-Za-z0-9_-]{16}",
    "dop_v1_[a-f0-9]{64}", "SG[.][A-Za-z0-9_-]{16,}[.][A-Za-z0-9_-]{16}",
    "eyJ[A-Za-z0-9_-]{8,}[.]eyJ[A-Za-z0-9_-]{8,}[.][A-Za-z0-9_-]{8}",
    "-----BEGIN [A-Z ]*PRIVATE KEY-----", "[a-z][a-z0-9+.-]*://[^/?#@ :]+:[^/?#@ ]+@",
)  # fmt: skip
_KEY_HINT: Final = "sk-[A-Za-z0-9_-]{20}"
KEY: Final = f"(^|[^A-Za-z0-9]){_KEY_HINT}"  # "risk-" begins no key


class Detectors:
    """The detectors *names* (of `NAMES`) and the *patterns* of a workspace, combined."""

    def __init__(self, names: Collection[str], patterns: Sequence[str]) -> None:
        self._cards = "card" in names
        secrets = "secret" in names
        hints = [*([_CARD_HINT] if self._cards else []), *([*TOKENS, _KEY_HINT] if secrets else [])]
        exact = [*patterns, *([*TOKENS, KEY] if secrets else [])]
        # a user's pattern applies to values, not to their JSON, so a whole payload cannot be ruled out at once
        self._hint = find_any(*hints) if hints and not patterns else None
        self._patterns = tuple(exact)

    def suspects(self, payload: bytes) -> bool:
        """Return whether *payload* may contain a match; never ``False`` if it does."""
        return self._hint is None or self._hint.is_valid(payload.decode())

    def fires(self, text: str) -> bool:
        """Return whether *text* contains a match."""
        return (self._exact is not None and self._exact.is_valid(text)) or (self._cards and has_card(text))

    @cached_property
    def _exact(self) -> Draft202012Validator | None:
        """The exact patterns, compiled when a text is first looked at: a quick test rules most of them out."""
        return find_any(*self._patterns) if self._patterns else None


@lru_cache(maxsize=64)
def find_any(*patterns: str) -> Draft202012Validator:
    """Compile regular expressions of linear time into one validator: a string is valid if any of them is found in it.

    The engine is Rust's, which has no look-around and no back-references; a pattern it refuses is a `ValueError`.
    """
    try:
        return Draft202012Validator(
            {"type": "string", "anyOf": [{"pattern": pattern} for pattern in patterns]}, pattern_options=RegexOptions()
        )
    except (ValidationError, ValueError):
        raise ValueError(
            f"{patterns[0]!r} is no pattern of linear time; leave out look-around and back-references"
        ) from None


def has_card(text: str) -> bool:
    """Return whether *text* has a run of exactly 16 digits, or 13 to 19 digits with separators that pass Luhn.

    A separator is one space or hyphen. Any whole groups of a longer run count, so a number before a card hides nothing.
    A SHA-256, a trace id and the id of a tool call (``call_``, ``toolu_`` or ``fc_`` with digits) are no cards; another
    run beside ``_`` must begin with 2 to 6 and pass Luhn. Linear time.
    """
    if _HEX_ID.fullmatch(text):
        return False
    runs = [*_GROUPS.findall(text), *(f"{run[:8]} {run[8:]}" for run in _IN_A_NAME.findall(text))]
    return bool(_SIXTEEN.search(text)) or any(map(_luhn_in, runs))


def _luhn_in(run: str) -> bool:
    """Search 13 to 19 digits that pass Luhn, from the start of one group to the end of a later one."""
    groups = run.replace("-", " ").split(" ")
    ends = list(accumulate(map(len, groups)))
    if len(groups) == 1 or ends[-1] < 13:
        return False
    digits = [int(digit) for group in groups for digit in group]
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits]
    # sums[p][i]: the first i digits added up, those at places of parity p doubled
    places = list(enumerate(zip(digits, doubled, strict=True)))
    sums = [list(accumulate((pair[i % 2 == p] for i, pair in places), initial=0)) for p in (0, 1)]
    return any((sums[end % 2][end] - sums[end % 2][start]) % 10 == 0 for start, end in _windows(ends))


def _windows(ends: list[int]) -> Iterator[tuple[int, int]]:
    """Yield start and end of two or more adjacent groups that have 13 to 19 digits together."""
    for first, start in enumerate([0, *ends[:-1]]):
        for end in ends[first + 1 : first + 19]:
            if end - start > 19:
                break
            if end - start >= 13:
                yield start, end
