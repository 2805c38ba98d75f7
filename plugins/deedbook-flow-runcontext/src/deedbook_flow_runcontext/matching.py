"""What a matcher answers: the skills that fit a task, with reasons."""

from typing import Protocol

import attrs


@attrs.frozen
class Match:
    """A skill that fits a task, by *name*, and why. A higher *score* is a better match of the same matcher."""

    name: str
    score: int
    reason: str


class Matcher(Protocol):
    """Finds skills for a task. The same task and the same skills give the same answer."""

    def match(self, task: str) -> list[Match]:
        """Return the skills that fit *task*, the best first, each once."""
