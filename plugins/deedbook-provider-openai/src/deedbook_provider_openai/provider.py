"""The provider ``openai``: one request, sent once or, where that may help, again."""

import asyncio
from collections.abc import Mapping
from random import random
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, Object, Secret

from .answer import read
from .question import body, names_of
from .settings import SETTINGS, Settings
from .trouble import Endpoint, Trouble

FIRST_WAIT: Final = 0.5
"""Seconds before the first retry where the endpoint does not say; doubled each time, up to `LONGEST_WAIT`."""
LONGEST_WAIT: Final = 8.0
PATIENCE: Final = 60.0
"""The longest ``Retry-After`` that is waited for, in seconds."""


class OpenAI:
    """Asks ``/chat/completions``: ``completion_request_v2`` → ``completion_response_v2``.

    Everything that goes wrong is `Failed` with ``PROVIDER_ERROR``, or with ``INTAKE_REFUSED`` for an answer that is not
    acceptable JSON; a message names the secret, never the key.
    """

    spec = HandlerSpec(settings=SETTINGS, effects="read", interruptible=True)

    def __init__(self, settings: Object, host: Host) -> None:
        self._settings = Settings.of(settings)
        self._schema_of = host.schema
        self._key = host.secret(self._settings.key) if self._settings.key else None
        self._headers: dict[str, str | Secret] = {
            name: host.secret(value["secret"]) if isinstance(value, Mapping) else value
            for name, value in self._settings.headers.items()
        }

    async def __call__(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        """Ask the model."""
        try:
            return await self._tried(request, ctx)
        except Trouble as trouble:
            raise Failed(trouble.code, str(trouble), retryable=trouble.retryable) from None

    async def _tried(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        names = names_of(request)
        asked = body(request, self._settings, self._schema_of, names)
        shown: list[bool] = []

        def show(text: str) -> None:
            shown.append(True)
            ctx.progress({"text": text})

        for attempt in range(self._settings.retries + 1):
            try:
                completion = await self._ask(asked, ctx, show)
                break
            except Trouble as trouble:
                wait = _wait(trouble, attempt)
                last = attempt == self._settings.retries or bool(shown)  # what was shown cannot be taken back
                if last or not trouble.again or wait > PATIENCE or wait >= ctx.remaining():
                    raise _after(trouble, attempt + 1, wait) from None
                await asyncio.sleep(wait)
        return read(completion, request, names, self._settings.prices)

    async def _ask(self, asked: Object, ctx: Ctx, show: Any) -> Any:
        if ctx.remaining() <= 0:
            raise Trouble("no time is left to ask the model", retryable=True)
        from .wire import AGENT, complete  # noqa: PLC0415 - the SDK takes half a second to import

        headers = {"user-agent": AGENT, **self._sent()}
        hidden = tuple(
            secret.reveal() for secret in (self._key, *self._headers.values()) if not isinstance(secret, str | None)
        )
        endpoint = Endpoint(self._settings.base_url, asked["model"], self._settings.key, hidden)
        return await complete(asked, self._settings, endpoint, headers, ctx.remaining(), show)

    def _sent(self) -> dict[str, str]:
        """Return the headers, all of them."""
        accept = "text/event-stream" if self._settings.stream else "application/json"
        sent = {"accept": accept, "accept-encoding": "identity", "content-type": "application/json"}
        if self._key is not None:
            sent["authorization"] = f"Bearer {_header(self._settings.key, self._key)}"
        if self._settings.organization:
            sent["openai-organization"] = self._settings.organization
        more = self._headers.items()
        return sent | {name: value if isinstance(value, str) else _header(name, value) for name, value in more}


def _header(name: str | None, secret: Secret) -> str:
    """Return a secret's value, if a header may hold it: what the HTTP library says otherwise would quote it."""
    value = secret.reveal()
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise Trouble(
            f"the secret {name!r} holds a line end, a space at an end or another character that no header may"
        )
    return value


def _wait(trouble: Trouble, attempt: int) -> float:
    if trouble.wait is not None:
        return trouble.wait
    return float(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * (1 - random() / 4))  # noqa: S311 - only to spread load


def _after(trouble: Trouble, attempts: int, wait: float) -> Trouble:
    """Return the last trouble, with what was done about it."""
    told = f"; asked {attempts} times" if attempts > 1 else ""
    if trouble.wait is not None and trouble.wait >= 1:
        told += f"; it wants to be asked again in {wait:.0f} s"
    return Trouble(f"{trouble}{told}", retryable=trouble.retryable, code=trouble.code)
