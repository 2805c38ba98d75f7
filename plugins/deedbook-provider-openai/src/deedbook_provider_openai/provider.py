"""The provider ``openai``: one request, sent once or, where that may help, again."""

import asyncio
from random import random
from typing import TYPE_CHECKING, Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook_provider_http import HttpProvider, Merged, Trouble
from deedbook_provider_http.names import Names

from . import responses
from .answer import read
from .merged import MergedCompletion
from .question import body
from .settings import SETTINGS, OpenAISettings

if TYPE_CHECKING:
    import httpx2

FIRST_WAIT: Final = 0.5
"""Seconds before the first retry where the endpoint does not say; doubled each time, up to `LONGEST_WAIT`."""
LONGEST_WAIT: Final = 8.0
PATIENCE: Final = 60.0
"""The longest ``Retry-After`` that is waited for, in seconds."""


class OpenAI(HttpProvider):
    """Asks ``/chat/completions``, or ``/responses``."""

    agent = "deedbook-provider-openai"
    hint = "structured, dialect and extra"
    last = b"[DONE]"
    spec = HandlerSpec(settings=SETTINGS, effects="read", interruptible=True)

    def __init__(self, settings: Object, host: Host) -> None:
        self._own = OpenAISettings.read(settings)
        super().__init__(self._own, host)

    async def __call__(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        """Ask the model."""
        shown = _WatchedContext(ctx)
        attempt = 0
        while True:
            try:
                return await self.attempt(request, shown)
            except Trouble as problem:
                trouble = problem
            wait = _wait(trouble, attempt)
            last = attempt == self._own.retries or shown.any  # what was shown cannot be taken back
            attempt += 1
            if last or not trouble.again or wait > PATIENCE or wait >= ctx.remaining():
                asked = f"; asked {attempt} times" if attempt > 1 else ""
                raise Failed(trouble.code, f"{trouble}{asked}{trouble.describe_wait()}", retryable=trouble.retryable)
            await asyncio.sleep(wait)

    def authorization(self, key: str) -> dict[str, str]:
        """Return the header with the key."""
        return {"authorization": f"Bearer {key}"}

    def version(self) -> dict[str, str]:
        """Return the header with the organization, if there is one."""
        return {"openai-organization": self._own.organization} if self._own.organization else {}

    def question(self, request: Object, names: Names) -> dict[str, Any]:
        """Return the body of the request."""
        made = responses.body if self._own.api == "responses" else body
        return made(request, self._own, self._schema_of, names)

    async def send(self, question: Object, client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
        """Send the body through the SDK, which retries nothing and takes nothing from the environment."""
        import openai  # noqa: PLC0415 - takes half a second

        asking = openai.AsyncOpenAI(
            api_key="none",  # any text: the SDK would look into the environment, and what is sent is decided elsewhere
            admin_api_key="",
            base_url=self._own.base_url,
            max_retries=0,
            http_client=client,
        )
        stream: dict[str, Any] = {"stream": True} if self._own.stream else {}
        ask: Any = asking.responses.with_streaming_response.create
        if self._own.api == "chat_completions":
            ask = asking.chat.completions.with_streaming_response.create
            stream |= {"stream_options": {"include_usage": True}} if stream else {}
        async with ask(**question, **stream, extra_body=dict(self._own.extra) or None, timeout=limit) as raw:
            async for _ in raw.iter_bytes():
                pass

    def merged(self) -> Merged:
        """Return what puts a stream together."""
        return responses.MergedResponse() if self._own.api == "responses" else MergedCompletion()

    def answer(self, document: Object, request: Object, names: Names) -> dict[str, Any]:
        """Return the response that an answer of the API is."""
        reader = responses.read if self._own.api == "responses" else read
        return reader(document, request, names, self._own.prices)


class _WatchedContext:
    """A call's context, and whether anything was shown."""

    def __init__(self, ctx: Ctx) -> None:
        self._ctx = ctx
        self.any = False

    def remaining(self) -> float:
        return self._ctx.remaining()

    def progress(self, delta: Json) -> None:
        self.any = True
        self._ctx.progress(delta)


def _wait(trouble: Trouble, attempt: int) -> float:
    if trouble.wait is not None:
        return trouble.wait
    return float(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * (1 - random() / 4))  # noqa: S311 - only to spread load
