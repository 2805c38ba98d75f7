"""Addresses for titles."""

from textkit.slugs import slugify


def test_words_are_joined_by_hyphens():
    assert slugify("Hello, World!") == "hello-world"


def test_accents_are_dropped():
    assert slugify("Crème brûlée") == "creme-brulee"


def test_slug_is_no_longer_than_allowed():
    assert slugify("a bc def", longest=5) == "a-bc"
