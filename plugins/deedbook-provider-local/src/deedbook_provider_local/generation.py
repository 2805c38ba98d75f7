"""Greedy generation: always the token with the highest score among those that the form allows."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from deedbook import Failed

from .form import Form
from .libraries import library
from .llama import BATCH, Pass
from .model import Model


@attrs.frozen
class Answer:
    """The generated text; *complete* unless it reached the limit of tokens."""

    text: str
    tokens: int
    complete: bool


def generate(
    model: Model, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tick: Callable[[], None]
) -> Answer:
    """Return the answer to *prompt*, at most *limit* tokens of it.

    *show* gets the text piece by piece; *tick* runs before each step and may raise. Raises `Failed` if the prompt and
    the answer do not fit into the model's context.
    """
    most = model.llama.shape.context
    if len(prompt) + limit > most:
        raise Failed(
            "PROVIDER_ERROR",
            f"the prompt has {len(prompt)} tokens and the answer may have {limit}, the model takes {most} together; "
            "shorten the conversation, lower max_output_tokens, or use a model that takes more",
        )
    matcher = form.grammar(model.vocabulary)
    choose = _TokenChooser(model, matcher) if matcher is not None else _Free(model)
    progress = Pass(model.llama)
    for start in range(0, len(prompt), BATCH):
        tick()
        logits = progress.feed(prompt[start : start + BATCH])
    made: list[int] = []
    while len(made) < limit:
        more = choose.next(logits)
        if not more:
            return Answer(model.vocabulary.decode(made), len(made), complete=True)
        more = more[: limit - len(made)]
        made += more
        show(model.vocabulary.decode(more))
        tick()
        logits = progress.feed(more)
    return Answer(model.vocabulary.decode(made), len(made), complete=choose.finished())


class _Free:
    """Chooses among all tokens but the control tokens, of which only the end is allowed."""

    def __init__(self, model: Model) -> None:
        self._end = model.vocabulary.end
        self._never = [token for token in model.vocabulary.control if token != self._end]

    def next(self, logits: Any) -> list[int]:
        """Return the next token; nothing at the end."""
        logits[self._never] = -float("inf")
        token = int(logits.argmax())
        return [] if token == self._end else [token]

    def finished(self) -> bool:
        """Return whether a text is complete although its end was not chosen."""
        return False


class _TokenChooser:
    """Chooses among the tokens that a grammar allows; tokens without an alternative cost no computation."""

    def __init__(self, model: Model, matcher: Any) -> None:
        self._end = model.vocabulary.end
        self._matcher = matcher
        self._np = library("numpy")

    def next(self, logits: Any) -> list[int]:
        """Return the next token and those that have to follow it; nothing at the end."""
        if self._matcher.is_stopped():
            return []
        allowed = self._np.frombuffer(self._matcher.compute_logit_bias(), self._np.uint8)[: len(logits)] > 0
        token = int(self._np.where(allowed, logits, -self._np.inf).argmax())
        if token == self._end:
            return []
        self._consume([token])
        forced = [] if self._matcher.is_stopped() else list(self._matcher.compute_ff_tokens())
        self._consume(forced)
        return [token, *forced]

    def finished(self) -> bool:
        """Return whether the text fits the form as it is."""
        return bool(self._matcher.is_accepting())

    def _consume(self, tokens: list[int]) -> None:
        if tokens and not self._matcher.consume_tokens(tokens):
            raise Failed("PROVIDER_ERROR", f"the form of the answer broke: {self._matcher.get_error()}")
