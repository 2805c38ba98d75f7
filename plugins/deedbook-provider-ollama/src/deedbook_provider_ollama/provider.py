"""The provider ``ollama``: one request to ``/api/chat``.

It sends the documented request itself. Ollama's client for Python would lose what a provider has to know: it drops the
headers of a refusal (how long to wait), reads an answer of any size, accepts JSON that intake refuses, cuts a stream at
every character that Unicode counts as a line end, and takes address and key from the environment.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from deedbook import HandlerSpec, Host, Object
from deedbook_provider_http import HttpProvider, Settings, settings_schema
from deedbook_provider_http.names import Names

from .answer import read
from .merged import MergedChat
from .question import body

if TYPE_CHECKING:
    import httpx2

ADDRESS: Final = "http://127.0.0.1:11434"

_RESERVED: Final = ("format", "messages", "model", "options", "shift", "stream", "tools", "truncate")
_SETTINGS: Final = settings_schema(structured=("json_schema", "json_object", "none"), reserved=_RESERVED)
_OPTIONS: Final = {
    "type": "object",
    "propertyNames": {"not": {"enum": ["num_predict", "temperature"]}},
    "description": "Ollama's options of a model, such as num_ctx (how many tokens the model remembers) or seed.",
}


class Ollama(HttpProvider):
    """Asks Ollama's chat API."""

    agent = "deedbook-provider-ollama"
    form = "lines"
    hint = "structured, options and extra"
    spec = HandlerSpec(
        settings={**_SETTINGS, "properties": {**_SETTINGS["properties"], "options": _OPTIONS}},
        effects="read",
        interruptible=True,
        files="host",
        images=True,
        named=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        given = dict(settings)
        self._options = given.pop("options", {})
        super().__init__(Settings.of(given, base_url=ADDRESS), host)

    def authorization(self, key: str) -> dict[str, str]:
        """Return the header with the key; Ollama itself needs none, what stands before it may."""
        return {"authorization": f"Bearer {key}"}

    def question(self, request: Object, names: Names) -> dict[str, Any]:
        """Return the body of the request."""
        return body(request, self._settings, self._options, self._schema_of, names)

    async def send(self, question: Object, client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
        """Send the body."""
        raw = json.dumps({**self._settings.extra, **question}, ensure_ascii=False, allow_nan=False).encode()
        async with client.stream("POST", f"{self._settings.base_url}/api/chat", content=raw, timeout=limit) as answer:
            async for _ in answer.aiter_raw():
                pass

    def merged(self) -> MergedChat:
        """Return what puts a stream together."""
        return MergedChat()

    def answer(self, document: Object, request: Object, names: Names) -> dict[str, Any]:
        """Return the response that an answer of Ollama is."""
        return read(document, request, names, self._settings.prices)
