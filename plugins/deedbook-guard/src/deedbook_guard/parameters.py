"""How a function takes its arguments: by name for policies, and back to how they are passed."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial, partialmethod
from inspect import (
    BoundArguments,
    Parameter,
    Signature,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from types import FunctionType
from typing import Any, Final

import attrs

from deedbook.format.errors import BindingError, fault

_BUILTIN: Final = frozenset({object, str, bytes, int, float, bool, type(None), dict, list, tuple, set, frozenset})
_VARIABLE: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@attrs.frozen
class Parameters:
    """The parameters of a tool: *target* is called with all arguments, of which a `partial` has *fixed* some.

    *shape* has the parameters of *target*.
    """

    target: Callable[..., Any]
    shape: Signature
    fixed: tuple[Any, ...]
    fixed_by_name: Mapping[str, Any]

    @classmethod
    def read(cls, tool: str, function: Callable[..., Any]) -> "Parameters":
        """Return the parameters of *function*; raises `BindingError` for what cannot be governed as the tool *tool*."""
        if isinstance(function, classmethod | staticmethod):
            raise _refusal(tool, f"it is a {type(function).__name__}; write @{type(function).__name__} above the guard")
        target, fixed, by_name = function, list[Any](), dict[str, Any]()
        while isinstance(target, partial):
            fixed, by_name = [*target.args, *fixed], {**target.keywords, **by_name}
            target = target.func
        if any(map(isgeneratorfunction, _callables(target))) or any(map(isasyncgenfunction, _callables(target))):
            why = "a generator goes on after it returned, so its outcome cannot be recorded; return a list"
            raise _refusal(tool, why)
        try:
            shape = _signature(target)
        except (TypeError, ValueError) as problem:
            raise _refusal(tool, f"its parameters are not known ({problem}); govern a function that calls it") from None
        return cls(target, shape, tuple(fixed), by_name)

    @property
    def is_async(self) -> bool:
        """Whether the tool is a coroutine function, or an object whose ``__call__`` is one."""
        return any(map(iscoroutinefunction, _callables(self.target)))

    def bind(self, governed: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Arguments":
        """Return the arguments of one call with defaults; raises `TypeError` as the function would.

        *governed* is the function that the program calls. If it is called as a method, its first argument is the owner.
        """
        bound = self.shape.bind(*self.fixed, *args, **{**self.fixed_by_name, **kwargs})
        bound.apply_defaults()  # a policy judges all arguments, not only those that the caller names
        first = next(iter(self.shape.parameters.values()), None)
        if first is None or first.kind in _VARIABLE or not _is_owner(bound.arguments[first.name], governed):
            return Arguments(self, bound.arguments, {})
        owner = bound.arguments.pop(first.name)
        return Arguments(self, bound.arguments, {first.name: owner})


@attrs.frozen
class Arguments:
    """The arguments of one call: *by_name* are judged; *owner* is the object or class that a method belongs to."""

    parameters: Parameters
    by_name: dict[str, Any]
    owner: dict[str, Any]

    def misfit(self, changed: Mapping[str, Any]) -> str | None:
        """Return why the function cannot take the *changed* arguments as they are judged; ``None`` if it can."""
        if changed.keys() != self.by_name.keys():
            expected = ", ".join(self.by_name) or "none"
            return f"the function takes exactly {expected}; a hook may change values, not names"
        for name, value in changed.items():
            kind = self.parameters.shape.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL and not isinstance(value, list | tuple):
                return f"{name} is no list"
            if kind is Parameter.VAR_KEYWORD and not isinstance(value, dict):
                return f"{name} is no object"
        return None

    def apply(self, judged: Mapping[str, Any]) -> Any:
        """Call the function with the arguments as *judged*; it may have to be awaited."""
        made = BoundArguments(self.parameters.shape, {**self.owner, **judged})
        return self.parameters.target(*made.args, **made.kwargs)


def _signature(target: Callable[..., Any]) -> Signature:
    """Return the signature of *target* itself, with the names of what it wraps where it passes all arguments on.

    A wrapper that takes arguments by names of its own is judged by these: they are what it gets.
    """
    wrapped = getattr(target, "__wrapped__", None)
    if not callable(wrapped) or hasattr(target, "__signature__"):
        return signature(target)
    try:
        own = signature(target, follow_wrapped=False)
    except ValueError:  # a wrapper in C, such as that of `lru_cache`, passes on what it gets
        return _signature(wrapped)
    named = [each for each in own.parameters.values() if each.kind not in _VARIABLE]
    if len(own.parameters) - len(named) < len(_VARIABLE):
        return own
    inner = _signature(wrapped)
    first = list(inner.parameters.values())[: len(named)]
    passes = [(each.name, each.kind) for each in named] == [(each.name, each.kind) for each in first]
    return inner if passes else own


def _callables(target: Any) -> tuple[Any, ...]:
    """Return *target*, and the method that runs if it is an object that is called."""
    return target, None if isinstance(target, type) else getattr(type(target), "__call__", None)  # noqa: B004 - to read it


def _is_owner(value: Any, governed: object) -> bool:
    """Return whether *value* is an object, or a class, whose method is the function *governed*."""
    if type(value) in _BUILTIN:
        return False
    kinds = (value, type(value)) if isinstance(value, type) else (type(value),)
    bases = [base for kind in kinds for base in kind.__mro__ if base not in _BUILTIN]
    return any(_leads_to(each, governed) for base in bases for each in list(vars(base).values()))


def _leads_to(member: Any, governed: object) -> bool:
    """Return whether *member* of a class calls *governed* with the object or the class first."""
    if isinstance(member, classmethod):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, cached_property | partialmethod):
        member = member.func
    while isinstance(member, FunctionType):
        if member is governed:
            return True
        member = member.__dict__.get("__wrapped__")
    return False


def _refusal(tool: str, why: str) -> BindingError:
    return BindingError(fault("BINDING_INVALID", f"tool {tool!r}: {why}"))
