"""The source folder of a pack: its metadata, its files, and the wheel that is built of them.

There are two forms. A folder with ``pack.yaml`` is the pack itself: policies, hooks and the rest stand beside that
file. A folder with ``pyproject.toml`` is a Python project that offers packs as entry points. Nothing of either form is
imported or run: the metadata must be static.
"""

import io
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import attrs
from flit_core.wheel import WheelBuilder

from deedbook.format.errors import BindingError, DomainError, SourceError, describe, fault, raise_all
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.groups import GROUPS, normalise_name
from deedbook.workspace.documents import parse_yaml
from deedbook.workspace.sources import CARD, MAX_BYTES, read

MANIFEST: Final = "pack.yaml"
"""The metadata of a pack whose folder is no Python project."""
PYPROJECT: Final = "pyproject.toml"
MAX_FILES: Final = 10_000
MAX_FILE: Final = 1024 * 1024
"""The largest file of a pack: some times the largest file that Deedbook reads."""

_GROUP: Final = GROUPS["pack"]
_FLIT: Final = "flit_core.buildapi"
_TIME: Final = (2016, 1, 1, 0, 0, 0)
"""The time of every file in a wheel, so that the same input gives the same bytes; the time that flit uses itself."""
_PACKAGE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


@attrs.frozen(kw_only=True)
class Project:
    """The source of one distribution: *packs* maps the name of each pack to the folder of its files below *root*."""

    root: Path
    distribution: str
    version: str
    packs: Mapping[str, str]
    manifest: str
    description: str = ""
    requires: tuple[str, ...] = ()
    license: str | None = None
    backend: str = _FLIT

    def folder(self, pack: str) -> Path:
        """Return the folder of a pack's files."""
        return self.root / self.packs[pack]


def read_project(root: Path) -> Project:
    """Return the project in the folder *root*; raises `SourceError` with every fault of its metadata."""
    if not root.is_dir():
        raise SourceError(fault("SOURCE_INVALID", "there is no such folder", place=str(root)))
    if (root / MANIFEST).is_file():
        return _read_manifest(root)
    if (root / PYPROJECT).is_file():
        return _read_pyproject(root)
    why = f"has neither {MANIFEST} nor {PYPROJECT}; write {MANIFEST} with the pack's name, version and description"
    raise SourceError(fault("SOURCE_INVALID", why, place=str(root)))


def list_faults(project: Project, pack: str) -> Iterator[DomainError]:
    """Yield a fault for each entry of a pack's folder that is not one of its own plain files."""
    folder = project.folder(pack)
    entries = list(_walk(folder))
    for path, mode in entries:
        if stat.S_ISLNK(mode):
            target = (folder / path).readlink()
            why = f'is a link to "{target}"; a pack contains only its own files: put a copy in its place'
            yield fault("PATH_REFUSED", why, place=str(folder / path))
        elif not stat.S_ISREG(mode):
            yield fault("PATH_REFUSED", "is a special file; a pack contains regular files", place=str(folder / path))
        elif (folder / path).stat().st_size > MAX_FILE:
            why = f"has more than {MAX_FILE} bytes; a pack is read as text files"
            yield fault("SOURCE_INVALID", why, place=str(folder / path))
    if len(entries) > MAX_FILES:
        yield fault("SOURCE_INVALID", f"has more than {MAX_FILES} files; split the pack", place=str(folder))


def build(project: Project) -> tuple[str, bytes]:
    """Return the name and the bytes of the project's wheel, the same bytes for the same files.

    Raises `SourceError` for links and special files among the packs' files, and for what the build backend refuses.
    """
    raise_all(SourceError, (each for pack in project.packs for each in list_faults(project, pack)))
    if project.manifest == MANIFEST:
        return _build_generated(project)
    if project.backend != _FLIT:
        why = (
            f"its build backend is {project.backend}, and `deedbook pack build` builds projects of flit_core and "
            f"folders with {MANIFEST}; build this one with: python -m build --wheel"
        )
        raise SourceError(fault("SOURCE_INVALID", why, place=str(project.root / project.manifest)))
    return _build_flit(project.root, str(project.root / project.manifest))


