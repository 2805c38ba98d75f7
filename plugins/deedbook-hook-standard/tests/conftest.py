"""Calls as the kernel makes them, and hooks bound as it binds them: settings checked first."""

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from deedbook.contract import Call, Host, Principal
from deedbook.format.files import Folder
from deedbook.plugins.host import ReadingHost
from deedbook.policy.callers import route_data

LOCAL = Principal("local", "cli")
NOW = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Give a host over an empty folder, and the catalogue of a charter that declares nothing."""
    with Folder.at(tmp_path) as folder:
        made = ReadingHost(folder, [""], [], {}, routes=lambda: route_data({"abilities": {}}, {}))
        yield made


@pytest.fixture
def bind(host: Host) -> Callable[..., Any]:
    """Load a hook by its entry point and construct it with settings that its schema accepts."""

    def bound(name: str, **settings: Any) -> Any:
        (point,) = entry_points(group="deedbook.hooks", name=name)
        hook = point.load()
        jsonschema_rs.validate(hook.spec.settings, settings)
        return hook(settings, host)

    return bound


@pytest.fixture
def call() -> Callable[[str], Call]:
    """Return a call of the ability of that name."""

    def made(ability: str) -> Call:
        return Call(ability, "tool", {}, "write", frozenset(), LOCAL, None, None, "enforce", "s", NOW, b"{}", {})

    return made
