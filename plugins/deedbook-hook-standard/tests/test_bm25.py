"""BM25: the published formula, worked out ahead; words of any script; the same answer wherever it is asked."""

from collections import Counter
from math import isclose, log

from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook_hook_standard.bm25 import COMMON, K1, UNIT, B, Index, words

WORDS = st.sampled_from(["red", "green", "blue", "teal", "file", "write", "the"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=8), max_size=8)


def plainly(documents, question):
    """Return the scores as the formula says them, asking every document."""
    average = sum(map(len, documents)) / len(documents) if documents else 0
    found = {}
    for number, document in enumerate(documents):
        counts, total = Counter(document), 0.0
        for word in set(question) - COMMON:
            n, times = sum(word in each for each in documents), counts[word]
            rarity = log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            if times:
                total += rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * len(document) / average))
        if total:
            found[number] = total
    return found


@given(DOCUMENTS, st.lists(WORDS, max_size=6))
def test_scores_are_those_of_the_formula(documents, question):
    index = Index(documents)
    found = index.scores(index.known_words(question))
    wanted = plainly(documents, question)
    assert found.keys() == wanted.keys()
    assert all(isclose(found[number] / UNIT, wanted[number], abs_tol=5e-6) for number in wanted)


@given(DOCUMENTS, st.lists(WORDS, max_size=6), st.randoms())
def test_order_of_the_question_makes_no_difference_to_the_last_digit(documents, question, luck):
    index = Index(documents)
    shuffled = [*question, *question]
    luck.shuffle(shuffled)
    assert index.scores(index.known_words(question)) == index.scores(index.known_words(shuffled))


def test_rare_words_tell_more_than_frequent_ones():
    index = Index([["file", "read"], ["file", "write"], ["file", "hash"]])
    scores = index.scores(index.known_words(["file", "hash"]))
    assert max(scores, key=scores.__getitem__) == 2
    assert index.rarity("hash") > index.rarity("file") > index.rarity("unknown") == 0
    assert index.known_words(["file", "hash", "what"]) == ["hash", "file"]


def test_a_document_gains_little_by_saying_a_word_again_and_again():
    index = Index([["pay"], ["pay"] * 1000, ["rest"] * 100])
    scores = index.scores(["pay"])
    assert scores[1] < scores[0] * (K1 + 1)


def test_common_words_say_nothing():
    assert Index([["the", "a"], ["with"]]).known_words(["the", "a", "with"]) == []


def test_nothing_is_found_among_nothing():
    assert Index([]).scores([]) == {}
    assert Index([[], []]).known_words(["x"]) == []


@for_each(
    ("text", "found"),
    [
        ("file-write", ["file", "write"]),
        ("git/push_all", ["git", "push", "all"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("ｆｉｌｅ", ["file"]),  # noqa: RUF001 - full-width letters are what this is about
        ("Отчёт за июнь, 2026", ["отчёт", "за", "июнь", "2026"]),
        ("cafe\u0301", ["café"]),
        ("報告を書く", ["報告を書く"]),
        ("…  —!", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_of_any_script(text, found):
    assert words(text) == found
