"""Plugins under observation: the class itself, with what it is given and answers looked at in passing."""

import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import getmembers, isawaitable, isroutine
from typing import Any, Final

import attrs

from deedbook.format.canonical import encode

_OUTSIDE: Final = (
    "open", "os.", "shutil.", "socket.", "subprocess.", "sqlite3.", "urllib.", "http.", "ftplib.", "ctypes.", "glob.",
    "pty.", "tempfile.",
)  # fmt: skip
"""Audit events of what leaves the process or reads from outside it."""
_DEPTH: Final = 4


class Audit:
    """Forbids files, sockets and processes to one thread for a while.

    An audit hook of Python cannot be taken back, so one is made for all tests.
    """

    def __init__(self) -> None:
        self._thread: int | None = None
        self._seen: list[str] = []
        sys.addaudithook(self._hear)

    @contextmanager
    def forbid(self) -> Iterator[list[str]]:
        """Forbid them to this thread; give what it tried all the same."""
        self._thread, self._seen = threading.get_ident(), []
        try:
            yield self._seen
        finally:
            self._thread = None

    def _hear(self, event: str, args: Any) -> None:
        if self._thread == threading.get_ident() and event.startswith(_OUTSIDE):
            self._seen.append(f"{event}{args[:1]!r}")
            raise PermissionError(f"what declares itself pure may not do this: {event}")


@attrs.define(eq=False)
class Watch:
    """What was seen of a plugin: its objects, and what is wrong with how they behave."""

    made: list[Any] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)

    def handler(self, plugin: type[Any]) -> type[Any]:
        """Return a tool, provider or flow that is *plugin*, watched."""
        watch = self

        class Watched(plugin):  # type: ignore[misc]
            def __init__(self, settings: Any, host: Any) -> None:
                super().__init__(settings, host)
                watch.made.append(self)

            def __call__(self, args: Any, ctx: Any) -> Any:
                before = encode(args)
                result = super().__call__(args, ctx)
                if isawaitable(result):
                    return self._await_result(result, args, before)
                watch._look(self, args, before)
                return result

            async def _await_result(self, result: Awaitable[Any], args: Any, before: bytes) -> Any:
                made = await result
                watch._look(self, args, before)
                return made

        return Watched

    def gate(self, plugin: type[Any], audit: Audit) -> type[Any]:
        """Return a hook or a policy kind that is *plugin*; a pure one is asked thrice, twice under *audit*."""
        names = [name for name, method in getmembers(plugin, isroutine) if getattr(method, "deedbook_impl", None)]
        asked = [*names, *(name for name in ("__call__", "decide") if name in dir(plugin))]
        pure = plugin.spec.pure is True
        methods = {name: self._thrice(getattr(plugin, name), audit, pure=pure) for name in asked}

        def construct(this: Any, settings: Any, host: Any) -> None:
            plugin.__init__(this, settings, host)
            self.made.append(this)

        return type("Watched", (plugin,), {"__init__": construct, **methods})

    def _thrice(self, method: Any, audit: Audit, *, pure: bool) -> Any:
        @wraps(method)
        def asked(this: Any, *subject: Any) -> Any:
            first = method(this, *subject)
            if pure:
                with audit.forbid() as tried:
                    again = [self._answer(method, this, *subject) for _ in range(2)]
                self.faults.extend(f"is declared pure, and does {what}" for what in tried)
                if [first, first] != again:
                    self.faults.append(f"is declared pure, and answers {first!r}, then {again}")
            return first

        return asked

    def _answer(self, method: Any, *subject: Any) -> Any:
        try:
            return method(*subject)
        except Exception as problem:  # noqa: BLE001 - an answer, too, and never the one before
            return problem

    def _look(self, handler: Any, args: Any, before: bytes) -> None:
        if encode(args) != before:
            self.faults.append(f"changes its arguments: {before.decode()} became {encode(args).decode()}")
        if isinstance(args, dict | list) and args and _holds((vars_of(handler), vars(type(handler).__mro__[1])), args):
            self.faults.append("keeps its arguments: what is sealed or scrubbed would live on in it")


def vars_of(made: Any) -> dict[str, Any]:
    """Return an object's attributes, with and without slots."""
    slots = [name for base in type(made).__mro__ for name in getattr(base, "__slots__", ())]
    return {**{name: getattr(made, name) for name in slots if hasattr(made, name)}, **getattr(made, "__dict__", {})}


def _holds(where: Any, what: object, depth: int = _DEPTH) -> bool:
    """Return whether *what* itself lies somewhere in the containers *where*."""
    if where is what:
        return True
    if depth == 0:
        return False
    inside: Any = ()
    if isinstance(where, dict) or type(where).__name__ == "mappingproxy":
        inside = tuple(where.values())
    elif isinstance(where, list | tuple | set | frozenset):
        inside = tuple(where)
    return any(_holds(each, what, depth - 1) for each in inside)
