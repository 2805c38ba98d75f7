"""Match skills by hashing vectors: words, pairs of words and parts of words, hashed and compared by cosine; pure.

This compares spelling, not meaning: "greeting" is near "greet", and "welcome" is not. There is no language model and no
download. Hashes are CRC-32, and weights whole millionths, so every machine gives the same order.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import log, sqrt
from typing import Final
from zlib import crc32

from deedbook import Skill

from .keywords import MOST, KeywordIndex, normalise
from .matching import Match

_WORDS: Final = re.compile(r"[^\W_]+").findall

BUCKETS: Final = 1 << 20
UNIT: Final = 1_000_000
PARTS: Final = (3, 4, 5)
"""The lengths of the parts of words that are compared."""
SIMILARITY: Final = 0.2
"""The least similarity of a skill to the task, from 0 to 1."""
MOST_SIMILAR: Final = 3
"""How many skills are added by similarity alone."""
COMMON: Final = frozenset(
    _WORDS(
        "a an and are as at be by can do for from has have how i in into is it its me my of on one or our please so "
        "some that the their them then there these they this to up us was we what when where which who will with "
        "you your"
    )
)
"""English words that are left out. There is no list for other languages."""


class HashingMatcher:
    """Finds skills by keyword, and then those whose name, description and triggers are spelled like the task.

    A skill that only its name selects (``disable-model-invocation``) is never found by similarity.
    """

    def __init__(self, skills: Iterable[Skill], similarity: float = SIMILARITY, most: int = MOST_SIMILAR) -> None:
        every = list(skills)
        self._keywords = KeywordIndex(every)
        self._similarity, self._most = similarity, most
        offered = sorted((each for each in every if not _only_by_name(each)), key=lambda each: (each.name, each.source))
        self._names = [skill.name for skill in offered]
        counts = [Counter(_features(_text(skill))) for skill in offered]
        seen = Counter(bucket for each in counts for bucket in each)
        self._rarity = {bucket: log(1 + len(offered) / count) for bucket, count in seen.items()}
        self._unknown = log(2 + len(offered))
        self._postings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, each in enumerate(counts):
            for bucket, weight in self._weigh(each).items():
                self._postings[bucket].append((number, weight))

    def match(self, task: str) -> list[Match]:
        """Return the skills that fit by keyword, then the most similar others."""
        found = self._keywords.match(task)
        named = {match.name for match in found}
        similar = sorted((-score, self._names[number]) for number, score in self._compare(task).items())
        others = [(name, -score / UNIT) for score, name in similar if name not in named]
        return found + [
            Match(name, 0, f"its description is spelled like the task (similarity {score:.2f})")
            for name, score in others[: self._most]
            if score >= self._similarity
        ]

    def _compare(self, task: str) -> dict[int, int]:
        """Return the similarity to each skill that shares a feature with *task*, in millionths."""
        scores: dict[int, int] = defaultdict(int)
        for bucket, weight in self._weigh(Counter(_features(normalise(task[:MOST])))).items():
            for number, other in self._postings.get(bucket, ()):
                scores[number] += weight * other
        return {number: score // UNIT for number, score in scores.items()}

    def _weigh(self, counts: Counter[int]) -> dict[int, int]:
        """Return the vector of a text, of length 1, in millionths."""
        raw = {
            bucket: (1 + log(count)) * self._rarity.get(bucket, self._unknown)
            for bucket, count in sorted(counts.items())
        }
        length = sqrt(sum(weight * weight for weight in raw.values()))
        return {bucket: round(weight / length * UNIT) for bucket, weight in raw.items()}


def _only_by_name(skill: Skill) -> bool:
    return skill.metadata.get("disable-model-invocation") is True


def _text(skill: Skill) -> str:
    return normalise(" ".join([skill.name, skill.description, *skill.triggers]))


def _features(text: str) -> Iterator[int]:
    """Yield the bucket of each word, pair of words and part of a word."""
    words = [word for word in _WORDS(text) if word not in COMMON]
    for feature in (*words, *map(" ".join, pairwise(words))):
        yield crc32(feature.encode("utf-8", "surrogatepass")) % BUCKETS
    for word in words:
        framed = f"<{word}>"
        for size in PARTS:
            for at in range(len(framed) - size + 1):
                yield crc32(framed[at : at + size].encode("utf-8", "surrogatepass")) % BUCKETS
