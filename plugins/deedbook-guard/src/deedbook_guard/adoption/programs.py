"""Import the program of an agent without letting it act."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs

from deedbook.format.errors import BindingError, describe, fault


@attrs.frozen
class FoundGuard:
    """A call of `guard` while the program is imported: the name of the program, and its workspace if it names one."""

    agent: str
    workspace: Path | None


@attrs.define
class FoundProgram:
    """What is found while a program is imported: its *guards*, whether it *acted*, and what *stopped* it then."""

    guards: list[FoundGuard] = attrs.field(factory=list)
    acted: bool = False
    stopped: BaseException | None = None


@attrs.frozen
class Program:
    """An imported program: its *agent*, and the *guards* that it made."""

    agent: Any
    guards: tuple[FoundGuard, ...]


_FOUND: Final[ContextVar[FoundProgram | None]] = ContextVar("deedbook_found_program", default=None)


def note_guard(agent: str, workspace: Path | None) -> bool:
    """Note a guard if a program is imported now; return whether that is so."""
    found = _FOUND.get()
    if found is None:
        return False
    found.guards.append(FoundGuard(agent, workspace))
    return True


def refuse_session(agent: str) -> BindingError:
    """Note that a program acts while it is imported, and return the error that stops it."""
    if (found := _FOUND.get()) is not None:
        found.acted = True
    todo = 'run the agent under `if __name__ == "__main__":`'
    return BindingError(fault("USAGE", f"program {agent!r} acts while `deedbook adopt` imports it; {todo}"))


def import_program(target: str, folder: Path) -> Program:
    """Import ``MODULE:AGENT`` from *folder*, return its agent; ``MODULE:FUNCTION()`` calls a function that builds one.

    Guards that the program makes meanwhile begin no conversation, so no governed call runs: a program that acts at once
    is stopped there, which is no fault if its agent is made by then. Raises `BindingError`.
    """
    name, _, path = target.partition(":")
    if not name or not path:
        raise BindingError(fault("USAGE", f"{target!r} names no agent; write MODULE:AGENT, such as app:agent"))
    with _note_programs() as found, _importing_from(folder):
        try:
            value: Any = _import(name, found)
            for part in path.removesuffix("()").split("."):
                value = getattr(value, part)
            agent = value() if path.endswith("()") else value
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the program raises is shown
            cause = found.stopped or problem
            missing = f"{problem}; " if found.stopped is not None and isinstance(problem, AttributeError) else ""
            why = f"{target}: {missing}{_explain_missing(name, cause, folder) or describe(cause)}"
            raise BindingError(fault("USAGE", why, place=_place(cause, folder))) from cause
    return Program(agent, tuple(dict.fromkeys(found.guards)))


def _explain_missing(name: str, problem: BaseException, folder: Path) -> str:
    """Return what to do if *problem* is that the program's own module, or its package, is missing; otherwise empty."""
    if not isinstance(problem, ModuleNotFoundError) or not f"{name}.".startswith(f"{problem.name}."):
        return ""
    return f"there is no module {problem.name!r} in {folder}; run the command in the folder from which the program runs"


def _import(name: str, found: FoundProgram) -> ModuleType:
    """Import a module; one that is stopped since it acts is returned as far as it came."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        if not found.acted:
            raise
        found.stopped = problem
    return module


@contextmanager
def _note_programs() -> Iterator[FoundProgram]:
    found = FoundProgram()
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


def _place(problem: BaseException, folder: Path) -> str | None:
    """Return the last line of the program in *folder* on the way to *problem*."""
    own = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if Path(frame.filename).is_relative_to(folder) and "site-packages" not in frame.filename
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
