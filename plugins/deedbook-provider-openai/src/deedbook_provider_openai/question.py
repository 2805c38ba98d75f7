"""From a request (``completion_request_v2``, or ``_v3`` with images) to the body for ``/chat/completions``."""

from typing import Any, Final

from deedbook import Object
from deedbook_provider_http.functions import (
    SchemaOf,
    add_instructions,
    answered_id,
    chat_tool,
    compact,
    form_in_words,
    output_limit,
)
from deedbook_provider_http.images import message_parts
from deedbook_provider_http.names import Names, plain
from deedbook_provider_http.schemas import strictly

from .settings import OpenAISettings

MOST_OF_AN_ID: Final = 40
"""How many characters the id of a call may have; other vendors' ids may have more."""


def ids_of(request: Object) -> Names:
    """Return what the conversation's calls are called towards the endpoint."""
    given = (call["id"] for message in request["messages"] for call in message.get("tool_calls", ()))
    answered = (message["tool_call_id"] for message in request["messages"] if "tool_call_id" in message)
    return Names(given, answered, longest=MOST_OF_AN_ID)


def body(request: Object, settings: OpenAISettings, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body; ``extra`` and what makes it a stream are added when it is sent."""
    ids = ids_of(request)
    made: dict[str, Any] = {
        "model": request["model"],
        "messages": [_message(message, names, ids) for message in request["messages"]],
    }
    if request.get("tools"):
        made["tools"] = [chat_tool(tool, names) for tool in request["tools"]]
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        made["temperature"] = temperature
    limit = output_limit(request, settings.max_output_tokens)
    if limit is not None:
        made["max_completion_tokens" if settings.dialect == "openai" else "max_tokens"] = limit
    wanted = request.get("response_schema")
    return _add_form(made, wanted, schema_of(wanted), settings) if wanted else made


def _message(message: Object, names: Names, ids: Names) -> dict[str, Any]:
    role, content, calls = message["role"], message["content"], message.get("tool_calls")
    if role == "tool":
        return {"role": role, "tool_call_id": ids.sent(answered_id(message)), "content": content}
    if role == "assistant" and calls:
        return {"role": role, "content": content or None, "tool_calls": [_call(call, names, ids) for call in calls]}
    if isinstance(content, list):
        return {"role": role, "content": message_parts(content, _text, _image)}
    return {"role": role, "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(media_type, data)}}


def data_url(media_type: str, data: str) -> str:
    """Return an image, in base64, as a URL."""
    return f"data:{media_type};base64,{data}"


def _call(call: Object, names: Names, ids: Names) -> dict[str, Any]:
    arguments = compact(call["args"])
    return {
        "id": ids.sent(call["id"]),
        "type": "function",
        "function": {"name": names.sent(call["name"]), "arguments": arguments},
    }


def _add_form(made: dict[str, Any], name: str, schema: Object, settings: OpenAISettings) -> dict[str, Any]:
    """Demand an answer of the form *schema*: by ``response_format``, else in words.

    Many compatible servers constrain the whole answer to the format, so that a model could not ask for tools any more.
    """
    loose = "tools" in made and settings.dialect == "compatible"
    way = "none" if loose else settings.structured
    if way == "json_schema":
        return {**made, "response_format": {"type": "json_schema", "json_schema": form_of(name, schema)}}
    told = {**made, "messages": add_instructions(made["messages"], form_in_words(name, schema))}
    return told | ({"response_format": {"type": "json_object"}} if way == "json_object" else {})


def form_of(name: str, schema: Object) -> dict[str, Any]:
    """Return a schema as a named format, in the strict form if it has one."""
    narrowed = strictly(schema)
    kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return {"name": plain(name), "schema": narrowed or kept, "strict": narrowed is not None}
