"""A host on a real folder, and calls checked against the schemas that a tool declares."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from deedbook.contract import Failed, FolderEntry, Principal
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder


class RealHost:
    """The contract's host, on one root."""

    def __init__(self, root: Path) -> None:
        self.folder = Folder.at(root)

    def secret(self, name):
        raise Failed("SECRET_MISSING", name)

    def open(self, path):
        return self._asked(lambda: self.folder.open(path))

    def scan(self, path):
        found = self._asked(lambda: self.folder.scan(path))
        return [FolderEntry(f"{path}/{name}".lstrip("/"), folder, size) for name, folder, size in found]

    def replace(self, path, data, *, expected):
        return self._asked(lambda: self.folder.replace(path, data, expected=expected, mode=0o644))

    def _asked(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except DeedbookError as problem:
            raise Failed(problem.error.code, str(problem), retryable=problem.error.retryable) from None


class RealCtx:
    """One call, with a number of looks at the clock after which its time is up."""

    session = "s-1"
    idempotency_key = "k-1"
    principal = Principal("local", "cli")

    def __init__(self, looks: float = float("inf")) -> None:
        self.looks = looks

    def remaining(self):
        self.looks -= 1
        return self.looks

    def progress(self, delta):
        raise AssertionError("no standard tool shows progress")


@pytest.fixture
def root(tmp_path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def host(root) -> Iterator[RealHost]:
    made = RealHost(root)
    yield made
    made.folder.close()


@pytest.fixture
def use(host) -> Callable[..., Any]:
    """Call a tool as the door does: arguments and result fit the tool's own schemas."""

    def call(kind, /, looks=float("inf"), **args):
        jsonschema_rs.validate(kind.spec.takes, args)
        result = kind({}, host)(args, RealCtx(looks))
        jsonschema_rs.validate(kind.spec.gives, result)
        return result

    return call


@pytest.fixture
def fails(use) -> Callable[..., str]:
    """Call a tool that has to fail, and return the code."""

    def call(kind, /, **args):
        with pytest.raises(Failed) as caught:
            use(kind, **args)
        return caught.value.code

    return call
