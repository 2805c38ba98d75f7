"""Work for a process of its own, which has to find it by name; 13 is what it cannot do."""

from collections.abc import Callable


def doubler() -> Callable[[int], int]:
    """Return what doubles a number."""
    return lambda number: number * 2 if number != 13 else 1 // 0
