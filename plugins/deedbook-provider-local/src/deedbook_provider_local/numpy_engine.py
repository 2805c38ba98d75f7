"""The engine that is always there: NumPy computes with the weights unpacked to float32."""

from collections.abc import Callable, Sequence
from typing import Any

from deedbook import Failed

from .engine import Answer, Tell
from .form import Form
from .libraries import engine_name, library
from .llama import BATCH, Llama, Pass
from .memory import MB
from .vocabulary import Vocabulary


class NumPyEngine:
    """Computes with *llama* one token after the other; tokens that a grammar dictates are computed at once."""

    def __init__(self, llama: Llama, vocabulary: Vocabulary, threads: int) -> None:
        self._llama = llama
        self._threads = threads
        self._vocabulary = vocabulary
        self.name = engine_name("numpy")
        self.context = llama.shape.context
        self.memory = f"{llama.size() / MB:.0f} MB of unpacked weights in memory"

    def generate(
        self, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tell: Tell
    ) -> Answer:
        """Return the answer to *prompt*; meanwhile, this process's BLAS uses so many threads as the setting says."""
        with library("threadpoolctl").threadpool_limits(self._threads, user_api="blas"):
            return self._generate(prompt, form, limit, show, tell)

    def _generate(
        self, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tell: Tell
    ) -> Answer:
        vocabulary = self._vocabulary
        matcher = form.grammar(vocabulary)
        choose = _Free(vocabulary) if matcher is None else _TokenChooser(vocabulary, matcher)
        progress = Pass(self._llama)
        for start in range(0, len(prompt), BATCH):
            tell(f"read {start} of {len(prompt)} tokens")
            logits = progress.feed(prompt[start : start + BATCH])
        made: list[int] = []
        while len(made) < limit:
            more = choose.next(logits)
            if not more:
                return Answer(vocabulary.decode(made), len(made), complete=True)
            more = more[: limit - len(made)]
            made += more
            show(vocabulary.decode(more))
            tell(f"wrote {len(made)} tokens")
            logits = progress.feed(more)
        return Answer(vocabulary.decode(made), len(made), complete=choose.finished())

    def close(self) -> None:
        """Do nothing: the memory goes with the last reference."""


class _Free:
    """Chooses among all tokens but the control tokens, of which only the end is allowed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._end = vocabulary.end
        self._never = [token for token in vocabulary.control if token != self._end]

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

    def __init__(self, vocabulary: Vocabulary, matcher: Any) -> None:
        self._end = vocabulary.end
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
