"""Removes card numbers from a prompt before it is read or recorded."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, TypeAlias

from deedbook.contract import Decision, GateSpec, Host, Object, Principal, allow, hookimpl, transform

MARK: Final = "[REDACTED-CARD]"
SHORTEST: Final = 13
LONGEST: Final = 19

_Group: TypeAlias = re.Match[str]
_RUN: Final = 16
_PRINTED: Final = 3  # the smallest group in which cards are printed, as in 4-4-4-4-3
_SPACES: Final = r" \t\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff"
_DASHES: Final = r"\-\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_CHAIN: Final = re.compile(rf"\d+(?:[{_SPACES}{_DASHES}]{{1,3}}\d+)*")
_GROUPS: Final = re.compile(r"\d+").finditer


class RedactPii:
    """Takes card numbers out of prompts."""

    spec: ClassVar[GateSpec] = GateSpec(
        settings={"type": "object", "additionalProperties": False}, pure=True, rewrites=True
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Bind; there is nothing to set."""

    @hookimpl
    def user_prompt_submit(self, prompt: str, principal: Principal, session: str, now: str, facts: Object) -> Decision:  # noqa: ARG002 - the event's signature
        """Allow a prompt without card numbers; otherwise go on with what is left of it."""
        left = redact(prompt)
        return allow() if left == prompt else transform({"prompt": left}, "redacted what may be a card number")


def redact(text: str) -> str:
    """Return *text* with `MARK` for every run of exactly 16 digits, and for 13 to 19 with separators that pass Luhn.

    Separators are one to three spaces or dashes. In a longer chain of groups those of three digits and more are looked
    through; a chain of 13 to 19 digits may be grouped in any way. Linear in the text; a second pass changes nothing.
    """
    return _CHAIN.sub(_whole, _CHAIN.sub(_within, text))


def passes_luhn(digits: str) -> bool:
    """Return whether the last of *digits* is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    values = [int(digit) for digit in reversed(digits)]
    return (sum(values[::2]) + sum(2 * value - 9 * (value > 4) for value in values[1::2])) % 10 == 0


def _within(chain: re.Match[str]) -> str:
    """Replace the chain if it is a card, and runs of 16 and cards as they are printed wherever they stand in it."""
    text = chain[0]
    if len(text) < SHORTEST:
        return text
    groups = list(_GROUPS(text))
    made, end = [], 0
    whole = [(0, len(text))] if _is_card(text) else []
    for start, stop in _merge_spans(sorted([*whole, *_runs(groups), *_find_printed_cards(groups)])):
        made += [text[end:start], MARK]
        end = stop
    return "".join(made) + text[end:]


def _whole(chain: re.Match[str]) -> str:
    """Replace what is left of a chain, if that is a card by itself."""
    return MARK if _is_card(chain[0]) else chain[0]


def _is_card(chain: str) -> bool:
    """Return whether *chain* as a whole has separators and 13 to 19 digits that pass Luhn."""
    digits = "".join(group[0] for group in _GROUPS(chain))
    return len(digits) < len(chain) and SHORTEST <= len(digits) <= LONGEST and passes_luhn(digits)


def _runs(groups: Sequence[_Group]) -> Iterator[tuple[int, int]]:
    return (group.span() for group in groups if len(group[0]) == _RUN)


def _find_printed_cards(groups: Sequence[_Group]) -> Iterator[tuple[int, int]]:
    """Yield where two or more neighbouring groups of three digits and more are a card together."""
    for first, group in enumerate(groups):
        digits = ""
        for last in groups[first : first + LONGEST]:
            if len(last[0]) < _PRINTED or len(digits) + len(last[0]) > LONGEST:
                break
            digits += last[0]
            if len(digits) >= SHORTEST and last is not group and passes_luhn(digits):
                yield group.start(), last.end()


def _merge_spans(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield *spans*, sorted, with those that overlap as one."""
    start = end = -1
    for first, last in spans:
        if first >= end:
            if end >= 0:
                yield start, end
            start = first
        end = max(end, last)
    if end >= 0:
        yield start, end
