"""Addresses that are not taken yet."""

from textkit.unique import unique_slug


def test_free_slug_is_used_as_it_is():
    assert unique_slug("Hello", {"world"}) == "hello"
