"""The provider ``gemini``: one request to ``:generateContent``, or ``:streamGenerateContent``."""

import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from deedbook import HandlerSpec, Host, Object
from deedbook_provider_http import Endpoint, HttpProvider, Settings, Trouble, settings_schema
from deedbook_provider_http.names import Names
from deedbook_provider_http.provider import vendor_sdk

from .answer import read
from .merged import MergedContent
from .question import body
from .signatures import decode_bytes

if TYPE_CHECKING:
    import httpx2

ADDRESS: Final = "https://generativelanguage.googleapis.com"
VERSION: Final = "v1beta"
"""The version of the API, which holds functions and schemas."""
SDK: Final = "deedbook-provider-gemini[sdk]"

_RESERVED: Final = ("contents", "generationConfig", "systemInstruction", "toolConfig", "tools")
_DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


class Gemini(HttpProvider):
    """Asks the Gemini API."""

    agent = "deedbook-provider-gemini"
    spec = HandlerSpec(
        settings=settings_schema(structured=("json_schema", "json_object", "none"), reserved=_RESERVED, temperature=2),
        effects="read",
        interruptible=True,
        files="host",
        images=True,
        named=True,
        requires={"google.genai": f"pip install '{SDK}'"},
    )

    def __init__(self, settings: Object, host: Host) -> None:
        super().__init__(Settings.of(settings, base_url=ADDRESS, own=("x-goog-api-key",)), host)

    def load(self) -> None:
        """Import the SDK."""
        super().load()
        vendor_sdk("google.genai", SDK)

    def authorization(self, key: str) -> dict[str, str]:
        """Return the header with the key."""
        return {"x-goog-api-key": key}

    def question(self, request: Object, names: Names) -> dict[str, Any]:
        """Return the body of the request, and the model, which stands in the address."""
        return {"model": request["model"], **body(request, self._settings, self._schema_of, names)}

    async def send(self, question: Object, client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
        """Send the body through the SDK, which retries nothing and takes nothing from the environment."""
        import httpx2  # noqa: PLC0415 - takes long to import

        sdk = vendor_sdk("google.genai", SDK)
        options: dict[str, Any] = {
            "base_url": self._settings.base_url,
            "api_version": VERSION,
            "httpx_async_client": client,
            # never used: what the SDK makes instead reads certificates where the environment says
            "httpx_client": httpx2.Client(transport=httpx2.BaseTransport(), trust_env=False),
            "async_client_args": {"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
            "retry_options": {"attempts": 1},
            "timeout": max(1, int((limit.read or 0) * 1000)),
            **({"extra_body": dict(self._settings.extra)} if self._settings.extra else {}),
        }
        # any text for a key: the SDK would look into the environment, and what is sent is decided elsewhere
        asking = sdk.Client(vertexai=False, api_key="none", http_options=options).aio.models
        config = {**question.get("generationConfig", {}), "automaticFunctionCalling": {"disable": True}}
        config |= {name: question[name] for name in ("systemInstruction", "tools") if name in question}
        asked = {"model": question["model"], "contents": decode_bytes(question["contents"]), "config": config}
        if self._settings.stream:
            async for _ in await asking.generate_content_stream(**asked):
                pass
        else:
            await asking.generate_content(**asked)

    def refused(self, endpoint: Endpoint, status: int, headers: Mapping[str, str], body: object) -> Trouble:
        """Return what a refusal means; this API tells a wrong key with 400, and how long to wait in the body."""
        details = _details(body)
        if status == 400 and any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            status = 401
        trouble = endpoint.refused(status, headers, body)
        delays = [_DELAY.fullmatch(str(detail.get("retryDelay"))) for detail in details]
        found = next((float(delay[1]) for delay in delays if delay), None)
        if trouble.again and trouble.wait is None:
            trouble.wait = found
        return trouble

    def merged(self) -> MergedContent:
        """Return what puts a stream together."""
        return MergedContent()

    def answer(self, document: Object, request: Object, names: Names) -> dict[str, Any]:
        """Return the response that an answer of the API is."""
        return read(document, request, names, self._settings.prices)


def _details(body: object) -> list[Mapping[str, Any]]:
    error = body.get("error") if isinstance(body, Mapping) else None
    found = error.get("details") if isinstance(error, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
