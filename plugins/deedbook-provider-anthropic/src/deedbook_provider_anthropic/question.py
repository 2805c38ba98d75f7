"""From a request (``completion_request_v2``, or ``_v3`` with images) to the body of a request to ``/v1/messages``."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http import Settings, Trouble
from deedbook_provider_http.functions import (
    SchemaOf,
    answered,
    callers,
    description,
    form_in_words,
    output_limit,
    parameters,
)
from deedbook_provider_http.images import message_parts
from deedbook_provider_http.names import Names
from deedbook_provider_http.schemas import strictly

from .thoughts import own_id, restore_blocks

MAX_TOKENS: Final = 16_384
"""The limit of tokens where neither the request nor the settings give one: the API wants one."""


def body(request: Object, settings: Settings, effort: str | None, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body; ``extra`` and what makes it a stream are added when it is sent."""
    made: dict[str, Any] = {
        "model": request["model"],
        "max_tokens": output_limit(request, settings.max_output_tokens) or MAX_TOKENS,
        "messages": _turns(request, names),
    }
    system = [message["content"] for message in request["messages"] if message["role"] == "system"]
    if request.get("tools"):
        made["tools"] = [_tool(tool, names) for tool in request["tools"]]
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        made["temperature"] = temperature
    output: dict[str, Any] = {} if effort is None else {"effort": effort}
    wanted = request.get("response_schema")
    if wanted:
        schema = schema_of(wanted)
        narrowed = strictly(schema, counts=False) if settings.structured == "json_schema" else None
        if narrowed is None:
            system.append(form_in_words(wanted, schema))
        else:
            output["format"] = {"type": "json_schema", "schema": narrowed}
    if output:
        made["output_config"] = output
    told = "\n\n".join(part for part in system if part)
    return {**made, "system": told} if told else made


def _turns(request: Object, names: Names) -> list[dict[str, Any]]:
    """Return the conversation in turns of user and assistant; results of tools are the user's, before any text."""
    calls = callers(request)
    ids = Names(map(own_id, calls))
    turns: list[dict[str, Any]] = []
    for message in request["messages"]:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message, names, ids, calls)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not turns:
        raise Trouble("the request has no message of a user, which the Messages API wants; add one")
    return turns


def _blocks(message: Object, names: Names, ids: Names, calls: Mapping[str, Object]) -> list[Object]:
    """Return a message's blocks; a text without characters is left out, because the API refuses it."""
    if message["role"] == "tool":
        return [_result(message, ids, calls)]
    calls_made = [_call(call, names, ids) for call in message.get("tool_calls", ())]
    as_it_was = restore_blocks(message, calls_made) if calls_made else None
    if as_it_was is not None:
        return as_it_was
    return [*message_parts(message["content"], _text, _image), *calls_made]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _result(message: Object, ids: Names, calls: Mapping[str, Object]) -> dict[str, Any]:
    call_id = ids.sent(own_id(answered(message, calls)["id"]))
    return {"type": "tool_result", "tool_use_id": call_id, "content": message["content"]}


def _call(call: Object, names: Names, ids: Names) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": ids.sent(own_id(call["id"])),
        "name": names.sent(call["name"]),
        "input": call["args"],
    }


def _tool(tool: Object, names: Names) -> dict[str, Any]:
    told = description(tool, names)
    function = {"name": names.sent(tool["name"]), "input_schema": parameters(tool)}
    return {**function, "description": told} if told else function
