"""Packs that are given by name, by folder or by wheel, all read in the same way: as an installed distribution.

A wheel is unpacked into a temporary folder after its record was checked. A source folder is built into a wheel first,
so that what is linted, tested and compared are the files that pip would install.
"""

import base64
import csv
import hashlib
import io
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Final

import attrs
import importlib_metadata

from deedbook.format.errors import BindingError, DeedbookError, DomainError, SourceError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.groups import AGENT_PLUGIN
from deedbook.plugins.packs import PackFolder
from deedbook.plugins.plugins import Catalogue, Offer, discover
from deedbook.workspace.trees import SourceTree

from .projects import Project, build_for_reading, read_project

WHEEL: Final = ".whl"
_MAX_WHEEL: Final = 64 * 1024 * 1024
_MAX_FILES: Final = 20_000
_UNHASHED: Final = ("RECORD", "RECORD.jws", "RECORD.p7s")


@attrs.frozen(eq=False)
class Pack:
    """One pack: its *offer*, and the *source* folder of its files if it was given as a project."""

    offer: Offer
    source: Path | None = None

    @property
    def name(self) -> str:
        """The name under ``packs:``."""
        return self.offer.name

    @property
    def label(self) -> str:
        """The beginning of its places in messages of the kernel."""
        return f"pack {self.name} ({self.offer.distribution} {self.offer.version})"

    @property
    def title(self) -> str:
        """The pack and its distribution, for people."""
        return f"{self.name} ({self.offer.distribution} {self.offer.version})"

    def folder(self) -> PackFolder:
        """Return its files; raises `BindingError`."""
        return self.offer.pack()

    def tree(self) -> SourceTree:
        """Return its files as a tree of sources; raises `BindingError`."""
        return SourceTree(self.folder(), "", self.label)

    def relocate(self, place: str | None) -> str | None:
        """Return *place* as a path of the source folder, if it is in this pack."""
        if place is None or not place.startswith(f"{self.label}: "):
            return place
        within = place.removeprefix(f"{self.label}: ")
        return str(self.source / within) if self.source else place

    def shorten(self, text: str) -> str:
        """Return *text* with paths of the source folder in the place of those of this pack."""
        return text.replace(f"{self.label}: ", f"{self.source}/") if self.source else text

    def use_in(self, catalogue: Catalogue) -> Catalogue:
        """Return *catalogue* with this pack in the place of the installed one."""
        key = ("pack", self.name)
        clashes = {each: rivals for each, rivals in catalogue.clashes.items() if each != key}
        return attrs.evolve(catalogue, offers={**catalogue.offers, key: self.offer}, clashes=clashes)


def is_path(named: str) -> bool:
    """Return whether *named* is a path; a name has no slash, and is neither a dot nor the name of a wheel."""
    return "/" in named or named in (".", "..") or named.endswith(WHEEL)


def open_packs(named: str, held: ExitStack, catalogue: Catalogue | None = None) -> list[Pack]:
    """Return the packs of a folder or a wheel, or the installed pack of that name.

    Temporary files stay until *held* is closed. Raises `DeedbookError` if there is none.
    """
    if not is_path(named):
        return [_find_installed(named, catalogue or discover())]
    path = Path(named)
    if path.name.endswith(WHEEL):
        return open_wheel(path.name, _read_wheel(path), held)
    project = read_project(path)
    return open_wheel(*build_for_reading(project), held, project)


def choose_pack(packs: list[Pack], wanted: str | None, named: str) -> Pack:
    """Return the pack called *wanted*, or the only one; raises `SourceError`."""
    found = [pack for pack in packs if wanted in (None, pack.name)]
    if len(found) == 1:
        return found[0]
    has = ", ".join(pack.name for pack in packs)
    why = f"has no pack {wanted!r}; it has {has}" if wanted else f"has several packs; name one with --pack: {has}"
    raise SourceError(fault("USAGE", why, place=named))


def _find_installed(name: str, catalogue: Catalogue) -> Pack:
    if name.startswith(AGENT_PLUGIN):
        why = "is an Agent Plugin, of which only skills are read; `deedbook skills lint` checks these"
        raise SourceError(fault("USAGE", why, place=name))
    try:
        return Pack(catalogue.find("pack", name))
    except BindingError as problem:
        hint = f" To use the folder, write ./{name}" if Path(name).is_dir() else ""
        raise BindingError(*(attrs.evolve(each, message=f"{each.message}{hint}") for each in problem.errors)) from None


# --- wheels -----------------------------------------------------------------------------------------------------------


