"""The arguments of tools of Pydantic AI: their names in the schema, and their validation after a hook changed them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from inspect import isawaitable
from typing import Any, TypeAlias, get_type_hints

from pydantic.fields import FieldInfo
from pydantic_ai import RunContext
from pydantic_ai._function_schema import FunctionSchema
from pydantic_ai.toolsets import ToolsetTool
from pydantic_ai.toolsets.function import FunctionToolsetTool

from deedbook_guard import Permit
from deedbook_guard.arguments import argument_form, is_judged, merge_rewritten, refuse_use, schema_name

Run: TypeAlias = Callable[[dict[str, Any], RunContext[Any]], Awaitable[Any]]
Around: TypeAlias = Callable[[dict[str, Any], RunContext[Any], Run], Awaitable[Any]]


def names_of(tool: ToolsetTool[Any] | None) -> Mapping[str, str]:
    """Return the names of the parameters of a tool in its schema, where these are others."""
    schema = _function_schema(tool)
    return _aliases(schema.function) if schema is not None else {}


def with_gate(tool: ToolsetTool[Any], around: Around) -> ToolsetTool[Any] | None:
    """Return *tool* with its function run by *around*, which gets the arguments, the context and the function.

    ``None`` if it is no tool of a function, such as one of an MCP server.
    """
    if isinstance(tool, FunctionToolsetTool):
        run: Run = tool.call_func

        async def call_func(args: dict[str, Any], ctx: RunContext[Any]) -> Any:
            return await around(args, ctx, run)

        return replace(tool, call_func=call_func)
    inner = getattr(tool, "source_tool", None)
    gated = with_gate(inner, around) if inner is not None else None
    return replace(tool, source_tool=gated) if gated is not None else None  # type: ignore[call-arg]


async def revalidate(
    permit: Permit, args: Mapping[str, Any], tool: ToolsetTool[Any] | None, ctx: RunContext[Any]
) -> dict[str, Any]:
    """Return what a hook made of *args*, as the validation of the tool reads it.

    Raises `CallDenied` if the tool does not accept it, or reads it as something else than what is recorded.
    """
    names = names_of(tool)
    merged = merge_rewritten(permit, args, argument_form(args, names), names)
    try:
        made = await _validate(merged, tool, ctx)
    except Exception as problem:  # noqa: BLE001 - a type may have validators of its own
        raise refuse_use(permit, f"the tool does not accept what a hook made of its arguments: {problem}") from None
    if not is_judged(permit, argument_form(made, names)):
        raise refuse_use(permit, "a hook changed the arguments, and the tool reads them as others")
    return made


async def _validate(merged: dict[str, Any], tool: ToolsetTool[Any] | None, ctx: RunContext[Any]) -> dict[str, Any]:
    if tool is None:
        raise ValueError("the tool is not known")
    schema = _function_schema(tool)
    if schema is not None and schema.single_arg_name is not None:
        made = schema.revalidate(merged, context=ctx.validation_context)
    else:
        made = tool.args_validator.validate_python(merged, context=ctx.validation_context)
    if tool.args_validator_func is not None:
        answer = tool.args_validator_func(ctx, **made)
        if isawaitable(answer):
            await answer
    return made


def _function_schema(tool: Any) -> FunctionSchema | None:
    while hasattr(tool, "source_tool"):
        tool = tool.source_tool
    found = getattr(getattr(tool, "call_func", None), "__self__", None)
    return found if isinstance(found, FunctionSchema) else None


@lru_cache(maxsize=1024)
def _aliases(function: Any) -> Mapping[str, str]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - pydantic has its own ways to find the types; without an alias nothing differs
        return {}
    fields = {
        name: each for name, hint in hints.items() for each in getattr(hint, "__metadata__", ()) if _is_field(each)
    }
    return {name: schema_name(name, field) for name, field in fields.items()}


def _is_field(value: Any) -> bool:
    return isinstance(value, FieldInfo)
