"""Plugins without packaging: distributions that exist in memory, and classes made of one function each."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import cache, cached_property, wraps
from inspect import isawaitable
from pathlib import Path
from typing import Any

import importlib_metadata

from deedbook.contract import GateSpec, HandlerSpec, hookimpl
from deedbook.contract.lifecycle import EVENTS, Lifecycle
from deedbook.format.canonical import encode
from deedbook.format.context import LIVE


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


class InstalledDistribution(importlib_metadata.Distribution):
    """An installed distribution whose metadata is read and parsed once."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self._path = getattr(found, "_path", None)  # discovery tells by it what hides what
        self._texts: dict[str, str | None] = {}

    @cached_property
    def entry_points(self) -> Any:
        """What it offers."""
        return self._found.entry_points

    @cached_property
    def _normalized_name(self) -> str:
        name: str = self._found._normalized_name  # noqa: SLF001 - discovery takes it, since parsing takes far longer
        return name

    def read_text(self, filename: str) -> str | None:
        """Return a metadata file."""
        if filename not in self._texts:
            self._texts[filename] = self._found.read_text(filename)
        return self._texts[filename]

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return where a file of the distribution is."""
        return self._found.locate_file(path)


def list_installed() -> tuple[importlib_metadata.Distribution, ...]:
    """Return what is installed, read once for each path of imports: a kernel reads it at each start."""
    return _installed(tuple(sys.path))


@cache
def _installed(_path: tuple[str, ...]) -> tuple[importlib_metadata.Distribution, ...]:
    return tuple(map(InstalledDistribution, importlib_metadata.distributions()))


def make_handler_class(function: Callable[[Any, Any], Any], spec: HandlerSpec) -> type[Any]:
    """Return a tool, provider or flow whose handler is *function* of arguments and ``ctx``, plain or asynchronous."""

    class Offered(_Bound):
        def __call__(self, args: Any, ctx: Any) -> Any:
            return function(args, ctx)

    Offered.spec = spec
    return Offered


def as_context_flow(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return *function* as a flow that keeps a context: what it returns completes the context, if it is unfinished."""

    async def finish_later(made: Awaitable[Any], run: Any) -> None:
        _finish(run, await made)

    def flow(args: Any, run: Any) -> Any:
        made = function(args, run)
        return finish_later(made, run) if isawaitable(made) else _finish(run, made)

    return flow


def _finish(run: Any, made: Any) -> None:
    if run.context.state not in LIVE:
        return
    told = made if isinstance(made, dict) and "reply" in made else {"reply": made}
    reply = told["reply"] if isinstance(told["reply"], str) else encode(told["reply"]).decode()
    ways = {"HALTED": run.context.halt, "FAILED": run.context.fail, "NEEDS_HUMAN": run.context.need_human}
    ways.get(told.get("state", ""), run.answer)(reply)


def make_policy_class(function: Callable[[Any], Any], spec: GateSpec) -> type[Any]:
    """Return a policy kind whose judgement is *function* of the call."""

    class Offered(_Bound):
        def __call__(self, call: Any) -> Any:
            return function(call)

    Offered.spec = spec
    return Offered


def make_hook_class(event: str, function: Callable[..., Any], spec: GateSpec) -> type[Any]:
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
