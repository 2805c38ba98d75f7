"""Requests and answers of models in Google ADK, in the forms that Deedbook records."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.adk.models import LlmRequest, LlmResponse
from google.genai import types

from deedbook_guard import completions

_ROLES: Final = {"model": "assistant", "user": "user"}


def request_of(request: LlmRequest) -> dict[str, Any]:
    """Return a request as the model gets it."""
    config = request.config
    instruction = config.system_instruction
    given = [completions.message("system", _instruction_text(instruction))] if instruction else []
    return completions.request(
        request.model,
        [*given, *(each for content in request.contents for each in _messages(content))],
        list(_offers(config.tools or ())),
        max_tokens=config.max_output_tokens,
        temperature=config.temperature,
    )


def response_of(request: LlmRequest, responses: Sequence[LlmResponse]) -> dict[str, Any]:
    """Return the answer that *responses* make; partial ones count only where no complete one repeats them.

    Thinking and parts that are neither text nor calls of functions are left out.
    """
    complete = [each for each in responses if not each.partial] or list(responses)
    parts = [part for each in complete for part in _parts(each.content)]
    usage = next((each.usage_metadata for each in reversed(responses) if each.usage_metadata), None)
    reasons = [each.finish_reason or each.error_code for each in complete]
    return completions.response(
        next((each.model_version for each in responses if each.model_version), request.model),
        "".join(part.text for part in parts if part.text and not part.thought),
        _calls(parts),
        usage={
            "input_tokens": usage and usage.prompt_token_count,
            "output_tokens": usage and _sum(usage.candidates_token_count, usage.thoughts_token_count),
        },
        reason=next((each for each in reversed(reasons) if each), None),
    )


def hosted_tools(responses: Iterable[LlmResponse]) -> list[str]:
    """Return the kinds of the provider's own tools whose use an answer shows."""
    found = set()
    for response in responses:
        if response.grounding_metadata is not None:
            found.add("grounding")
        if any(part.executable_code or part.code_execution_result for part in _parts(response.content)):
            found.add("code_execution")
    return sorted(found)


def _messages(content: types.Content) -> Iterator[dict[str, Any]]:
    """Yield a content as a message, and one for each result of a tool in it."""
    parts = _parts(content)
    for part in parts:
        if answer := part.function_response:
            yield completions.message("tool", answer.response, call_id=answer.id)
    others = [_text(part) for part in parts if not (part.function_call or part.function_response or part.thought)]
    calls = _calls(parts)
    if others or calls:
        yield completions.message(_ROLES.get(content.role or "user", "user"), others, calls=calls)


def _calls(parts: Sequence[types.Part]) -> list[dict[str, Any]]:
    found = [part.function_call for part in parts if part.function_call]
    return [
        completions.tool_call(call.id, call.name or "", call.args, number=number)
        for number, call in enumerate(found, 1)
    ]


def _offers(tools: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        if not isinstance(tool, types.Tool):
            yield completions.tool_offer(getattr(tool, "__name__", type(tool).__name__))
            continue
        for each in tool.function_declarations or ():
            yield completions.tool_offer(each.name or "", each.description, schema_of(each))
        for name in tool.model_fields_set - {"function_declarations"}:
            if getattr(tool, name) is not None:
                yield completions.tool_offer(name)


def schema_of(declaration: types.FunctionDeclaration) -> Any:
    """Return the JSON Schema of a function's arguments."""
    if declaration.parameters_json_schema is not None:
        return declaration.parameters_json_schema
    shape = declaration.parameters
    return shape.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True) if shape is not None else None


def _instruction_text(instruction: Any) -> str:
    """Return a system instruction, which may be text, a part, a content, or a list of these."""
    if isinstance(instruction, list | tuple):
        return "\n".join(map(_instruction_text, instruction))
    if isinstance(instruction, types.Content):
        return "\n".join(map(_text, _parts(instruction)))
    return _text(instruction) if isinstance(instruction, types.Part) else completions.text_of(instruction)


def _text(part: types.Part) -> str:
    """Return the text of a part; ``[KIND]`` stands for one without text."""
    if part.text is not None:
        return part.text
    kinds = sorted(name for name in part.model_fields_set if getattr(part, name) is not None)
    return f"[{kinds[0] if kinds else 'empty'}]"


def _parts(content: types.Content | None) -> list[types.Part]:
    return list(content.parts or ()) if content is not None else []


def _sum(*counts: int | None) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None
