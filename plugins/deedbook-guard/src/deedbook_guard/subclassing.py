"""Govern an object that a framework already holds: its class becomes a subclass with governed methods."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from deedbook.format.errors import BindingError, fault

_OWNER: Final = "_deedbook_owner"


Methods: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Makes the methods of a subclass of the given class, by name; each may call the one of that class. Hashable."""


def govern_object(target: Any, methods: Methods) -> None:
    """Make *target* an instance of a subclass of its class that has the governed *methods*.

    The object keeps its identity, its state and its place in the framework; copies of it are also governed. A second
    call does nothing. Raises `BindingError` if the object is governed with other methods, or if its class cannot be
    changed.
    """
    owner = owner_of(target)
    if owner == methods:
        return
    if owner is not None:
        raise _refusal(target, "it is governed by another guard")
    base: Any = type(target)
    try:
        object.__setattr__(target, "__class__", _subclass(base, methods))
    except TypeError as problem:
        raise _refusal(target, str(problem)) from problem


def owner_of(target: Any) -> Methods | None:
    """Return the methods that *target* is governed with, or ``None``."""
    found: Methods | None = getattr(type(target), _OWNER, None)
    return found


@lru_cache(maxsize=1024)
def _subclass(base: type, methods: Methods) -> type:
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    made = type(base)(base.__name__, (base,), {**names, **methods(base)})
    setattr(made, _OWNER, staticmethod(methods))
    return made


def _refusal(target: Any, why: str) -> BindingError:
    name = getattr(target, "name", None) or type(target).__name__
    return BindingError(fault("BINDING_INVALID", f"{type(target).__name__} {name!r} cannot be governed: {why}"))
