"""BM25: rank documents by the words of a text; pure.

The formula is Okapi's (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with the inverse document
frequency that is never negative. Weights are computed when the index is built, so a query only adds them up.
"""

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Final

K1: Final = 1.2
"""Saturation of term frequency."""
B: Final = 0.75
"""Strength of document length normalisation."""
UNIT: Final = 1_000_000
"""Scores are whole millionths, so their sum is the same in every order and on every machine."""
COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do for from how i in is it its me my of on or our please so that the their them "
        "then there these they this to us was we what when where which who will with you your",
    )
)
"""English stop words. There is no list for other languages."""

_WORDS: Final = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return the words of *text*: runs of letters and digits of any script, NFKC and case-folded."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


class Index:
    """A search index over documents, each a sequence of words."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        average = sum(map(len, documents)) / len(documents) if documents else 0.0
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, document in enumerate(documents):
            for word, times in Counter(document).items():
                if word not in COMMON:
                    found[word].append((number, times))
        self._rarity = {word: log(1 + (len(documents) - n + 0.5) / (n + 0.5)) for word, n in _counts(found)}
        self._postings: Mapping[str, tuple[array[int], array[int]]] = {
            word: (
                array("L", [number for number, _ in hits]),
                array("L", [self._worth(word, times, len(documents[number]) / average) for number, times in hits]),
            )
            for word, hits in found.items()
        }

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word: 0 if no document has it."""
        return self._rarity.get(word, 0.0)

    def known_words(self, text: Iterable[str]) -> list[str]:
        """Return the distinct words of *text* that some document has, the rarest first, then by letters."""
        return sorted(self._postings.keys() & set(text), key=lambda word: (-self._rarity[word], word))

    def scores(self, known: Iterable[str]) -> dict[int, int]:
        """Return the score of each document that has any of these words, in millionths, by its number."""
        total: dict[int, int] = defaultdict(int)
        for word in known:
            for number, worth in zip(*self._postings[word], strict=True):
                total[number] += worth
        return total

    def _worth(self, word: str, times: int, length: float) -> int:
        """Return the score of *times* occurrences of a word in a document of *length* times the average."""
        weight = times * (K1 + 1) / (times + K1 * (1 - B + B * length))
        return round(self._rarity[word] * weight * UNIT)


def _counts(found: Mapping[str, Sequence[object]]) -> Iterable[tuple[str, int]]:
    return ((word, len(hits)) for word, hits in found.items())
