"""Plugins without packaging: distributions that exist in memory, and classes made of one function each."""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import importlib_metadata

from deedbook.contracts import GateSpec, HandlerSpec, hookimpl
from deedbook.lifecycle import EVENTS, Lifecycle


class OfferedDistribution(importlib_metadata.Distribution):
    """A distribution that exists in memory only: a name, and entry points (group, name, target)."""

    def __init__(self, name: str, points: Iterable[tuple[str, str, str]]) -> None:
        self._name = name
        self._points = tuple(points)

    def read_text(self, filename: str) -> str | None:
        """Return a metadata file."""
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 1.0\n"
        if filename == "entry_points.txt":
            return "".join(f"[{group}]\n{name} = {target}\n" for group, name, target in self._points)
        return None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return where a file of the distribution would be: nowhere."""
        return Path(os.devnull) / path


def acting(function: Callable[[Any, Any], Any], spec: HandlerSpec) -> type[Any]:
    """Return a tool, provider or flow whose handler is *function* of arguments and ``ctx``, plain or asynchronous."""

    class Offered(_Bound):
        def __call__(self, args: Any, ctx: Any) -> Any:
            return function(args, ctx)

    Offered.spec = spec
    return Offered


def judging(function: Callable[[Any], Any], spec: GateSpec) -> type[Any]:
    """Return a policy kind whose judgement is *function* of the call."""

    class Offered(_Bound):
        def __call__(self, call: Any) -> Any:
            return function(call)

    Offered.spec = spec
    return Offered


def answering(event: str, function: Callable[..., Any], spec: GateSpec) -> type[Any]:
    """Return a hook that answers *event* with *function*, which takes the event's arguments in their order."""
    name = EVENTS[event].method

    @hookimpl
    @wraps(getattr(Lifecycle, name), updated=())  # the kernel compares the names of arguments
    def answer(self: Any, *subject: Any) -> Any:  # noqa: ARG001
        return function(*subject)

    return type("Offered", (_Bound,), {"spec": spec, name: answer})


class _Bound:
    spec: Any

    def __init__(self, settings: Any, host: Any) -> None:
        self.settings, self.host = settings, host
