"""The provider ``openai``: one request to either of OpenAI's protocols."""

from typing import TYPE_CHECKING, Any

from deedbook import HandlerSpec, Host, Object
from deedbook_provider_http import HttpProvider, Merged
from deedbook_provider_http.names import Names
from deedbook_provider_http.provider import vendor_sdk

from . import responses
from .answer import read
from .merged import MergedCompletion
from .question import body
from .settings import SETTINGS, OpenAISettings

if TYPE_CHECKING:
    import httpx2


class OpenAI(HttpProvider):
    """Asks ``/chat/completions``, or ``/responses``."""

    agent = "deedbook-provider-openai"
    hint = "structured, dialect and extra"
    last = b"[DONE]"
    spec = HandlerSpec(settings=SETTINGS, effects="read", interruptible=True, files="host", images=True, named=True)

    def __init__(self, settings: Object, host: Host) -> None:
        self._own = OpenAISettings.read(settings)
        super().__init__(self._own, host)

    def load(self) -> None:
        """Import the SDK, and the part of it that this API needs."""
        super().load()
        vendor_sdk(
            "openai.resources.responses" if self._own.api == "responses" else "openai.resources.chat", self.agent
        )

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
