"""Requests to models and their answers, in the forms ``completion_request_v2`` and ``completion_response_v2``.

Adapters build them from the messages of their framework. What a framework does not show is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from typing import Any, Final, TypeAlias

from deedbook.format.canonical import admit, parse
from deedbook.format.errors import IntakeError

from .values import as_json

JsonObject: TypeAlias = dict[str, Any]
UNKNOWN_MODEL: Final = "unknown"
"""The name of a model whose name the framework does not show."""
_BYTES_PER_TOKEN: Final = 4
_COUNTS: Final = ("input_tokens", "output_tokens")
_FINISH_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("max_tokens", "length", "max_output_tokens", "incomplete", "MAX_TOKENS"), "max_tokens"),
    **dict.fromkeys(("content_filter", "safety", "refusal", "SAFETY"), "safety"),
}


def message(role: str, content: Any, *, calls: Sequence[JsonObject] = (), call_id: str | None = None) -> JsonObject:
    """Return a message of *role*: ``system``, ``user``, ``assistant`` or ``tool``.

    *content* is text, or anything that `text_of` reads. *calls* are tool calls that it asks for, *call_id* is that of
    the call whose result it is.
    """
    made: JsonObject = {"role": role, "content": text_of(content)}
    if calls:
        made["tool_calls"] = list(calls)
    if call_id:
        made["tool_call_id"] = call_id
    return made


def tool_call(call_id: str | None, name: str, args: Any, *, number: int = 1) -> JsonObject:
    """Return a tool call; *args* is an object or its JSON.

    Other arguments, and those that intake refuses, such as a member named twice or a number that the ledger cannot hold
    exactly, are kept as ``{"text": …}``. A call without an id gets one by its *number*.
    """
    return {"id": call_id or f"call_{number}", "name": name or "unknown", "args": _arguments(args)}


def _arguments(args: Any) -> JsonObject:
    """Return *args* as an object that intake accepts."""
    if args is None or args == "":
        return {}
    text = args if isinstance(args, str) else dumps(as_json(args))
    try:
        found = parse(text)
    except IntakeError:
        found = None
    return found if isinstance(found, dict) else {"text": text}


def tool_offer(name: str, description: str | None = None, schema: Any = None) -> JsonObject:
    """Return a tool that a model may ask for; *schema* is the JSON Schema of its arguments."""
    made: JsonObject = {"name": name or "unknown"}
    if description:
        made["description"] = description
    if isinstance(schema, Mapping):
        made["schema_in"] = schema
    return made


def recorded_request(request: JsonObject) -> JsonObject:
    """Return a request that a framework sends itself as JSON for the record.

    A schema that intake refuses, such as one with a bound beyond 2^53, is kept exactly as ``{"text": …}``, its JSON.
    """
    made: JsonObject = as_json(request)
    tools = made.get("tools")
    if isinstance(tools, list):
        made["tools"] = [_recorded_tool(each) for each in tools]
    return made


def _recorded_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or "schema_in" not in tool:
        return tool
    try:
        admit(tool["schema_in"])
    except IntakeError:
        return {**tool, "schema_in": {"text": dumps(tool["schema_in"], ensure_ascii=False)}}
    return tool


def request(
    model: str | None,
    messages: Iterable[JsonObject],
    tools: Iterable[JsonObject] = (),
    *,
    max_tokens: Any = None,
    temperature: Any = None,
) -> JsonObject:
    """Return a request to *model*; limits that the form does not allow are left out."""
    made: JsonObject = {"messages": list(messages), "model": model or UNKNOWN_MODEL, "schema_version": "v2"}
    if offered := list(tools):
        made["tools"] = offered
    if type(max_tokens) is int and max_tokens > 0:
        made["max_tokens"] = max_tokens
    if type(temperature) in (int, float) and temperature >= 0:
        made["temperature"] = temperature
    return made


def response(
    model: str | None,
    text: str,
    calls: Sequence[JsonObject] = (),
    *,
    usage: Mapping[str, Any] | None = None,
    reason: Any = None,
) -> JsonObject:
    """Return an answer. *usage* has ``input_tokens`` and ``output_tokens`` as far as they are known.

    *reason* is the framework's word for why the model stopped.
    """
    finish = _FINISH_REASONS.get(str(getattr(reason, "value", reason)), "stop")
    return {
        "text": text,
        "tool_calls": list(calls),
        "finish_reason": "tool_use" if calls and finish == "stop" else finish,
        "usage": {name: count for name in _COUNTS if (count := _count(usage, name)) is not None},
        "model": model or UNKNOWN_MODEL,
        "schema_version": "v2",
    }


def text_of(content: Any) -> str:
    """Return *content* as text: the texts of its parts; ``[KIND]`` stands for a part without text, such as an image."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(map(_part_text, content))
    return dumps(as_json(content), ensure_ascii=False)


def estimate_usage(question: Mapping[str, Any], answer: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return the answer with complete usage, and the counts that are estimated since the framework shows none.

    The estimate is one token for four bytes of text, as that of the providers.
    """
    counted = dict(answer.get("usage") or {})
    missing = [name for name in _COUNTS if name not in counted]
    if "input_tokens" in missing:
        counted["input_tokens"] = _estimate("".join(each["content"] for each in question["messages"]))
    if "output_tokens" in missing:
        calls = answer.get("tool_calls")
        counted["output_tokens"] = _estimate(f"{answer.get('text')}{dumps(calls) if calls else ''}")
    return ({**answer, "usage": counted} if missing else answer), missing


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    read = part.get if isinstance(part, Mapping) else lambda name, default=None: getattr(part, name, default)
    text = read("text")
    if isinstance(text, str):
        return text
    kind = read("type") or read("kind") or type(part).__name__
    return f"[{kind}]"


def _count(usage: Mapping[str, Any] | None, name: str) -> int | None:
    """Return a count of tokens; ``None`` where the framework has none. A framework says 0 for no usage at all."""
    found = (usage or {}).get(name)
    known = any(type(each) is int and each > 0 for each in (usage or {}).values())
    return found if type(found) is int and found >= 0 and known else None


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
