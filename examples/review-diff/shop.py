"""Prices of a shop."""


def total(prices: list[int]) -> int:
    """Return the sum of *prices*."""
    return sum(prices)
