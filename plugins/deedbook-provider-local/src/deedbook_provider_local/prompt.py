"""From ``completion_request_v2`` to the tokens of a prompt, in the chat form that the model was trained with."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook import Object

from .form import ANSWER, ARGS, CALL, open_tools
from .vocabulary import Vocabulary

_BEGIN: Final = "<|im_start|>"
_END: Final = "<|im_end|>"
_DEFAULT: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The instructions that the model's own chat template uses if there are none."""


def prompt_tokens(request: Object, response: Object | None, vocabulary: Vocabulary) -> list[int]:
    """Return the prompt; *response* is the schema that the answer has to fit."""
    begin, end = vocabulary.control_token(_BEGIN), vocabulary.control_token(_END)
    line = vocabulary.encode("\n")
    tokens: list[int] = []
    for role, content in _turns(request, response):
        tokens += [begin, *vocabulary.encode(f"{role}\n{content}"), end, *line]
    return [*tokens, begin, *vocabulary.encode("assistant\n")]


def _turns(request: Object, response: Object | None) -> Iterator[tuple[str, str]]:
    """Yield role and text of each turn; the model knows system, user and assistant only."""
    yield "system", "\n\n".join(_instructions(request, response)) or _DEFAULT
    for message in request["messages"]:
        if message["role"] == "assistant":
            yield "assistant", message["content"] or _calls(message)
        elif message["role"] == "tool":
            yield "user", f"The result is: {message['content']}"
        elif message["role"] == "user":
            yield "user", message["content"]


def _instructions(request: Object, response: Object | None) -> Iterator[str]:
    for message in request["messages"]:
        if message["role"] == "system":
            yield message["content"].strip()
    tools = open_tools(request)
    if tools:
        described = "\n".join(f"- {tool['name']}: {tool.get('description', '')}" for tool in tools)
        yield (
            f'You can use a tool with {{"{CALL}": "name", "{ARGS}": {{…}}}}, or give your answer with '
            f'{{"{ANSWER}": …}}. The tools are:\n{described}'
        )
    if response is not None:
        fields = "\n".join(f"- {name}: {text}" for name, text in _fields(response))
        yield f"Answer with one JSON object. Its members are:\n{fields}"


def _fields(schema: Object) -> Iterator[tuple[str, str]]:
    """Yield the required members of a schema and what they mean."""
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        part = properties.get(name)
        if isinstance(part, Mapping) and "const" not in part:
            yield name, str(part.get("description", ""))


def _calls(message: Object) -> str:
    calls: list[Any] = [{CALL: call["name"], ARGS: call["args"]} for call in message.get("tool_calls", ())]
    return "\n".join(json.dumps(call, ensure_ascii=False) for call in calls)