def build_for_reading(project: Project) -> tuple[str, bytes]:
    """Return a wheel of the project in order to read its packs: that of `build`, or one of the packs' files alone."""
    if project.manifest == MANIFEST or project.backend == _FLIT:
        return build(project)
    raise_all(SourceError, (each for pack in project.packs for each in list_faults(project, pack)))
    return _build_generated(project)


# --- metadata ---------------------------------------------------------------------------------------------------------


def _read_manifest(root: Path) -> Project:
    place = str(root / MANIFEST)
    with Folder.at(root) as folder:
        document = parse_yaml(read(folder, MANIFEST), place)
    found = Schemas.load(data_folder("schemas")).interpreted("pack_v1").violations(document.value)
    raise_all(
        SourceError,
        (
            fault(
                "SOURCE_INVALID",
                f"{each.path.removeprefix('$.')}: {each.message}" if each.pointer else each.message,
                place=document.place(each.pointer, key=each.message.startswith("unknown key")),
            )
            for each in found
        ),
    )
    said: Any = document.value
    return Project(
        root=root,
        distribution=said.get("distribution", f"deedbook-pack-{normalise_name(said['name'])}"),
        version=said["version"],
        packs={said["name"]: "."},
        manifest=MANIFEST,
        description=said["description"],
        requires=tuple(said.get("requires", ())),
        license=said.get("license"),
    )


def _read_pyproject(root: Path) -> Project:
    place = str(root / PYPROJECT)
    with Folder.at(root) as folder:
        raw = read(folder, PYPROJECT, MAX_BYTES)
    try:
        said = tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SourceError(fault("SOURCE_INVALID", f"cannot be read: {problem}", place=place)) from None
    project = _table(said, "project")
    points = _table(project, "entry-points", _GROUP)
    raise_all(SourceError, (fault("SOURCE_INVALID", why, place=place) for why in _wrong_metadata(project, points)))
    module = _table(said, "tool", "flit", "module")
    packs = {name: _find_folder(root, target, module) for name, target in points.items()}
    lost = [name for name, found in packs.items() if found is None]
    raise_all(
        SourceError,
        (fault("SOURCE_INVALID", f"pack {name}: there is no folder {points[name]!r}", place=place) for name in lost),
    )
    return Project(
        root=root,
        distribution=project["name"],
        version=project["version"],
        packs={name: found for name, found in packs.items() if found is not None},
        manifest=PYPROJECT,
        description=str(project.get("description", "")),
        backend=str(_table(said, "build-system").get("build-backend", "setuptools")),
    )


def _table(said: Any, *keys: str) -> dict[str, Any]:
    """Return the table at *keys*; an empty one if there is none, or something else."""
    for key in keys:
        said = said.get(key) if isinstance(said, dict) else None
    return said if isinstance(said, dict) else {}


def _wrong_metadata(project: Mapping[str, Any], points: Mapping[str, Any]) -> Iterator[str]:
    for key in ("name", "version"):
        if not isinstance(project.get(key), str):
            yield f"[project] {key} is missing; write it as text (a dynamic one would need the project's code)"
    if project.get("dynamic"):
        yield f"[project] dynamic names {', '.join(map(str, project['dynamic']))}; write the values themselves"
    if not points:
        yield f'[project.entry-points."{_GROUP}"] is missing; name a pack and its folder, such as house = "acme.data"'
    for name, target in points.items():
        if not isinstance(target, str) or not _PACKAGE.fullmatch(target):
            yield f"pack {name}: {target!r} names no folder inside the project; write it like a package: acme.data"