def _read_wheel(path: Path) -> bytes:
    try:
        with Folder.at(path.parent) as folder:
            return folder.read(path.name, limit=_MAX_WHEEL)
    except FileNotFoundError:
        raise SourceError(fault("SOURCE_INVALID", "there is no such file", place=str(path))) from None
    except OSError as problem:
        raise SourceError(fault("SOURCE_INVALID", f"cannot be read: {problem.strerror}", place=str(path))) from None


def open_wheel(name: str, data: bytes, held: ExitStack, project: Project | None = None) -> list[Pack]:
    """Return the packs of a wheel; *project* is its source, if that is known. Raises `BindingError`."""
    files = read_wheel(name, data)
    site = held.enter_context(tempfile.TemporaryDirectory(prefix="deedbook-pack-"))
    with Folder.at(site) as folder:
        for path, content in files.items():
            folder.replace(path, content, synced=False)
    info = next(path.split("/")[0] for path in files if path.endswith(".dist-info/RECORD"))
    found = discover([importlib_metadata.Distribution.at(Path(site) / info)])
    if found.unreadable:
        raise _broken_error(f"its metadata cannot be read: {found.unreadable[0]}", name)
    offers = [offer for (kind, _), offer in sorted(found.offers.items()) if kind == "pack"]
    packs = [Pack(offer, project.folder(offer.name) if project else None) for offer in offers]
    if not packs:
        raise _broken_error('offers no pack; its metadata needs an entry point of the group "deedbook.packs"', name)
    return packs


def read_wheel(name: str, data: bytes) -> dict[str, bytes]:
    """Return the files of a wheel by path. Raises `BindingError` where its files are not those of its record."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            raise_all(BindingError, _entry_faults(packed, name))
            files = {entry.filename: packed.read(entry) for entry in packed.infolist() if not entry.is_dir()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as problem:
        if isinstance(problem, DeedbookError):
            raise
        raise _broken_error(f"is no wheel: {problem}", name) from None
    raise_all(BindingError, _record_faults(files, name))
    return files


def _entry_faults(packed: zipfile.ZipFile, wheel: str) -> Iterator[DomainError]:
    entries = packed.infolist()
    if len(entries) > _MAX_FILES or sum(entry.file_size for entry in entries) > _MAX_WHEEL:
        yield _broken_fault(f"has more than {_MAX_FILES} files or {_MAX_WHEEL} bytes", wheel)
        return
    seen: set[str] = set()
    for entry in entries:
        path = entry.filename.removesuffix("/")
        if leads_outside(path):
            yield _broken_fault(f"{path!r} leads outside its folder", wheel)
        if stat.S_ISLNK(entry.external_attr >> 16):
            yield _broken_fault(f"{path!r} is a link; a wheel contains files", wheel)
        if path.casefold() in seen:
            yield _broken_fault(f"{path!r} is in it twice", wheel)
        seen.add(path.casefold())


def leads_outside(path: str) -> bool:
    """Return whether a path in a wheel or a record is absolute, has a ``..``, or is written for another system."""
    plain = PurePosixPath(path)
    return plain.is_absolute() or ".." in plain.parts or "\\" in path or ":" in path or not path.isprintable()


def _record_faults(files: dict[str, bytes], wheel: str) -> Iterator[DomainError]:
    records = [path for path in files if path.endswith(".dist-info/RECORD") and path.count("/") == 1]
    if len(records) != 1:
        yield _broken_fault(f"has {len(records)} records of its files; a wheel has one, NAME.dist-info/RECORD", wheel)
        return
    try:
        lines = files[records[0]].decode().splitlines()
        rows = {row[0]: row[1] if len(row) > 1 else "" for row in csv.reader(lines) if row}
    except (UnicodeDecodeError, csv.Error) as problem:
        yield _broken_fault(f"its record cannot be read: {problem}", wheel)
        return
    for path in sorted(rows):
        if leads_outside(path):
            yield _broken_fault(f"its record names {path!r}, which leads outside its folder", wheel)
        elif path not in files:
            yield _broken_fault(f"its record names {path!r}, which is not in it", wheel)
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if path not in rows:
            yield _broken_fault(f"{path!r} is not in its record", wheel)
        elif PurePosixPath(path).name not in _UNHASHED and rows[path] != f"sha256={digest}":
            yield _broken_fault(f"{path!r} is not the file of its record; build the wheel again", wheel)


def _broken_fault(why: str, wheel: str) -> DomainError:
    return fault("PLUGIN_BROKEN", why, place=wheel)


def _broken_error(why: str, wheel: str) -> BindingError:
    return BindingError(_broken_fault(why, wheel))
