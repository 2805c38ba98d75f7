"""Tools as functions of a model, and forms of answers in words."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from deedbook import Object

from .names import Names
from .trouble import Trouble

SchemaOf = Callable[[str], Object]

_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "enum", "if", "then", "else")
"""What vendors refuse at the top of a function's parameters."""


def names_of(request: Object) -> Names:
    """Return what the request's tools are called towards the model."""
    offered = (tool["name"] for tool in request.get("tools", ()))
    mentioned = (call["name"] for message in request["messages"] for call in message.get("tool_calls", ()))
    return Names(offered, mentioned)


def callers(request: Object) -> dict[str, Object]:
    """Return every earlier call of the conversation by its id."""
    return {call["id"]: call for message in request["messages"] for call in message.get("tool_calls", ())}


def answered(message: Object, calls: Mapping[str, Object]) -> Object:
    """Return the earlier call whose result a tool's message is; raises `Trouble` if there is none."""
    call_id = answered_id(message)
    if call_id not in calls:
        raise Trouble(f"a tool message answers the call {call_id[:80]!r}, which no message before it makes")
    return calls[call_id]


def answered_id(message: Object) -> str:
    """Return the id of the call whose result a tool's message is; raises `Trouble` if it does not say so."""
    if "tool_call_id" not in message:
        raise Trouble("a tool message has no tool_call_id, so it is unclear which call it answers")
    return str(message["tool_call_id"])


def description(tool: Object, names: Names) -> str:
    """Return what the model is told about a tool, with what its parameters cannot say."""
    schema = tool.get("schema_in", {})
    said = [tool["description"]] if tool.get("description") else []
    if names.sent(tool["name"]) != tool["name"]:
        said.append(f"Its full name, which reports give, is {tool['name']}.")
    combined = {key: schema[key] for key in _COMBINED if key in schema}
    if combined:
        said.append(f"The arguments also have to fit {compact(combined)}")
    return "\n".join(said)


def parameters(tool: Object) -> dict[str, Any]:
    """Return the schema of a tool's arguments with the shape that vendors want; the door checks by the whole one."""
    schema = tool.get("schema_in", {"type": "object"})
    kept = {key: value for key, value in schema.items() if key not in _COMBINED and key not in ("$schema", "$id")}
    return {**kept, "type": "object", "properties": schema.get("properties", {})}


def chat_tool(tool: Object, names: Names) -> dict[str, Any]:
    """Return a tool as Chat Completions, and the protocols that follow it, write it."""
    told = description(tool, names)
    function = {"name": names.sent(tool["name"]), "parameters": parameters(tool)}
    return {"type": "function", "function": function | ({"description": told} if told else {})}


def add_instructions(messages: list[dict[str, Any]], more: str) -> list[dict[str, Any]]:
    """Return the messages of a chat with *more* at the end of the first instructions."""
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": more}, *messages]
    first = {**messages[0], "content": f"{messages[0]['content'].rstrip()}\n\n{more}"}
    return [first, *messages[1:]]


def form_in_words(name: str, schema: Object) -> str:
    """Return instructions to answer in a form, for an endpoint that cannot be given the schema itself."""
    return (
        "# The form of your answer\n\nYour answer, once you ask for no more tools, is one JSON object and nothing "
        f"else: no prose around it and no code fence. It fits this JSON Schema, which is {name}:\n\n{compact(schema)}"
    )


def output_limit(request: Object, own: int | None) -> int | None:
    """Return the lower one of the request's and the settings' limits of tokens."""
    limits = [limit for limit in (request.get("max_tokens"), own) if limit is not None]
    return min(limits) if limits else None


def compact(value: Mapping[str, Any]) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
