"""Tools of LangChain that ask a gate when they run, about the arguments that they get."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, Tool

from .gate import ToolGate

_SLOTS: Final = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_FRAMEWORK: Final = (BaseTool, StructuredTool, Tool)


def governed_tool(tool: BaseTool, gate: ToolGate) -> BaseTool:
    """Return *tool* as an object of a subclass that asks *gate*; both share their state."""
    made: BaseTool = object.__new__(_governed_class(type(tool)))
    object.__setattr__(made, "__dict__", tool.__dict__)
    for name in _SLOTS:
        object.__setattr__(made, name, getattr(tool, name))
    object.__setattr__(made, "deedbook_gate", gate)
    return made


@lru_cache(maxsize=1024)
def _governed_class(base: Any) -> Any:
    """Return a subclass that asks the gate in `_run` and `_arun`, and before each way to run that *base* has itself."""
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    methods: dict[str, Any] = {"_run": _governed_run(base._run)}  # noqa: SLF001 - the methods in which each tool ends
    if base._arun is not BaseTool._arun:  # noqa: SLF001 - that one calls `_run`
        methods["_arun"] = _governed_arun(base._arun)  # noqa: SLF001 - as above
    for name in ("invoke", "run"):
        if _is_own(base, name):
            methods[name] = _governed_entry(getattr(base, name))
    for name in ("ainvoke", "arun"):
        if _is_own(base, name):
            methods[name] = _governed_aentry(getattr(base, name))
    return type(base)(base.__name__, (base,), {**names, "__slots__": ("deedbook_gate",), **methods})


def _is_own(base: Any, name: str) -> bool:
    """Return whether a class has another method than those of the framework, which end in `_run` or `_arun`."""
    return all(getattr(base, name) is not getattr(each, name) for each in _FRAMEWORK)


def _governed_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)  # the framework reads the parameters
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        gate: ToolGate = self.deedbook_gate
        if gate.entered is not None:
            gate.compare(gate.entered, args, kwargs)
            return original(self, *args, **kwargs)
        permit, args, kwargs = gate.judge(args, kwargs)
        try:
            value = original(self, *args, **kwargs)
        except BaseException as problem:
            gate.fail(permit, problem)
            raise
        return gate.end(permit, value)

    return _run


def _governed_arun(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        gate: ToolGate = self.deedbook_gate
        if gate.entered is not None:
            gate.compare(gate.entered, args, kwargs)
            return await original(self, *args, **kwargs)
        permit, args, kwargs = await gate.ajudge(args, kwargs)
        try:
            value = await original(self, *args, **kwargs)
        except BaseException as problem:
            gate.fail(permit, problem)
            raise
        return await gate.aend(permit, value)

    return _arun


def _governed_entry(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def enter(self: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        gate: ToolGate = self.deedbook_gate
        if gate.entered is not None:
            return original(self, given, *args, **kwargs)
        permit, _, _ = gate.judge((), gate.parse(_arguments(given)))
        gate.entered = permit
        try:
            value = original(self, _with_rewritten(gate, given), *args, **kwargs)
        except BaseException as problem:
            gate.fail(permit, problem)
            raise
        finally:
            gate.entered = None
        return gate.end(permit, value)

    return enter


def _governed_aentry(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    async def enter(self: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        gate: ToolGate = self.deedbook_gate
        if gate.entered is not None:
            return await original(self, given, *args, **kwargs)
        permit, _, _ = await gate.ajudge((), gate.parse(_arguments(given)))
        gate.entered = permit
        try:
            value = await original(self, _with_rewritten(gate, given), *args, **kwargs)
        except BaseException as problem:
            gate.fail(permit, problem)
            raise
        finally:
            gate.entered = None
        return await gate.aend(permit, value)

    return enter


def _arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of what a tool is invoked with: a call of a model, or just its arguments."""
    args = given["args"] if isinstance(given, dict) and given.get("type") == "tool_call" else given
    return dict(args)


def _with_rewritten(gate: ToolGate, given: Any) -> Any:
    assert gate.entered is not None
    args = gate.rewritten(gate.entered, _arguments(given))
    if args is None:
        return given
    return {**given, "args": args} if given.get("type") == "tool_call" else args
