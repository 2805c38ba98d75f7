"""The arguments of function tools of the OpenAI Agents SDK, as the SDK validates them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from inspect import BoundArguments, Signature, getclosurevars
from typing import Any, TypeAlias

import attrs
from agents import FunctionTool
from agents.tool import _FailureHandlingFunctionToolInvoker

from deedbook.format.errors import BindingError, fault
from deedbook_guard import Permit
from deedbook_guard.arguments import (
    argument_form,
    is_judged,
    judged_args,
    merge_rewritten,
    private_copies,
    refuse_use,
    schema_names,
)


@attrs.frozen
class Prepared:
    """The arguments of one call: *own* are the objects by name, *form* is their JSON form, *sdk* what the SDK has."""

    own: dict[str, Any]
    form: dict[str, Any]
    sdk: Any = None


class OpaqueArguments:
    """The arguments of a tool that takes the JSON of the model itself: what it makes of it is not seen."""

    def prepare(self, args: dict[str, Any]) -> Prepared:
        """Return the arguments of a call; raises what the validation of the SDK raises."""
        return Prepared(args, args)

    def hand_over(self, permit: Permit, prepared: Prepared, context: Any) -> str:
        """Return the JSON to invoke the tool with, after *context* got what else is needed. Raises `CallDenied`."""
        return json.dumps(judged_args(permit))


class AgentArguments(OpaqueArguments):
    """The arguments of an agent that is a tool: the SDK makes the agent's input from what it validated."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def prepare(self, args: dict[str, Any]) -> Prepared:
        """Return the arguments as the SDK validates them: complete, so that it reads them again as they are."""
        value = self._adapter.validate_python(args)
        form: dict[str, Any] = argument_form({"value": value})["value"]
        return Prepared(form, form)

    def hand_over(self, permit: Permit, prepared: Prepared, context: Any) -> str:
        """Return the JSON; the SDK must read it as what was judged."""
        judged = judged_args(permit)
        try:
            read = self.prepare(judged).form
        except Exception as problem:  # noqa: BLE001 - a type may have validators of its own
            raise _unusable(permit, problem) from None
        if not is_judged(permit, read):
            raise refuse_use(permit, "the SDK reads the arguments that were judged as others")
        return json.dumps(judged)


class FunctionArguments:
    """The arguments of a tool that the SDK made from a function: the objects that the function gets."""

    def __init__(self, name: str, prepare: Any, schema: Any) -> None:
        self._name, self._prepare, self._schema = name, prepare, schema
        self._names = schema_names(schema.params_pydantic_model)
        given = list(schema.signature.parameters.values())
        self._shape = Signature(given[1:] if schema.takes_context else given)

    def prepare(self, args: dict[str, Any]) -> Prepared:
        """Return the arguments as the function gets them; raises what the validation of the SDK raises."""
        made = self._prepare(json.dumps(args), self._name)
        return self._of(made, made.args, made.kwargs)

    def hand_over(self, permit: Permit, prepared: Prepared, context: Any) -> str:
        """Give the judged arguments to *context*, from which the SDK takes them; return the JSON they came from."""
        if is_judged(permit, prepared.form):
            final = private_copies(prepared.own, prepared.form, self._names)
        else:
            final = self._rewritten(permit, prepared)
        bound = BoundArguments(self._shape, final)  # type: ignore[arg-type] - a dict has an order too
        made = replace(prepared.sdk, args=list(bound.args), kwargs=dict(bound.kwargs))
        context._function_tool_arguments = made  # noqa: SLF001 - where the SDK keeps them between approval and run
        return str(made.arguments)

    def _rewritten(self, permit: Permit, prepared: Prepared) -> dict[str, Any]:
        """Return what a hook made of the arguments, validated by the SDK's own schema of the function."""
        merged = merge_rewritten(permit, prepared.own, prepared.form, self._names)
        try:
            args, kwargs = self._schema.to_call_args(self._schema.params_pydantic_model(**merged))
            made = self._of(prepared.sdk, args, kwargs)
        except Exception as problem:  # noqa: BLE001 - a type may have validators of its own
            raise _unusable(permit, problem) from None
        if not is_judged(permit, made.form):
            raise refuse_use(permit, "a hook changed the arguments, and the tool reads them as others")
        return made.own

    def _of(self, sdk: Any, args: list[Any], kwargs: Mapping[str, Any]) -> Prepared:
        own = dict(self._shape.bind(*args, **kwargs).arguments)
        return Prepared(own, argument_form(own, self._names), sdk)


Arguments: TypeAlias = OpaqueArguments | FunctionArguments


def arguments_of(tool: FunctionTool) -> Arguments:
    """Return how to read the arguments of *tool*; raises `BindingError` for a function whose SDK hides them."""
    invoke = tool.on_invoke_tool
    inner = getattr(invoke, "_invoke_tool_impl", None)
    if not isinstance(invoke, _FailureHandlingFunctionToolInvoker) or not hasattr(inner, "__closure__"):
        return OpaqueArguments()
    held = getclosurevars(inner).nonlocals
    if "params_adapter" in held:
        return AgentArguments(held["params_adapter"])
    if "_prepare_arguments" in held and "schema" in held:
        return FunctionArguments(tool.name, held["_prepare_arguments"], held["schema"])
    if hasattr(inner, "__agents_prepare_arguments__"):
        why = f"tool {tool.name!r} cannot be governed: this version of the SDK does not show its validated arguments"
        raise BindingError(fault("BINDING_INVALID", why))
    return OpaqueArguments()


def raising(tool: FunctionTool, problem: Exception) -> Any:
    """Return how the SDK answers a call of *tool* whose validation raised *problem*: a function of its context.

    The tool is not invoked: a validation that has state could pass the second time.
    """
    invoke = tool.on_invoke_tool
    if not isinstance(invoke, _FailureHandlingFunctionToolInvoker):
        raise problem

    async def fail(_context: Any, _text: str) -> Any:
        raise problem

    return _FailureHandlingFunctionToolInvoker(fail, invoke._on_handled_error, function_tool=invoke._function_tool)  # noqa: SLF001


def _unusable(permit: Permit, problem: Exception) -> Exception:
    return refuse_use(permit, f"the tool does not accept what a hook made of its arguments: {problem}")
