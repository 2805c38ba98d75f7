"""The Responses API: requests, answers and streams of ``/responses``."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http import Trouble
from deedbook_provider_http.functions import (
    SchemaOf,
    answered_id,
    compact,
    description,
    form_in_words,
    output_limit,
    parameters,
)
from deedbook_provider_http.images import message_parts
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    calls_of,
    obj,
    objects,
    one_of,
    response,
    text_of,
    tool_call,
    unclear,
)

from .answer import read_usage
from .question import data_url, form_of, ids_of
from .settings import OpenAISettings

_STOPPED: Final = {"max_output_tokens": "max_tokens", "content_filter": "safety"}
_UNSEEN: Final = ("reasoning",)
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


def body(request: Object, settings: OpenAISettings, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body; nothing is to be kept at the vendor. ``extra`` is added when it is sent."""
    system = [message["content"] for message in request["messages"] if message["role"] == "system"]
    said = [message for message in request["messages"] if message["role"] != "system"]
    ids = ids_of(request)
    made: dict[str, Any] = {
        "model": request["model"],
        "input": [item for message in said for item in _items(message, names, ids)],
        "store": False,
    }
    if request.get("tools"):
        made["tools"] = [_tool(tool, names) for tool in request["tools"]]
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        made["temperature"] = temperature
    limit = output_limit(request, settings.max_output_tokens)
    if limit is not None:
        made["max_output_tokens"] = limit
    wanted = request.get("response_schema")
    if wanted:
        schema = schema_of(wanted)
        loose = "tools" in made and settings.dialect == "compatible"
        way = "none" if loose else settings.structured
        if way == "json_schema":
            made["text"] = {"format": {"type": "json_schema", **form_of(wanted, schema)}}
        else:
            made |= {"text": {"format": {"type": "json_object"}}} if way == "json_object" else {}
            system.append(form_in_words(wanted, schema))
    instructions = "\n\n".join(part for part in system if part)
    return {**made, "instructions": instructions} if instructions else made


def _items(message: Object, names: Names, ids: Names) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        result = {"type": "function_call_output", "call_id": ids.sent(answered_id(message))}
        return [{**result, "output": message["content"]}]
    content = message["content"]
    if isinstance(content, list):
        content = message_parts(content, _text, _image)
    text = [{"role": message["role"], "content": content}] if content else []
    calls = [
        {
            "type": "function_call",
            "call_id": ids.sent(call["id"]),
            "name": names.sent(call["name"]),
            "arguments": compact(call["args"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return [*text, *calls]


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _image(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_url(media_type, data), "detail": "auto"}


def _tool(tool: Object, names: Names) -> dict[str, Any]:
    told = description(tool, names)
    function = {"type": "function", "name": names.sent(tool["name"]), "parameters": parameters(tool), "strict": False}
    return {**function, "description": told} if told else function


def read(answer: Object, request: Object, names: Names, prices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the response that an *answer*, as parsed from JSON, is to *request*."""
    reason = _reason(answer)
    texts, refusals, functions = [], [], []
    for item in objects(answer.get("output"), "the output is no list of objects"):
        kind = item.get("type")
        if kind == "function_call":
            functions.append(item)
        elif kind == "message":
            for part in objects(item.get("content"), "the content of a message is no list of objects"):
                if part.get("type") == "refusal":
                    refusals.append(text_of(part.get("refusal"), "a refusal is no text"))
                else:
                    texts.append(text_of(part.get("text"), "the text of a part is no text"))
        elif kind not in _UNSEEN:
            unclear(f"the output holds an item of the type {str(kind)[:40]!r}, which was not asked for")

    def call(item: Object, number: int) -> Object:
        name, args = item.get("name"), item.get("arguments")
        return tool_call(request, names, name, args, given=item.get("call_id"), number=number)

    text, reason = "".join(texts), "safety" if refusals else reason
    return response(
        request,
        text="".join(refusals) or text,
        calls=calls_of(reason, functions, call),
        reason=reason,
        usage=read_usage(answer, request, text, prices, asked="input_tokens", written="output_tokens"),
        model=answer.get("model"),
    )


def _reason(answer: Object) -> str:
    status, error = answer.get("status"), answer.get("error")
    if status == "failed" and isinstance(error, Mapping):
        raise Trouble(f"the endpoint failed to answer: {str(error.get('message'))[:300]}", again=True)
    if one_of(status, "status", ("completed", "incomplete")) == "completed":
        return "stop"
    details = obj(answer.get("incomplete_details"), "the answer does not tell why it is incomplete")
    return _STOPPED[one_of(details.get("reason"), "incomplete_details.reason", _STOPPED)]


class MergedResponse:
    """A stream's events: texts on their way, and the whole answer in the last one."""

    def __init__(self) -> None:
        self._answer: Object | None = None

    def add(self, event: Object) -> str:
        """Take one event; return the text that it adds. Events of a type that is not known say nothing."""
        kind = event.get("type")
        if kind == "response.output_text.delta":
            return text_of(event.get("delta"), "the stream holds a delta that is no text")
        if kind in _ENDS:
            self._answer = obj(event.get("response"), "the stream ends without the response")
        return ""

    def document(self) -> Object:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""
        if self._answer is None:
            raise Trouble("the stream ended before the answer was complete", again=True)
        return self._answer
