"""Addresses that are not taken yet."""

from collections.abc import Container

from .slugs import LONGEST, slugify


def unique_slug(text: str, taken: Container[str], longest: int = LONGEST) -> str:
    """Return the slug of *text*, with a number behind it if it is in *taken*."""
    slug = slugify(text, longest)
    number = 2
    while slug in taken:
        slug = slugify(f"{text} {number}", longest)
        number += 1
    return slug