def _find_folder(root: Path, target: str, module: Mapping[str, Any]) -> str | None:
    """Return the folder of the pack with the entry point *target*, below the project; ``None`` if there is none."""
    within = target.replace(".", "/")
    for above in (module.get("directory", ""), "src", ""):
        path = PurePosixPath(str(above)) / within
        if (root / path).is_dir():
            return str(path)
    return None


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and the mode of everything below *folder* that could be a file of the pack; follows no link."""
    for above, folders, names in os.walk(folder):
        here = PurePosixPath(Path(above).relative_to(folder))
        for name in sorted((*folders, *names)):
            mode = Path(above, name).lstat().st_mode
            if not (stat.S_ISDIR(mode) or _is_ignored(name)):
                yield str(here / name), mode
        folders[:] = sorted(name for name in folders if not _is_ignored(name))


def _is_ignored(name: str) -> bool:
    """Return whether a file or folder is no part of a pack; the only hidden name that a workspace reads is a card's."""
    return (name.startswith(".") and name != CARD) or name == "__pycache__" or name.endswith(".pyc")


# --- wheels -----------------------------------------------------------------------------------------------------------


def _build_generated(project: Project) -> tuple[str, bytes]:
    """Build a wheel of the packs' files alone, from a project that is written for it."""
    module = normalise_name(project.distribution).replace("-", "_")
    single = project.manifest == MANIFEST
    within = {name: "" if single else name.replace("-", "_").replace(".", "_") for name in project.packs}
    points = {name: f"{module}.{part}" if part else module for name, part in within.items()}
    with tempfile.TemporaryDirectory(prefix="deedbook-pack-") as made, Folder.at(made) as target:
        target.replace(PYPROJECT, _generated_pyproject(project, module, points).encode())
        target.replace(f"{module}/__init__.py", b'"""Data of a pack for Deedbook, which is never imported."""\n')
        for name, part in within.items():
            with Folder.at(project.folder(name)) as source:
                for path, _ in _walk(project.folder(name)):
                    place = "/".join(filter(None, (module, part, path)))
                    target.replace(place, read(source, path, MAX_FILE), mode=0o644)
        return _build_flit(Path(made), str(project.root / project.manifest))


def _generated_pyproject(project: Project, module: str, points: Mapping[str, str]) -> str:
    lines = [
        "[project]",
        f"name = {_toml(project.distribution)}",
        f"version = {_toml(project.version)}",
        f"description = {_toml(project.description)}",
        'requires-python = ">=3.11"',
        f"dependencies = [{', '.join(map(_toml, project.requires))}]",
        *([f"license = {_toml(project.license)}"] if project.license else []),
        f'[project.entry-points."{_GROUP}"]',
        *(f"{_toml(name)} = {_toml(target)}" for name, target in points.items()),
        "[tool.flit.module]",
        f"name = {_toml(module)}",
        "[build-system]",
        'requires = ["flit_core>=3.11,<5"]',
        f'build-backend = "{_FLIT}"',
    ]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """Return *text* as a basic string of TOML."""
    escaped = "".join(f"\\U{ord(char):08X}" if char in '"\\' or not char.isprintable() else char for char in text)
    return f'"{escaped}"'


def _build_flit(root: Path, place: str) -> tuple[str, bytes]:
    written = io.BytesIO()
    try:
        builder = WheelBuilder.from_ini_path(root / PYPROJECT, written)
        builder.source_time_stamp = builder.source_time_stamp or _TIME
        builder.build()
    except Exception as problem:  # noqa: BLE001 - flit reads a file of others, and has no common class of errors
        raise SourceError(fault("SOURCE_INVALID", f"no wheel can be built: {describe(problem)}", place=place)) from None
    name = builder.wheel_filename
    if PurePosixPath(name).name != name:
        raise BindingError(fault("PLUGIN_BROKEN", f"{name!r} is no file name for a wheel", place=place))
    return name, written.getvalue()
