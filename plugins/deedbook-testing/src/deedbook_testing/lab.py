"""A workspace to try things in: real files, a real kernel, plugins offered as if pip had installed them."""

import itertools
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import importlib_metadata

from deedbook.contracts import Event
from deedbook.errors import Err
from deedbook.kernel import LOCAL, Kernel, open_kernel
from deedbook.reader import read
from deedbook.plugins import GROUPS, Catalogue, discover
from deedbook.session import Session

_numbers: Final = itertools.count()


class OfferedDistribution(importlib_metadata.Distribution):
    """A distribution that exists in memory only: a name, and entry points."""

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


class Lab:
    """A workspace in *path*, empty but for ``.system/deedbook.yaml``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._points: list[tuple[str, str, str, str]] = []
        self._modules: list[str] = []
        self._kernels: list[Kernel] = []
        self._session: str | None = None
        self.write("deedbook.yaml", "schema_version: v1\n")

    def write(self, path: str, text: str, *, system: bool = True) -> Path:
        """Write a file of the workspace, below ``.system`` unless *system* is false; return its place."""
        place = (self.path / ".system" if system else self.path) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def offer(self, kind: str, name: str, plugin: object, *, distribution: str = "offered") -> None:
        """Offer *plugin* (a class, as an entry point would name it) under *name*, as *distribution* would."""
        module = ModuleType(f"deedbook_offered_{next(_numbers)}")
        module.plugin = plugin  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        self._modules.append(module.__name__)
        self._points.append((distribution, GROUPS[kind], name, f"{module.__name__}:plugin"))

    def catalogue(self) -> Catalogue:
        """Return what is installed, and what is offered here."""
        names = dict.fromkeys(distribution for distribution, *_ in self._points)
        offered = [
            OfferedDistribution(name, [point for distribution, *point in self._points if distribution == name])  # type: ignore[misc]
            for name in names
        ]
        return discover([*offered, *importlib_metadata.distributions()])

    def kernel(self, **options: Any) -> Kernel:
        """Open the workspace; closed with the lab."""
        kernel = open_kernel(self.path, catalogue=self.catalogue(), **options)
        self._kernels.append(kernel)
        return kernel

    def session(self, purpose: str = "open", **options: Any) -> Session:
        """Begin a session in a kernel of its own; fails the test if it is refused."""
        principal = options.pop("principal", LOCAL)
        begun = self.kernel(**options).session(purpose, principal=principal)
        assert not isinstance(begun, Err), begun.error
        self._session = begun.value.id
        return begun.value

    def ledger(self, session: Session | str | None = None) -> Path:
        """Return where the ledger of *session* is; without one, of the last session begun here."""
        name = session.id if isinstance(session, Session) else session or self._session or ""
        return self.path / ".deedbook" / "sessions" / name / ".events.jsonl"

    def events(self, session: Session | str | None = None) -> list[Event]:
        """Return the events of a session."""
        return list(read(self.ledger(session)))

    def types(self, session: Session | str | None = None) -> list[str]:
        """Return the types of a session's events, in order."""
        return [event.type for event in self.events(session)]

    def payload(self, event_type: str, session: Session | str | None = None) -> Mapping[str, Any]:
        """Return the payload of the one event of that type."""
        found = [event.payload for event in self.events(session) if event.type == event_type]
        assert len(found) == 1, f"{len(found)} events {event_type} in {self.types(session)}"
        return found[0]

    def close(self) -> None:
        """Close what was opened, and take back what was offered."""
        for kernel in self._kernels:
            kernel.close()
        for name in self._modules:
            sys.modules.pop(name, None)
