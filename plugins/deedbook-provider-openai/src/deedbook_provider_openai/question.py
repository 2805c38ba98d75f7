"""From ``completion_request_v2`` to the body of a request to ``/chat/completions``."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from deedbook import Object

from .names import Names, plain
from .settings import Settings
from .strict import strictly
from .trouble import Trouble

_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "enum", "if", "then", "else")
"""What the published API refuses at the top of a function's parameters."""

SchemaOf = Callable[[str], Object]


def names_of(request: Object) -> Names:
    """Return what the request's tools are called towards the model."""
    offered = (tool["name"] for tool in request.get("tools", ()))
    mentioned = (call["name"] for message in request["messages"] for call in message.get("tool_calls", ()))
    return Names(offered, mentioned)


def body(request: Object, settings: Settings, schema_of: SchemaOf, names: Names) -> dict[str, Any]:
    """Return the body; ``extra`` and what makes it a stream are added when it is sent."""
    made: dict[str, Any] = {
        "model": request["model"],
        "messages": [_message(message, names) for message in request["messages"]],
    }
    if request.get("tools"):
        made["tools"] = [_tool(tool, names) for tool in request["tools"]]
    temperature = request.get("temperature", settings.temperature)
    if temperature is not None:
        made["temperature"] = temperature
    limits = [limit for limit in (request.get("max_tokens"), settings.max_output_tokens) if limit is not None]
    if limits:
        made["max_completion_tokens" if settings.dialect == "openai" else "max_tokens"] = min(limits)
    wanted = request.get("response_schema")
    return _formed(made, wanted, schema_of(wanted), settings) if wanted else made


def _message(message: Object, names: Names) -> dict[str, Any]:
    role, content, calls = message["role"], message["content"], message.get("tool_calls")
    if role == "tool":
        if "tool_call_id" not in message:
            raise Trouble("a tool message has no tool_call_id, so nobody can tell which call it answers")
        return {"role": role, "tool_call_id": message["tool_call_id"], "content": content}
    if role == "assistant" and calls:
        return {"role": role, "content": content or None, "tool_calls": [_call(call, names) for call in calls]}
    return {"role": role, "content": content}


def _call(call: Object, names: Names) -> dict[str, Any]:
    arguments = json.dumps(call["args"], ensure_ascii=False, separators=(",", ":"))
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": names.sent(call["name"]), "arguments": arguments},
    }


def _tool(tool: Object, names: Names) -> dict[str, Any]:
    name = tool["name"]
    schema = tool.get("schema_in", {"type": "object"})
    told = [tool["description"]] if tool.get("description") else []
    if names.sent(name) != name:
        told.append(f"Its full name, which reports give, is {name}.")
    combined = {key: schema[key] for key in _COMBINED if key in schema}
    if combined:
        told.append(f"The arguments also have to fit {_compact(combined)}")
    function = {"name": names.sent(name), "parameters": _parameters(schema)}
    return {"type": "function", "function": function | ({"description": "\n".join(told)} if told else {})}


def _parameters(schema: Object) -> dict[str, Any]:
    """Return an arguments' schema with the shape that the API wants; the door checks by the whole one."""
    kept = {key: value for key, value in schema.items() if key not in _COMBINED and key not in ("$schema", "$id")}
    return {**kept, "type": "object", "properties": schema.get("properties", {})}


def _formed(made: dict[str, Any], name: str, schema: Object, settings: Settings) -> dict[str, Any]:
    """Demand an answer of the form *schema*: by ``response_format``, else in words.

    Many compatible servers constrain the whole answer to the format, so that a model could not ask for tools any more.
    """
    if settings.structured == "none" or ("tools" in made and settings.dialect == "compatible"):
        return {**made, "messages": _told(made["messages"], name, schema)}
    if settings.structured == "json_object":
        told = _told(made["messages"], name, schema)
        return {**made, "messages": told, "response_format": {"type": "json_object"}}
    return {**made, "response_format": {"type": "json_schema", "json_schema": _format(name, schema)}}


def _format(name: str, schema: Object) -> dict[str, Any]:
    narrowed = strictly(schema)
    kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return {"name": plain(name), "schema": narrowed or kept, "strict": narrowed is not None}


def _told(messages: list[dict[str, Any]], name: str, schema: Object) -> list[dict[str, Any]]:
    """Return *messages* with the schema at the end of the first instructions."""
    form = (
        "# The form of your answer\n\nYour answer, once you ask for no more tools, is one JSON object and nothing "
        f"else: no prose around it and no code fence. It fits this JSON Schema, which is {name}:\n\n{_compact(schema)}"
    )
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": form}, *messages]
    first = {**messages[0], "content": f"{messages[0]['content'].rstrip()}\n\n{form}"}
    return [first, *messages[1:]]


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
