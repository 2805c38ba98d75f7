"""Load a model: check the file, unpack the weights, build the vocabulary."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final

import attrs

from deedbook import Failed

from .libraries import engine_version, library
from .llama import Block, Llama, Shape
from .vocabulary import Vocabulary
from .weights import Weights

Tell = Callable[[str], None]
"""Shows one line of progress; raises `Failed` if the call has no time left."""
_MB: Final = 1_000_000
_WAIT: Final = 0.2
"""How many seconds a call waits for its turn before it looks at its own time."""


@attrs.frozen
class Model:
    """A loaded model. *name* is what the record of an answer says: the file, its digest and the engine."""

    name: str
    llama: Llama
    vocabulary: Vocabulary


class ModelSlot:
    """The place of one model in a kernel: the first call loads it, later calls share it."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._lock = Lock()
        self._busy = Lock()
        self._model: Model | None = None

    def get(self, tell: Tell) -> Model:
        """Return the model, loaded if need be; raises `Failed`. A load that fails is tried again by the next call."""
        with self._lock:
            if self._model is None:
                self._model = load(self._weights, tell)
            return self._model

    @contextmanager
    def turn(self, tick: Callable[[], None]) -> Iterator[None]:
        """Wait until no other call uses the processor; *tick* runs while it waits and may raise."""
        while not self._busy.acquire(timeout=_WAIT):
            tick()
        try:
            yield
        finally:
            self._busy.release()

    def close(self) -> None:
        """Release the memory."""
        self._model = None


def load(weights: Weights, tell: Tell) -> Model:
    """Return the model whose weights these are; raises `Failed` for a missing or changed file."""
    for name in ("numpy", "gguf", "tokenizers", "llguidance"):
        library(name)
    path = weights.find()
    tell(f"checking {weights.file} ({path.stat().st_size / _MB:.0f} MB)")
    weights.check(path, lambda: tell(""))
    tell("reading its tables")
    try:
        llama, vocabulary = _read(path, tell)
    except (KeyError, ValueError, IndexError) as problem:
        raise Failed("PROVIDER_ERROR", f"{path} cannot be loaded: {problem}") from None
    tell(f"ready: {llama.size() / _MB:.0f} MB of unpacked weights in memory")
    return Model(f"{weights.file} (sha256:{weights.sha256}; {engine_version()})", llama, vocabulary)


def _read(path: Path, tell: Tell) -> tuple[Llama, Vocabulary]:
    """Read a GGUF file, which is mapped into memory only as long as this takes."""
    gguf = library("gguf")
    reader = gguf.GGUFReader(path, "r")

    def metadata(key: str) -> Any:
        return reader.fields[key].contents()

    vocabulary = Vocabulary(
        metadata("tokenizer.ggml.tokens"),
        metadata("tokenizer.ggml.token_type"),
        metadata("tokenizer.ggml.merges"),
        int(metadata("tokenizer.ggml.eos_token_id")),
        metadata("tokenizer.ggml.pre"),
    )
    shape = Shape.of(metadata)
    return _unpack(gguf, reader, shape, tell), vocabulary


def _unpack(gguf: Any, reader: Any, shape: Shape, tell: Tell) -> Llama:
    np = library("numpy")
    packed = {tensor.name: tensor for tensor in reader.tensors}

    def unpacked(name: str) -> Any:
        tensor = packed[name]
        return np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)

    blocks = []
    for number in range(shape.blocks):
        tell(f"unpacking block {number + 1} of {shape.blocks}")
        names = [name for name in packed if name.startswith(f"blk.{number}.")]
        blocks.append(Block.of({name: unpacked(name) for name in names}, number))
    return Llama(shape, blocks, unpacked("token_embd.weight"), unpacked("output_norm.weight"))
