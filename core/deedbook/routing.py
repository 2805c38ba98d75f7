"""Which skill a prompt asks for: deterministic, by name and trigger, without a model.

A skill whose name stands in the prompt comes before all others; then the one more of whose trigger words are there;
then the name decides. Words are whole and compared without regard to case (Unicode case folding after NFKC). Where
nothing fits, no skill is chosen.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from .contracts import Skill

_NAMED: Final = 1000


@attrs.frozen
class Choice:
    """A skill that fits. *score* is the number of trigger words found, and 1000 more if the skill is named."""

    skill: Skill
    score: int
    reason: str


def choose(prompt: str, skills: Iterable[Skill], *, says: str = "the prompt") -> list[Choice]:
    """Return the skills that fit *prompt*, best first; the order of *skills* makes no difference.

    *says* is what the reasons call the text.
    """
    text = _plain(prompt)
    found = [choice for skill in skills for choice in _fit(text, skill, says)]
    return sorted(found, key=lambda choice: (-choice.score, choice.skill.name, choice.skill.source))


def _fit(text: str, skill: Skill, says: str) -> Iterator[Choice]:
    name = _plain(skill.name)
    triggers = {_plain(trigger): trigger for trigger in reversed(skill.triggers)}
    hits = sorted(trigger for trigger in triggers if _says(text, trigger))
    words = min(sum(len(trigger.split()) for trigger in hits), _NAMED - 1)
    if _says(text, name, joined="-"):
        yield Choice(skill, _NAMED + words, f'{says} names "{skill.name}"')
    elif hits:
        yield Choice(skill, words, f"{says} says " + ", ".join(f'"{triggers[trigger]}"' for trigger in hits))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _says(text: str, words: str, *, joined: str = "") -> bool:
    """Say whether *words* stand in *text* as whole words; a character of *joined* beside them continues a word."""
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
