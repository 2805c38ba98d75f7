"""Choose the skill for a prompt, by name and trigger, deterministically and without a model.

A skill that the prompt names comes first; then the one with more trigger words in the prompt; then the order of names.
Words are whole and compared without regard to case (Unicode case folding after NFKC). If nothing matches, no skill is
chosen. Abilities and sections of ``ROUTING.md`` are found in the same way (`routes`).
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

import attrs

from deedbook.contract import Skill

_NAMED: Final = 1000


@attrs.frozen
class Fit:
    """How a name and its triggers match a text: *named*, the number of trigger words, the triggers, and the reason."""

    named: bool
    words: int
    triggers: tuple[str, ...]
    reason: str


@attrs.frozen
class Choice:
    """A skill that matches. *score* is the number of trigger words found, plus 1000 if the skill is named."""

    skill: Skill
    score: int
    reason: str


def choose(prompt: str, skills: Iterable[Skill], *, says: str = "the prompt") -> list[Choice]:
    """Return the skills that match *prompt*, best first, in an order that does not depend on *skills*.

    *says* is the name of the text in the reasons.
    """
    text = plain(prompt)
    fits = ((skill, fit(text, skill.name, skill.triggers, says=says)) for skill in skills)
    found = [Choice(skill, made.words + _NAMED * made.named, made.reason) for skill, made in fits if made]
    return sorted(found, key=lambda choice: (-choice.score, choice.skill.name, choice.skill.source))


def fit(text: str, name: str, triggers: Iterable[str], *, says: str, joined: str = "-") -> Fit | None:
    """Return how *name* and *triggers* match a `plain` text; ``None`` if they do not.

    A character of *joined* beside a name continues it: "word-count-2" does not name "word-count".
    """
    spelled = {plain(trigger): trigger for trigger in reversed(list(triggers))}
    hits = sorted(trigger for trigger in spelled if contains_words(text, trigger))
    count = min(sum(len(trigger.split()) for trigger in hits), _NAMED - 1)
    found = tuple(spelled[trigger] for trigger in hits)
    if contains_words(text, plain(name), joined=joined):
        return Fit(True, count, found, f'{says} names "{name}"')
    return Fit(False, count, found, f"{says} says " + ", ".join(f'"{each}"' for each in found)) if hits else None


def plain(text: str) -> str:
    """Return *text* in the form for comparison: NFKC, case-folded, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def contains_words(text: str, words: str, *, joined: str = "") -> bool:
    """Return whether *text* contains *words* as whole words; a character of *joined* beside them continues a word."""
    if not any(map(str.isalnum, words)):
        return False
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        if not _continues(text[start - 1 : start], joined) and not _continues(text[end : end + 1], joined):
            return True
        start = text.find(words, start + 1)
    return False


def _continues(neighbour: str, joined: str) -> bool:
    return neighbour.isalnum() or neighbour == "_" or (neighbour != "" and neighbour in joined)
