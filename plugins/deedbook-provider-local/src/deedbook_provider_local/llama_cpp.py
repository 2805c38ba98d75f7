"""The faster engine: llama.cpp through the distribution ``xllamacpp``, which computes with the quantized weights."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deedbook import Failed

from .engine import XLLAMACPP, Answer, Tell
from .form import COMPACT, Form
from .libraries import engine_name, library
from .llama import BATCH
from .memory import MB
from .receiver import get_result, one_thread, receive
from .vocabulary import Vocabulary


class LlamaCppEngine:
    """Lets llama.cpp generate from the mapped file *path*; the form is enforced by the llguidance that it contains.

    llama.cpp ignores a grammar that it cannot read. Therefore the form is read here first, and the answer is checked.
    """

    def __init__(self, path: Path, context: int, vocabulary: Vocabulary, threads: int) -> None:
        xllamacpp = library(XLLAMACPP)
        self._vocabulary = vocabulary
        self.name = engine_name(XLLAMACPP)
        self.context = context
        self.memory = f"{path.stat().st_size / MB:.0f} MB of weights are mapped, nothing is unpacked"
        try:
            with one_thread() as pool:  # an interrupt waits until the engine has started
                self._server = get_result(pool.submit(_start, xllamacpp, _params(xllamacpp, path, context, threads)))
        except (AttributeError, RuntimeError, ValueError, TypeError) as problem:
            why = (
                f"{self.name} cannot load {path}: {problem}; it needs about 500 MB of memory. If it has them, install "
                "another version of it, or set engine: numpy"
            )
            raise Failed("PROVIDER_ERROR", why) from None

    def generate(
        self, prompt: Sequence[int], form: Form, limit: int, show: Callable[[str], None], tell: Tell
    ) -> Answer:
        """Return the answer to *prompt*."""
        matcher = form.grammar(self._vocabulary)
        request = {
            "prompt": list(prompt),
            "n_predict": limit,
            "temperature": 0,
            "cache_prompt": False,  # what an answer is must not depend on the request before it
            "stream": True,
            "return_progress": True,
            **({} if form.schema is None else {"grammar": _grammar(form.schema)}),
        }
        stream = _Stream(show, tell)
        receive(partial(self._server.handle_completions, request), stream.take)
        stream.check()
        if matcher is None:
            return Answer(stream.text, stream.tokens, complete=stream.reason == "stop")
        if not matcher.consume_tokens(self._vocabulary.encode(stream.text)):
            raise Failed("PROVIDER_ERROR", f"the answer of {self.name} does not fit its form; set engine: numpy")
        return Answer(stream.text, stream.tokens, complete=bool(matcher.is_accepting()))

    def close(self) -> None:
        """Stop llama.cpp's threads and release its memory."""
        self._server = None


class _Stream:
    """The text of one answer so far, from llama.cpp's pieces; *tell* raises `Failed` if the call has no time left."""

    def __init__(self, show: Callable[[str], None], tell: Tell) -> None:
        self._show, self._tell = show, tell
        self.text, self.tokens, self.reason = "", 0, ""

    def take(self, piece: Mapping[str, Any]) -> None:
        """Add a piece; raises `Failed` if it is an error."""
        if "error" in piece:
            raise Failed("PROVIDER_ERROR", f"llama.cpp refuses the request: {piece['error'].get('message', '')}")
        choice = piece["choices"][0]
        self.text += choice["text"]
        self.reason = choice["finish_reason"] or ""
        self.tokens = piece.get("usage", {}).get("completion_tokens", self.tokens + bool(choice["text"]))
        if choice["text"]:
            self._show(choice["text"])
        read = piece.get("prompt_progress")
        self._tell(f"read {read['processed']} of {read['total']} tokens" if read else f"wrote {self.tokens} tokens")

    def check(self) -> None:
        """Raise `Failed` if the answer has no end."""
        if not self.reason:
            raise Failed("PROVIDER_ERROR", "llama.cpp ended its answer without a reason to finish", retryable=True)


def _start(xllamacpp: Any, params: Any) -> Any:
    """Return a server that has answered once; to destroy one whose loop has not begun yet may block for ever."""
    server = xllamacpp.Server(params)
    server.handle_completions({"prompt": [0], "n_predict": 1, "temperature": 0, "cache_prompt": False})
    return server


def _params(xllamacpp: Any, path: Path, context: int, threads: int) -> Any:
    """Return the settings of llama.cpp's server, whose port on this machine has a random key."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP
    params.n_ctx = context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.warmup = params.fit_params = params.ui = params.endpoint_slots = False
    params.cache_ram_mib = params.n_ctx_checkpoints = 0
    params.verbosity = -1
    params.api_keys = [secrets.token_hex(32)]
    return params


def _grammar(schema: Mapping[str, Any]) -> str:
    return f"%llguidance {{}}\nstart: %json {json.dumps({**schema, 'x-guidance': dict(COMPACT)})}"
