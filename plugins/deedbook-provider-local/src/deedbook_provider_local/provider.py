"""The provider ``local``: a small model in this process, greedy, with the form of every answer enforced."""

import json
import time
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, IntakeError, Object, parse

from .engine import AUTO, ENGINES, Answer, Tell
from .form import ANSWER, ARGS, CALL, Form, open_tools
from .libraries import INSTALL, LIBRARIES
from .model import EngineChoice, ModelSlot
from .prompt import prompt_tokens
from .weights import weights_of

LIMIT: Final = 768
"""How many tokens an answer may have unless the settings or the request say otherwise."""
_PAUSE: Final = 2.0
"""The fewest seconds between two lines of progress."""


class Local:
    """Runs the model that a profile names: ``completion_request_v2`` → ``completion_response_v2``.

    The first call loads the model, later calls share it; calls of one kernel run one after the other. The answer is a
    function of the request, the weights and the engine; the response names the latter two as its ``model``. Every
    failure is `Failed` with ``PROVIDER_ERROR``, or with ``INTAKE_REFUSED`` for a call that is not acceptable JSON.
    """

    spec = HandlerSpec(
        settings={
            "type": "object",
            "properties": {
                "max_output_tokens": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 8192,
                    "default": LIMIT,
                    "description": "The most tokens of an answer; of this and the request's limit the lower one holds.",
                },
                "engine": {
                    "enum": list(ENGINES),
                    "default": AUTO,
                    "description": "What computes: xllamacpp where it is installed, else numpy; or the one named.",
                },
                "threads": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 256,
                    "default": 1,
                    "description": "How many processor cores the engine uses.",
                },
                "stream": {"type": "boolean", "default": False, "description": "Show the text as it is generated."},
            },
            "additionalProperties": False,
        },
        effects="read",
        interruptible=True,
        requires=dict.fromkeys(LIBRARIES, INSTALL),
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._limit: int = settings.get("max_output_tokens", LIMIT)
        self._stream: bool = settings.get("stream", False)
        self._choice = EngineChoice(settings.get("engine", AUTO), settings.get("threads", 1))
        self._host = host

    def __call__(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        """Ask the model."""
        slot, tell = self._slot(request), _progress(request["model"], ctx)

        def show(text: str) -> None:
            if self._stream:
                ctx.progress({"text": text})

        model = slot.get(tell)
        schema = self._schema(request)
        form = Form.of(schema, open_tools(request))
        prompt = prompt_tokens(request, schema, model.vocabulary)
        limit = min(self._limit, request.get("max_tokens", self._limit))
        with slot.turn(tell):
            answer = model.generate(prompt, form, limit, show, tell)
        usage = {"input_tokens": len(prompt), "output_tokens": answer.tokens}
        return {**_outcome(request, form, answer), "usage": usage, "model": model.name, "schema_version": "v2"}

    def count_tokens(self, request: Object) -> int:
        """Return the number of tokens of the prompt; the first call loads the model, which the next request needs."""
        model = self._slot(request).get(lambda _: None)
        return len(prompt_tokens(request, self._schema(request), model.vocabulary))

    def _slot(self, request: Object) -> ModelSlot:
        weights = weights_of(request["model"])
        name = f"deedbook-provider-local/{weights.sha256}/{self._choice.resolve()}/{self._choice.threads}"
        return self._host.share(name, lambda: ModelSlot(weights, self._choice))

    def _schema(self, request: Object) -> Object | None:
        return self._host.schema(request["response_schema"]) if "response_schema" in request else None


def _progress(model: str, ctx: Ctx) -> Tell:
    """Return what shows the progress of one call, a line every `_PAUSE` seconds; it raises `Failed` if time is up."""
    shown = -_PAUSE

    def tell(line: str) -> None:
        nonlocal shown
        if ctx.remaining() <= 0:
            raise Failed("PROVIDER_ERROR", "no time is left to ask the model; raise timeout_ms", retryable=True)
        now = time.monotonic()
        if line and now - shown >= _PAUSE:
            shown = now
            ctx.progress({"message": f"{model}: {line}"})

    return tell


def _outcome(request: Object, form: Form, answer: Answer) -> dict[str, Any]:
    """Return text, calls and reason to finish."""
    if not answer.complete:
        return {"text": answer.text, "tool_calls": [], "finish_reason": "max_tokens"}
    if not form.calls:
        return {"text": answer.text, "tool_calls": [], "finish_reason": "stop"}
    try:
        told = parse(answer.text)
    except IntakeError as problem:
        why = f"the model's answer is refused: {problem}"
        raise Failed(problem.error.code, why) from None
    if CALL in told:
        number = 1 + sum(len(message.get("tool_calls", ())) for message in request["messages"])
        call = {"id": f"call_{number}", "name": told[CALL], "args": told[ARGS]}
        return {"text": "", "tool_calls": [call], "finish_reason": "tool_use"}
    text = told[ANSWER] if isinstance(told[ANSWER], str) else json.dumps(told[ANSWER], ensure_ascii=False)
    return {"text": text, "tool_calls": [], "finish_reason": "stop"}
