"""Plugins without packaging: distributions that exist in memory, and classes made of one function each."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import importlib_metadata

from deedbook.contracts import GateSpec, HandlerSpec, hookimpl


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
    method = _ANSWERS[event](function)
    method.__qualname__ = f"Offered.{method.__name__}"  # else pluggy takes `self` for an argument of the event
    return type("Offered", (_Bound,), {"spec": spec, method.__name__: hookimpl(method)})


class _Bound:
    spec: Any

    def __init__(self, settings: Any, host: Any) -> None:
        self.settings, self.host = settings, host


# One method for each event, since the kernel compares the names of arguments.


def _session_start(function: Callable[..., Any]) -> Callable[..., Any]:
    def session_start(self: Any, principal: Any, session: Any, now: Any, facts: Any) -> Any:  # noqa: ARG001
        return function(principal, session, now, facts)

    return session_start


def _user_prompt_submit(function: Callable[..., Any]) -> Callable[..., Any]:
    def user_prompt_submit(
        self: Any, prompt: Any, principal: Any, session: Any, now: Any, facts: Any  # noqa: ARG001
    ) -> Any:  # fmt: skip
        return function(prompt, principal, session, now, facts)

    return user_prompt_submit


def _skill_start(function: Callable[..., Any]) -> Callable[..., Any]:
    def skill_start(self: Any, skill: Any, prompt: Any, principal: Any, session: Any, now: Any) -> Any:  # noqa: ARG001
        return function(skill, prompt, principal, session, now)

    return skill_start


def _pre_tool_use(function: Callable[..., Any]) -> Callable[..., Any]:
    def pre_tool_use(self: Any, call: Any) -> Any:  # noqa: ARG001
        return function(call)

    return pre_tool_use


def _post_tool_use(function: Callable[..., Any]) -> Callable[..., Any]:
    def post_tool_use(self: Any, call: Any, result: Any) -> Any:  # noqa: ARG001
        return function(call, result)

    return post_tool_use


def _stop(function: Callable[..., Any]) -> Callable[..., Any]:
    def stop(self: Any, session: Any, ok: Any, now: Any, facts: Any) -> Any:  # noqa: ARG001
        return function(session, ok, now, facts)

    return stop


def _session_stop(function: Callable[..., Any]) -> Callable[..., Any]:
    def session_stop(self: Any, session: Any, ok: Any, now: Any, facts: Any) -> Any:  # noqa: ARG001
        return function(session, ok, now, facts)

    return session_stop


_ANSWERS: Final[Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = MappingProxyType(
    {
        "SessionStart": _session_start,
        "UserPromptSubmit": _user_prompt_submit,
        "SkillStart": _skill_start,
        "PreToolUse": _pre_tool_use,
        "PostToolUse": _post_tool_use,
        "Stop": _stop,
        "SessionStop": _session_stop,
    }
)
