"""The provider ``anthropic``: one request to ``/v1/messages``."""

from typing import TYPE_CHECKING, Any, Final

from deedbook import HandlerSpec, Host, Object
from deedbook_provider_http import HttpProvider, Settings, settings_schema
from deedbook_provider_http.names import Names
from deedbook_provider_http.provider import vendor_sdk

from .answer import read
from .merged import MergedMessage
from .question import body

if TYPE_CHECKING:
    import httpx2

ADDRESS: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"
"""The version of the API that this provider was written for."""
SDK: Final = "deedbook-provider-anthropic[sdk]"

_RESERVED: Final = (
    "max_tokens", "messages", "model", "output_config", "stream", "system", "temperature", "tool_choice", "tools",
)  # fmt: skip
_SETTINGS: Final = settings_schema(
    structured=("json_schema", "none"), reserved=_RESERVED, prices=("cache_write_per_million",), temperature=1
)
_EFFORT: Final = {
    "enum": ["low", "medium", "high", "xhigh", "max"],
    "description": "How much work the model puts into its answer; by default as the model does it.",
}


class Anthropic(HttpProvider):
    """Asks the Messages API."""

    agent = "deedbook-provider-anthropic"
    spec = HandlerSpec(
        settings={**_SETTINGS, "properties": {**_SETTINGS["properties"], "effort": _EFFORT}},
        effects="read",
        interruptible=True,
        files="host",
        images=True,
        named=True,
        requires={"anthropic": f"pip install '{SDK}'"},
    )

    def __init__(self, settings: Object, host: Host) -> None:
        given = dict(settings)
        self._effort: str | None = given.pop("effort", None)
        super().__init__(Settings.of(given, base_url=ADDRESS, own=("x-api-key", "anthropic-version")), host)

    def load(self) -> None:
        """Import the SDK, and the part of it that requests need."""
        super().load()
        vendor_sdk("anthropic", SDK)
        vendor_sdk("anthropic.resources.messages", SDK)

    def authorization(self, key: str) -> dict[str, str]:
        """Return the header with the key."""
        return {"x-api-key": key}

    def version(self) -> dict[str, str]:
        """Return the header with the version of the API."""
        return {"anthropic-version": VERSION}

    def question(self, request: Object, names: Names) -> dict[str, Any]:
        """Return the body of the request."""
        return body(request, self._settings, self._effort, self._schema_of, names)

    async def send(self, question: Object, client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
        """Send the body through the SDK, which retries nothing and takes no key from the environment."""
        sdk = vendor_sdk("anthropic", SDK)
        asking = sdk.AsyncAnthropic(
            api_key="none",  # any text: the SDK would look into the environment, and what is sent is decided elsewhere
            base_url=self._settings.base_url,
            max_retries=0,
            http_client=client,
        )
        ask = asking.messages.with_streaming_response.create
        stream = {"stream": True} if self._settings.stream else {}
        # the API takes a temperature, for models that have one; the SDK has no argument for it
        loose = {name: question[name] for name in ("temperature",) if name in question}
        named = {name: value for name, value in question.items() if name not in loose}
        extra = {**self._settings.extra, **loose} or None
        async with ask(**named, **stream, extra_body=extra, timeout=limit) as raw:
            async for _ in raw.iter_bytes():
                pass

    def merged(self) -> MergedMessage:
        """Return what puts a stream together."""
        return MergedMessage()

    def answer(self, document: Object, request: Object, names: Names) -> dict[str, Any]:
        """Return the response that a message is."""
        return read(document, request, names, self._settings.prices)
