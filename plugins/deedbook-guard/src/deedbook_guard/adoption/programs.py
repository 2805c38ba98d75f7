"""Import the program of an agent without letting it act."""

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.errors import BindingError, describe, fault


@attrs.frozen
class FoundGuard:
    """A call of `guard` while the program is imported: the name of the program, and its workspace if it names one."""

    agent: str
    workspace: Path | None


@attrs.frozen
class Program:
    """An imported program: its *agent*, and the *guards* that it made."""

    agent: Any
    guards: tuple[FoundGuard, ...]


_FOUND: Final[ContextVar[list[FoundGuard] | None]] = ContextVar("deedbook_found_guards", default=None)


def note_guard(agent: str, workspace: Any) -> bool:
    """Note a guard if a program is imported now; return whether that is so."""
    found = _FOUND.get()
    if found is None:
        return False
    found.append(FoundGuard(agent, Path(workspace) if workspace is not None else None))
    return True


def refuse_session(agent: str) -> BindingError:
    """Return the error for a program that acts while it is imported."""
    todo = 'run the agent under `if __name__ == "__main__":`'
    return BindingError(fault("USAGE", f"program {agent!r} acts while `deedbook adopt` imports it; {todo}"))


def import_program(target: str, folder: Path) -> Program:
    """Import ``MODULE:AGENT`` from *folder*, return its agent; ``MODULE:FUNCTION()`` calls a function that builds one.

    Guards that the program makes meanwhile begin no conversation, so no governed call runs. Raises `BindingError`.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise BindingError(fault("USAGE", f"{target!r} names no agent; write MODULE:AGENT, such as app:agent"))
    with _noting() as found, _importing_from(folder):
        try:
            value: Any = importlib.import_module(module)
            for part in name.removesuffix("()").split("."):
                value = getattr(value, part)
            agent = value() if name.endswith("()") else value
        except (Exception, SystemExit) as problem:
            raise BindingError(fault("USAGE", f"{target}: {describe(problem)}", place=_place(problem))) from problem
    return Program(agent, tuple(dict.fromkeys(found)))


@contextmanager
def _noting() -> Iterator[list[FoundGuard]]:
    found: list[FoundGuard] = []
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _place(problem: BaseException) -> str | None:
    """Return the line of the program that failed, outside of installed packages and of this module."""
    own = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith("<")
    ]
    machinery = (__file__, importlib.__file__)
    lines = [f"{frame.filename}:{frame.lineno}" for frame in own if frame.filename not in machinery]
    return lines[-1] if lines else None
