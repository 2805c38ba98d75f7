"""Load a model: check the file, unpack the weights, build the vocabulary."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final

import attrs

from deedbook import Failed

from .engine import AUTO, NUMPY, XLLAMACPP, Answer, Engine, Tell
from .form import Form
from .libraries import LIBRARIES, library
from .llama import Block, Llama, Shape
from .llama_cpp import LlamaCppEngine
from .memory import MB, check_limit, enough_memory
from .numpy_engine import NumPyEngine
from .vocabulary import Vocabulary
from .weights import Weights

_ROWS: Final = 4096
"""How many rows of a matrix are unpacked at once."""
_WAIT: Final = 0.2
"""How many seconds a call waits for its turn before it looks at its own time."""


@attrs.frozen
class Model:
    """A loaded model. *name* is what the record of an answer says: the file, its digest and the engine."""

    name: str
    engine: Engine
    vocabulary: Vocabulary

    def generate(
        self, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tell: Tell
    ) -> Answer:
        """Return the answer to *prompt*, at most *limit* tokens; *show* gets its pieces, *tell* runs before each step.

        Raises `Failed` if the prompt and the answer do not fit into the model's context, or not into memory.
        """
        most = self.engine.context
        if len(prompt) + limit > most:
            raise Failed(
                "PROVIDER_ERROR",
                f"the prompt has {len(prompt)} tokens and the answer may have {limit}, the model takes {most} "
                "together; shorten the conversation, lower max_output_tokens, or use a model that takes more",
            )
        with enough_memory("to answer"):
            return self.engine.generate(prompt, form, limit, show, tell)


@attrs.frozen
class EngineChoice:
    """Which engine computes, as the settings ``engine`` and ``threads`` say."""

    name: str = AUTO
    threads: int = 1

    def resolve(self) -> str:
        """Return the name of the engine; `AUTO` is xllamacpp where it is installed."""
        if self.name != AUTO:
            return self.name
        return XLLAMACPP if find_spec(XLLAMACPP) else NUMPY


class ModelSlot:
    """The place of one model in a kernel: the first call loads it, later calls share it."""

    def __init__(self, weights: Weights, choice: EngineChoice) -> None:
        self._weights = weights
        self._choice = choice
        self._lock = Lock()
        self._busy = Lock()
        self._model: Model | None = None

    def get(self, tell: Tell) -> Model:
        """Return the model, loaded if need be; raises `Failed`. A load that fails is tried again by the next call."""
        with self._lock:
            if self._model is None:
                self._model = load(self._weights, self._choice, tell)
            return self._model

    @contextmanager
    def turn(self, tell: Tell) -> Iterator[None]:
        """Wait until no other call uses the processor; *tell* runs while it waits and may raise."""
        while not self._busy.acquire(timeout=_WAIT):
            tell("waiting for another call")
        try:
            yield
        finally:
            self._busy.release()

    def close(self) -> None:
        """Release the memory."""
        if self._model is not None:
            self._model.engine.close()
        self._model = None


def load(weights: Weights, choice: EngineChoice, tell: Tell) -> Model:
    """Return the model whose weights these are; raises `Failed` for a missing or changed file, or too little memory."""
    check_limit(choice.resolve())
    with enough_memory(f"to load {weights.file}"):
        for name in LIBRARIES:
            library(name)
        path = weights.find()
        tell(f"checking {weights.file} ({path.stat().st_size / MB:.0f} MB)")
        weights.check(path, lambda: tell(""))
        tell("reading its tables")
        try:
            engine, vocabulary = _read(path, choice, tell)
        except (KeyError, ValueError, IndexError) as problem:
            raise Failed("PROVIDER_ERROR", f"{path} cannot be loaded: {problem}") from None
    tell(f"ready: {engine.memory}")
    return Model(f"{weights.file} (sha256:{weights.sha256}; {engine.name})", engine, vocabulary)


def _read(path: Path, choice: EngineChoice, tell: Tell) -> tuple[Engine, Vocabulary]:
    """Read a GGUF file, which is mapped into memory; NumPy needs the map only as long as this takes."""
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
    if choice.resolve() == XLLAMACPP:
        return LlamaCppEngine(path, shape.context, vocabulary, choice.threads), vocabulary
    return NumPyEngine(_unpack(gguf, reader, shape, tell), vocabulary, choice.threads), vocabulary


def _unpack(gguf: Any, reader: Any, shape: Shape, tell: Tell) -> Llama:
    np = library("numpy")
    packed = {tensor.name: tensor for tensor in reader.tensors}

    def unpacked(name: str) -> Any:
        tensor = packed[name]
        made = np.empty([int(size) for size in reversed(tensor.shape)], np.float32)
        for start in range(0, len(made), _ROWS):  # a whole matrix needs several times its size meanwhile
            rows = slice(start, start + _ROWS)
            made[rows] = gguf.quants.dequantize(tensor.data[rows], tensor.tensor_type)
        return made

    blocks = []
    for number in range(shape.blocks):
        tell(f"unpacking block {number + 1} of {shape.blocks}")
        names = [name for name in packed if name.startswith(f"blk.{number}.")]
        blocks.append(Block.of({name: unpacked(name) for name in names}, number))
    return Llama(shape, blocks, unpacked("token_embd.weight"), unpacked("output_norm.weight"))
