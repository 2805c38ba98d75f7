"""Match skills by keyword: by name and triggers, with an index; pure.

The meaning is that of the skill choice of ``deedbook run``: a skill that the task names comes first, then the one with
more trigger words in the task, then the order of names. Words are whole, and compared after NFKC and case folding. The
index finds the few phrases that share a word with the task; only these are looked for.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeAlias

from deedbook import Skill

from .matching import Match

NAMED: Final = 1000
"""The score of a name; the words of triggers count at most one less."""
MOST: Final = 32_768
"""How many characters of a task are used."""

_WORDS: Final = re.compile(r"[^\W_]+").findall


_Phrase: TypeAlias = tuple[int, str, str]
"""A name or a trigger: the number of its skill, its form for comparison, and as written; a name is written empty."""


class KeywordIndex:
    """Finds the skills whose name or triggers a task has; built once for all tasks."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._skills = sorted(skills, key=lambda skill: (skill.name, skill.source))
        self._phrases: dict[str, list[_Phrase]] = {}
        for number, skill in enumerate(self._skills):
            self._add(number, normalise(skill.name), "")
            spelled = {normalise(trigger): trigger for trigger in reversed(skill.triggers)}
            for text, written in spelled.items():
                self._add(number, text, written)

    def match(self, task: str) -> list[Match]:
        """Return the skills that *task* names or has a trigger of, the best first."""
        text = normalise(task[:MOST])
        found: dict[int, list[_Phrase]] = defaultdict(list)
        for word in set(_WORDS(text)):
            for phrase in self._phrases.get(word, ()):
                if _contains(text, phrase[1], "" if phrase[2] else "-"):
                    found[phrase[0]].append(phrase)
        made = [(number, self._describe(number, phrases)) for number, phrases in found.items()]
        return [match for _, match in sorted(made, key=lambda each: (-each[1].score, each[0]))]

    def _add(self, number: int, text: str, written: str) -> None:
        """Register a phrase under its longest word: a task without that word does not have the phrase."""
        words = text.split()
        key = max(words, key=len) if text.isascii() and "".join(words).isalnum() else _longest_word(text)
        if key:
            self._phrases.setdefault(key, []).append((number, text, written))

    def _describe(self, number: int, phrases: list[_Phrase]) -> Match:
        name = self._skills[number].name
        triggers = sorted((text, written) for _, text, written in phrases if written)
        words = min(sum(len(text.split()) for text, _ in triggers), NAMED - 1)
        if len(triggers) < len(phrases):
            return Match(name, NAMED + words, f'the task names "{name}"')
        return Match(name, words, "the task has " + ", ".join(f'"{written}"' for _, written in triggers))


def _longest_word(text: str) -> str:
    return max(_WORDS(text), key=len, default="")


def normalise(text: str) -> str:
    """Return *text* in the form for comparison: NFKC, case-folded, one space between words."""
    composed = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(composed.casefold().split())


def _contains(text: str, phrase: str, joined: str) -> bool:
    """Return whether *text* has *phrase* as whole words; a character of *joined* beside it continues a word."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not _continues(text[start - 1 : start], joined) and not _continues(text[end : end + 1], joined):
            return True
        start = text.find(phrase, start + 1)
    return False


def _continues(neighbour: str, joined: str) -> bool:
    return neighbour.isalnum() or neighbour == "_" or (neighbour != "" and neighbour in joined)
