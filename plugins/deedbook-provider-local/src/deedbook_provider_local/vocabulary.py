"""The vocabulary of a model: text to tokens and back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .libraries import library

_CONTROL: Final = 3
"""The type of a token that no text contains, in the metadata of a GGUF file."""
_PRE: Final = "smollm"


class Vocabulary:
    """A byte-level BPE vocabulary, read from the metadata of a GGUF file.

    No text is read as a control token: ``<|im_end|>`` in a message is ten ordinary characters, so that the content of a
    message cannot begin another one.
    """

    def __init__(self, tokens: Sequence[str], types: Sequence[int], merges: Sequence[str], end: int, pre: str) -> None:
        if pre != _PRE:
            raise ValueError(f"the vocabulary is split as {pre!r}, expected is {_PRE!r}")
        self._ids = {token: number for number, token in enumerate(tokens)}
        self.control = [number for number, kind in enumerate(types) if kind == _CONTROL]
        self.end = end
        characters = _byte_of_character()
        hidden = set(self.control)
        self._bytes = [
            token.encode() if number in hidden else bytes(characters[each] for each in token)
            for number, token in enumerate(tokens)
        ]
        self._tokenizer = self._build(merges)
        self.grammars = self._grammar_tokenizer()

    def __len__(self) -> int:
        return len(self._bytes)

    def control_token(self, name: str) -> int:
        """Return the id of a control token such as ``<|im_start|>``."""
        return self._ids[name]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        found: list[int] = self._tokenizer.encode(text).ids
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self._bytes[token] for token in tokens).decode(errors="replace")

    def _build(self, merges: Sequence[str]) -> Any:
        tokenizers = library("tokenizers")
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
        made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=self._ids, merges=pairs))
        split = tokenizers.pre_tokenizers
        made.pre_tokenizer = split.Sequence(
            [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False, use_regex=True)]
        )
        return made

    def _grammar_tokenizer(self) -> Any:
        llguidance = library("llguidance")
        wrapper = llguidance.TokenizerWrapper(_GrammarVocabulary(self))
        return llguidance.LLTokenizer(wrapper, n_vocab=len(self), eos_token=self.end)


class _GrammarVocabulary:
    """The vocabulary in the form that llguidance expects."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.end
        self.bos_token_id = None
        self.tokens = vocabulary._bytes  # noqa: SLF001 - a part of the vocabulary
        self.special_token_ids = vocabulary.control
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode(errors="replace"))


def _byte_of_character() -> Mapping[str, int]:
    """Return the byte that each character of a token stands for, as GPT-2's vocabulary defines it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
