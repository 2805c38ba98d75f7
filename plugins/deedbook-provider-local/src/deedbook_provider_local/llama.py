"""The forward pass of a Llama model (Touvron et al. 2023, arXiv:2302.13971) in float32, with NumPy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import attrs

from .libraries import library

Array = Any
"""A ``numpy.ndarray`` of float32: NumPy is imported at the first call, so types cannot name it."""

_ARCHITECTURE: Final = "llama"
BATCH: Final = 128
"""How many tokens of a prompt are computed at once."""


@attrs.frozen(kw_only=True)
class Shape:
    """The sizes of a model, from the metadata of its file."""

    blocks: int
    context: int
    heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    rope_base: float

    @classmethod
    def of(cls, metadata: Callable[[str], Any]) -> Self:
        """Read the sizes; raises ``ValueError`` for another architecture."""
        if metadata("general.architecture") != _ARCHITECTURE:
            raise ValueError(f"the architecture is {metadata('general.architecture')}, expected is {_ARCHITECTURE}")
        heads = int(metadata("llama.attention.head_count"))
        return cls(
            blocks=int(metadata("llama.block_count")),
            context=int(metadata("llama.context_length")),
            heads=heads,
            kv_heads=int(metadata("llama.attention.head_count_kv")),
            head_size=int(metadata("llama.embedding_length")) // heads,
            epsilon=float(metadata("llama.attention.layer_norm_rms_epsilon")),
            rope_base=float(metadata("llama.rope.freq_base")),
        )


@attrs.frozen
class Block:
    """The matrices of one block; what is multiplied by the same vector is one matrix."""

    attention_norm: Array
    qkv: Array
    attention_out: Array
    feed_norm: Array
    gate_up: Array
    down: Array

    @classmethod
    def of(cls, tensors: Mapping[str, Array], number: int) -> Self:
        """Take the matrices of block *number* from *tensors*."""
        np = library("numpy")

        def get(name: str) -> Array:
            return tensors[f"blk.{number}.{name}.weight"]

        return cls(
            get("attn_norm"),
            np.concatenate([get("attn_q"), get("attn_k"), get("attn_v")]),
            get("attn_output"),
            get("ffn_norm"),
            np.concatenate([get("ffn_gate"), get("ffn_up")]),
            get("ffn_down"),
        )


class Llama:
    """The model: constant after construction, shared by all calls."""

    def __init__(self, shape: Shape, blocks: Sequence[Block], embedding: Array, norm: Array) -> None:
        self.shape = shape
        self.blocks = blocks
        self.embedding = embedding
        self.norm = norm

    def size(self) -> int:
        """Return the memory of the unpacked weights in bytes."""
        arrays = [self.embedding, self.norm, *(array for block in self.blocks for array in attrs.astuple(block))]
        return sum(int(array.nbytes) for array in arrays)


class Pass:
    """One answer in progress: the keys and values of the tokens so far.

    Everything is float32: a float64 among the factors would promote all that follows.
    """

    def __init__(self, model: Llama) -> None:
        np = self._np = library("numpy")
        self._model = model
        shape = model.shape
        self.length = 0
        self._keys: list[Array] = [None] * shape.blocks
        self._values: list[Array] = [None] * shape.blocks
        half = np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size
        self._frequencies = shape.rope_base**-half

    def feed(self, tokens: Sequence[int]) -> Array:
        """Add *tokens*, and return the logits of the token that follows them."""
        np, model = self._np, self._model
        x = model.embedding[np.asarray(tokens)]
        angles = np.arange(self.length, self.length + len(tokens))[:, None] * self._frequencies
        turn = np.cos(angles).astype(np.float32)[:, None], np.sin(angles).astype(np.float32)[:, None]
        for number, block in enumerate(model.blocks):
            x = x + self._attend(number, block, self._normal(x, block.attention_norm), turn)
            x = x + self._feed_forward(block, self._normal(x, block.feed_norm))
        self.length += len(tokens)
        return model.embedding @ self._normal(x[-1], model.norm)

    def _normal(self, x: Array, weight: Array) -> Array:
        mean = self._np.vecdot(x, x)[..., None] / self._np.float32(x.shape[-1])
        return x / self._np.sqrt(mean + self._np.float32(self._model.shape.epsilon)) * weight

    def _feed_forward(self, block: Block, x: Array) -> Array:
        both = _product(x, block.gate_up)
        half = both.shape[-1] // 2
        gate, up = both[:, :half], both[:, half:]
        return _product(gate / (1 + self._np.exp(-gate)) * up, block.down)

    def _attend(self, number: int, block: Block, x: Array, turn: tuple[Array, Array]) -> Array:
        np, shape = self._np, self._model.shape
        count, size = len(x), shape.head_size
        heads = _product(x, block.qkv).reshape(count, -1, size)
        split = shape.heads + shape.kv_heads
        turned = self._rotate(heads[:, :split], turn)
        keys = self._extend(self._keys, number, turned[:, shape.heads :])
        values = self._extend(self._values, number, heads[:, split:])
        # (groups, heads of a group * tokens, size): the heads of a group share keys and values
        groups = turned[:, : shape.heads].reshape(count, shape.kv_heads, -1, size)
        query = groups.transpose(1, 2, 0, 3).reshape(shape.kv_heads, -1, size)
        scores = query @ keys.transpose(1, 2, 0) * np.float32(size**-0.5)
        if count > 1:
            later = np.triu(np.full((count, self.length + count), -np.inf, np.float32), self.length + 1)
            scores = (scores.reshape(shape.kv_heads, -1, *later.shape) + later).reshape(scores.shape)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores @ values.transpose(1, 0, 2) / scores.sum(-1, keepdims=True)
        mixed = mixed.reshape(shape.kv_heads, -1, count, size).transpose(2, 0, 1, 3).reshape(count, -1)
        return _product(mixed, block.attention_out)

    def _rotate(self, heads: Array, turn: tuple[Array, Array]) -> Array:
        """Turn neighbouring pairs by their position's angles (Su et al. 2021, arXiv:2104.09864)."""
        cos, sin = turn
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = self._np.empty_like(heads)
        turned[..., 0::2] = even * cos - odd * sin
        turned[..., 1::2] = even * sin + odd * cos
        return turned

    def _extend(self, store: list[Array], number: int, more: Array) -> Array:
        """Append *more* to the keys or values of a block, and return all of them."""
        end = self.length + len(more)
        kept = store[number]
        if kept is None or end > len(kept):
            room = self._np.empty((max(256, 2 * end), *more.shape[1:]), self._np.float32)
            if kept is not None:
                room[: self.length] = kept[: self.length]
            kept = store[number] = room
        kept[self.length : end] = more
        return kept[:end]


def _product(x: Array, matrix: Array) -> Array:
    """Return ``x @ matrix.T``; for one row in the form that BLAS computes nearly twice as fast."""
    return (matrix @ x[0])[None] if len(x) == 1 else x @ matrix.T
