"""From a request (``completion_request_v2``, or ``_v3`` with images) to the body of a request to ``/api/chat``."""

from typing import Any

from deedbook import Object
from deedbook_provider_http import Settings
from deedbook_provider_http.functions import (
    SchemaOf,
    add_instructions,
    answered,
    callers,
    chat_tool,
    form_in_words,
    output_limit,
)
from deedbook_provider_http.images import message_parts, text_parts
from deedbook_provider_http.names import Names


def body(request: Object, settings: Settings, options: Object, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body. A conversation that is too long is an error: Ollama would forget its beginning instead."""
    calls = callers(request)
    messages = [_message(message, names, calls) for message in request["messages"]]
    made: dict[str, Any] = {"model": request["model"], "stream": settings.stream, "truncate": False, "shift": False}
    told = dict(options)
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        told["temperature"] = temperature
    limit = output_limit(request, settings.max_output_tokens)
    if limit is not None:
        told["num_predict"] = limit
    if told:
        made["options"] = told
    if request.get("tools"):
        made["tools"] = [chat_tool(tool, names) for tool in request["tools"]]
    wanted = request.get("response_schema")
    if wanted:
        schema = schema_of(wanted)
        way = "none" if "tools" in made else settings.structured  # a format would keep the model from asking for tools
        if way != "none":
            kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
            made["format"] = kept if way == "json_schema" else "json"
        if way != "json_schema":
            messages = add_instructions(messages, form_in_words(wanted, schema))
    return {**made, "messages": messages}


def _message(message: Object, names: Names, calls: dict[str, Object]) -> dict[str, Any]:
    said = {"role": message["role"], "content": "\n\n".join(text_parts(message["content"]))}
    if isinstance(message["content"], list):
        sent = message_parts(message["content"], lambda _: None, lambda _, data: data)
        return {**said, "images": [image for image in sent if image]}
    if message["role"] == "tool":
        call = answered(message, calls)
        return {**said, "tool_name": names.sent(call["name"]), "tool_call_id": call["id"]}
    asked = [_call(call, names) for call in message.get("tool_calls", ())]
    return {**said, "tool_calls": asked} if asked else said


def _call(call: Object, names: Names) -> dict[str, Any]:
    return {"id": call["id"], "function": {"name": names.sent(call["name"]), "arguments": call["args"]}}
