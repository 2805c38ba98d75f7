"""What an engine offers: one forward pass of the model after another, on this machine's processor."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from .form import Form
from .libraries import FASTER

AUTO: Final = "auto"
NUMPY: Final = "numpy"
XLLAMACPP: Final = FASTER
ENGINES: Final = (AUTO, NUMPY, XLLAMACPP)
"""The values of the setting ``engine``; `AUTO` is xllamacpp where it is installed, else NumPy."""

Tell = Callable[[str], None]
"""Shows one line of progress, nothing if it is empty; raises `Failed` if the call has no time left."""


@attrs.frozen
class Answer:
    """The generated text; *complete* unless it reached the limit of tokens."""

    text: str
    tokens: int
    complete: bool


class Engine(Protocol):
    """Generates greedily: always the token with the highest score among those that the form allows.

    *name* is recorded with every answer and has the versions of the libraries that compute. *context* is how many
    tokens a prompt and its answer may have together. *memory* says in one line what the weights occupy.
    """

    name: str
    context: int
    memory: str

    def generate(
        self, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tell: Tell
    ) -> Answer:
        """Return at most *limit* tokens of answer; *show* gets its pieces, *tell* runs before each step."""

    def close(self) -> None:
        """Release the memory."""
