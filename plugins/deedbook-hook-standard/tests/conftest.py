"""Calls as the kernel makes them, and hooks bound as it binds them: settings checked first."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import jsonschema_rs
import pytest

from deedbook.contracts import Call, Principal

LOCAL = Principal("local", "cli")
NOW = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def bind() -> Callable[..., Any]:
    """Load a hook by its entry point and construct it with settings that its schema accepts."""

    def bound(name: str, **settings: Any) -> Any:
        (point,) = entry_points(group="deedbook.hooks", name=name)
        hook = point.load()
        jsonschema_rs.validate(hook.spec.settings, settings)
        return hook(settings, None)

    return bound


@pytest.fixture
def call() -> Callable[[str], Call]:
    """Return a call of the ability of that name."""

    def made(ability: str) -> Call:
        return Call(ability, "tool", {}, "write", frozenset(), LOCAL, None, None, "enforce", "s", NOW, b"{}", {})

    return made
