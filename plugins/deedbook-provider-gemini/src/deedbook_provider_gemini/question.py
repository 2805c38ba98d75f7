"""From a request (``completion_request_v2``, or ``_v3`` with images) to the body for ``:generateContent``."""

from typing import Any, Final

from deedbook import IntakeError, Object, parse
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
from deedbook_provider_http.schemas import reduce_schema

from . import signatures

KEYWORDS: Final = frozenset(
    (
        "$anchor", "$defs", "$id", "$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items",
        "maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties", "required", "title", "type",
    )
)  # fmt: skip
"""What the API knows of JSON Schema."""


def body(request: Object, settings: Settings, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body; ``extra`` is added when it is sent."""
    made: dict[str, Any] = {"contents": _contents(request, names)}
    system = [message["content"] for message in request["messages"] if message["role"] == "system"]
    config: dict[str, Any] = {}
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        config["temperature"] = temperature
    limit = output_limit(request, settings.max_output_tokens)
    if limit is not None:
        config["maxOutputTokens"] = limit
    if request.get("tools"):
        made["tools"] = [{"functionDeclarations": [_function(tool, names) for tool in request["tools"]]}]
    wanted = request.get("response_schema")
    if wanted:
        schema = schema_of(wanted)
        # with functions the API of many models takes no form: the model could not ask for a tool any more
        way = "none" if "tools" in made else settings.structured
        config |= _form(schema, way)
        if way != "json_schema":
            system.append(form_in_words(wanted, schema))
    instructions = "\n\n".join(part for part in system if part)
    if instructions:
        made["systemInstruction"] = {"parts": [{"text": instructions}]}
    return {**made, "generationConfig": config} if config else made


def _form(schema: Object, way: str) -> dict[str, Any]:
    if way == "none":
        return {}
    form = {"responseMimeType": "application/json"}
    return {**form, "responseJsonSchema": _reduce_schema(schema)} if way == "json_schema" else form


def _reduce_schema(schema: Object) -> dict[str, Any]:
    """Return a schema as far as the API knows it; the kernel checks the answer by the whole one."""
    return {key: value for key, value in reduce_schema(schema, KEYWORDS).items() if key != "$id"}


def _contents(request: Object, names: Names) -> list[dict[str, Any]]:
    """Return the conversation in turns of user and model; results of tools are the user's."""
    calls = callers(request)
    turns: list[dict[str, Any]] = []
    for message in request["messages"]:
        if message["role"] == "system":
            continue
        role = "model" if message["role"] == "assistant" else "user"
        parts = _parts(message, names, calls)
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] += parts
        elif parts:
            turns.append({"role": role, "parts": parts})
    if not turns:
        raise Trouble("the request has no message of a user, which the Gemini API wants; add one")
    return turns


def _parts(message: Object, names: Names, calls: dict[str, Object]) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        return [_result(message, names, calls)]
    said = message_parts(message["content"], _text, _image)
    made = [_call(call, names) for call in message.get("tool_calls", ())]
    for part in made[1:]:  # of parallel calls, only the first one has to be signed
        if part.get("thoughtSignature") == signatures.FOREIGN:
            del part["thoughtSignature"]
    return [*said, *made]


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _image(media_type: str, data: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _call(call: Object, names: Names) -> dict[str, Any]:
    own, signature = signatures.parse_id(call["id"])
    function = {"name": names.sent(call["name"]), "args": call["args"], **({"id": own} if own else {})}
    return {"functionCall": function, **({"thoughtSignature": signature} if signature else {})}


def _result(message: Object, names: Names, calls: dict[str, Object]) -> dict[str, Any]:
    call = answered(message, calls)
    own, _ = signatures.parse_id(call["id"])
    said = {"name": names.sent(call["name"]), "response": _object(message["content"])}
    return {"functionResponse": {**said, **({"id": own} if own else {})}}


def _object(content: str) -> dict[str, Any]:
    """Return a result as the object that the API wants."""
    try:
        found = parse(content)
    except IntakeError:
        found = content
    return found if isinstance(found, dict) else {"result": found}


def _function(tool: Object, names: Names) -> dict[str, Any]:
    told = description(tool, names)
    function = {"name": names.sent(tool["name"]), "parametersJsonSchema": _reduce_schema(parameters(tool))}
    return {**function, "description": told} if told else function
