"""Import the modules of pinned distributions from exactly the files whose digests are in the charter.

Python's own import looks for other files first: an extension module or a package beside a recorded module, and
bytecode, which it may run without a look at the source. Here only recorded files count. Each is read once, compared
with its digest, and then executed. Bytecode is kept in a folder of the user's own, under the digest of its source; that
of ``__pycache__`` is not used. What is not pinned: distributions that are installed in place, and libraries.
"""

import marshal
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import machinery
from importlib.util import spec_from_file_location
from pathlib import Path
from secrets import token_hex
from types import CodeType, ModuleType
from typing import Final

import attrs

from deedbook.format.paths import user_folder

_FOLDER: Final = "bytecode"
_SOURCES: Final = tuple(machinery.SOURCE_SUFFIXES)
_EXTENSIONS: Final = tuple(machinery.EXTENSION_SUFFIXES)
_OTHERS_WRITE: Final = 0o022
_HASH: Final = 32
_KERNEL: Final = __name__.partition(".")[0]
"""The kernel is pinned by its version only; no distribution takes the place of its package."""
_MAKING: Final = f"{sys.implementation.cache_tag}-{sys.flags.optimize}-{sys.version}"
"""What bytecode depends on besides its source."""


class UnpinnedCodeError(ImportError):
    """A file is not what the charter pins; the message says which, and what to do."""


@attrs.frozen(eq=False)
class PinnedFiles:
    """The recorded *files* of an installed *distribution* below *root*: the digest of each, by its path."""

    distribution: str
    root: Path
    files: Mapping[str, str]

    def modules(self) -> set[str]:
        """Return the names of its modules and packages on the highest level, with or without a file of their own."""
        code = (path for path in self.files if path.endswith((*_SOURCES, *_EXTENSIONS)))
        return {path.partition("/")[0].partition(".")[0] for path in code}

    def find(self, name: str) -> str | None:
        """Return the path of the recorded file of the module *name*, in the order in which Python looks."""
        base = name.replace(".", "/")
        for stem in (f"{base}/__init__", base):
            for suffix in (*_EXTENSIONS, *_SOURCES):
                if f"{stem}{suffix}" in self.files:
                    return f"{stem}{suffix}"
        return None

    def is_namespace(self, name: str) -> bool:
        """Return whether *name* is a folder without code of its own, which other distributions may extend."""
        return self.find(name) is None and any(path.startswith(f"{name.replace('.', '/')}/") for path in self.files)

    def check(self, path: str, data: bytes) -> None:
        """Raise `UnpinnedCodeError` unless *data* is the recorded file at *path*."""
        if sha256(data).hexdigest() != self.files[path]:
            why = f"{self.root / path} changed since {self.distribution} was compared with the charter"
            raise UnpinnedCodeError(f"{why}; install {self.distribution} again, and start again")


class PinnedSource(machinery.SourceFileLoader):
    """Loads a recorded source file."""

    def __init__(self, fullname: str, pinned: PinnedFiles, path: str) -> None:
        super().__init__(fullname, str(pinned.root / path))
        self.pinned, self.recorded = pinned, path

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - as in the base class
        """Return the code of the recorded source; raises `UnpinnedCodeError` if the file is another."""
        source = self.get_data(self.path)
        self.pinned.check(self.recorded, source)
        return compile_source(source, self.path)


class PinnedExtension(machinery.ExtensionFileLoader):
    """Loads a recorded extension module: it is compared with its digest just before."""

    def __init__(self, fullname: str, pinned: PinnedFiles, path: str) -> None:
        super().__init__(fullname, str(pinned.root / path))
        self.pinned, self.recorded = pinned, path

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        """Create the module; raises `UnpinnedCodeError` if the file is another."""
        self.pinned.check(self.recorded, self.get_data(self.path))
        return super().create_module(spec)


class PinnedFinder:
    """A finder of `sys.meta_path` for the modules of pinned distributions; one for each process, as the modules are.

    *compared* are the modules that Python's own import loaded and that are the recorded ones: the id of each, and the
    digest of its file.
    """

    def __init__(self) -> None:
        self._owners: dict[str, tuple[PinnedFiles, ...]] = {}
        self.compared: dict[str, tuple[int, str]] = {}

    def add(self, pinned: PinnedFiles) -> None:
        """Load the modules of *pinned* from its recorded files, in place of an earlier version of the distribution."""
        for name in pinned.modules() - {_KERNEL}:
            others = (each for each in self._owners.get(name, ()) if each.distribution != pinned.distribution)
            self._owners[name] = (*others, pinned)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> machinery.ModuleSpec | None:
        """Return the spec of a recorded module; ``None`` for modules of others.

        Raises `UnpinnedCodeError` for a module of a pinned package that is not recorded.
        """
        owners = self._owners.get(fullname.partition(".")[0])
        if owners is None:
            return None
        for owner in owners:
            if (found := owner.find(fullname)) is not None:
                return _build_spec(fullname, owner, found)
        if all(owner.is_namespace(each) for owner in owners for each in _packages(fullname)):
            return None
        names = ", ".join(each.distribution for each in owners)
        raise _missing_error(fullname, names)


def _missing_error(fullname: str, names: str) -> ModuleNotFoundError:
    why = f"no file of {fullname} is recorded as installed by {names}, so the charter does not pin it"
    return ModuleNotFoundError(why, name=fullname)


def _packages(fullname: str) -> Iterator[str]:
    """Yield the names of the packages around a module."""
    while fullname := fullname.rpartition(".")[0]:
        yield fullname


def _build_spec(fullname: str, owner: PinnedFiles, path: str) -> machinery.ModuleSpec | None:
    make = PinnedExtension if path.endswith(_EXTENSIONS) else PinnedSource
    place = owner.root / path
    inner = [str(place.parent)] if place.name.startswith("__init__.") else None
    loader = make(fullname, owner, path)
    return spec_from_file_location(fullname, str(place), loader=loader, submodule_search_locations=inner)


def _get_finder() -> PinnedFinder:
    """Return the finder of this process, which is made at its first use."""
    found = next((each for each in sys.meta_path if isinstance(each, PinnedFinder)), None)
    if found is None:
        sys.meta_path.insert(0, found := PinnedFinder())
    return found


def pin(pinned: PinnedFiles) -> Iterator[str]:
    """Load modules of *pinned* from its recorded files from now on; yield what is wrong with those loaded before."""
    finder = _get_finder()
    finder.add(pinned)
    tops = pinned.modules()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in tops and isinstance(module, ModuleType):
            yield from _check_loaded(name, module, pinned, finder.compared)


def _check_loaded(
    name: str, module: ModuleType, pinned: PinnedFiles, compared: dict[str, tuple[int, str]]
) -> Iterator[str]:
    """Yield why a module that is loaded already is not what *pinned* records, if it is not."""
    spec, path = module.__spec__, pinned.find(name)
    if spec is None or spec.origin is None:  # a namespace package, or made by code
        return
    place = pinned.root / path if path else None
    if place is None or Path(spec.origin) != place:
        if Path(spec.origin).is_relative_to(pinned.root) and place is not None:
            yield f"{name} was loaded from {spec.origin}, and {path} is what is recorded; remove the former"
        return
    digest = pinned.files[path or ""]
    if isinstance(spec.loader, PinnedSource | PinnedExtension):
        if spec.loader.pinned.files[spec.loader.recorded] != digest:
            yield f"{name} changed since this process loaded it; start again"
        return
    if compared.get(name) == (id(module), digest):
        return
    if why := _find_fault(spec, place, digest):
        yield why
    else:
        compared[name] = id(module), digest


def _find_fault(spec: machinery.ModuleSpec, place: Path, digest: str) -> str:
    """Return why a module that Python's own import loaded may not be its source: the bytecode differs."""
    try:
        source = place.read_bytes()
        if sha256(source).hexdigest() != digest:
            return f"{place} changed since it was installed"
        if not place.name.endswith(_SOURCES) or not spec.cached or not Path(spec.cached).exists():
            return ""
        code = marshal.loads(Path(spec.cached).read_bytes()[16:])  # noqa: S302 - the process has run it already
        same = code == compile_source(source, str(place))
    except (OSError, ValueError, EOFError, TypeError, SyntaxError) as problem:
        return f"{place}: its bytecode cannot be compared: {problem}"
    return "" if same else f"{spec.cached} is not the bytecode of {place}; remove it, and start again"


# --- bytecode ---------------------------------------------------------------------------------------------------------


def compile_source(source: bytes, path: str) -> CodeType:
    """Return the code of a *source*: compiled, or as this user's process compiled exactly these bytes before."""
    name = sha256(b"\0".join((_MAKING.encode(), path.encode("utf-8", "surrogateescape"), source))).hexdigest()
    folder = _find_folder(user_folder(os.environ))
    if folder is not None and (known := _read(f"{folder}/{name}")) is not None:
        return known
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    if folder is not None and not sys.dont_write_bytecode:
        with suppress(OSError):
            _write(folder, name, marshal.dumps(code))
    return code


@cache
def _find_folder(above: Path) -> str | None:
    """Return the folder of bytecode, made if it is missing; ``None`` if others may write there, or it is not made."""
    place = above / _FOLDER
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (above, place):
            found = os.lstat(each)
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE or each.is_symlink():
                return None
    except OSError:
        return None
    return str(place)


def _read(place: str) -> CodeType | None:
    """Return the kept code; ``None`` if there is none, or the file is damaged or another user's."""
    try:
        with Path(place).open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            raw = file.read()
        if sha256(raw[_HASH:]).digest() != raw[:_HASH]:
            return None
        code = marshal.loads(raw[_HASH:])  # noqa: S302 - only this user writes there
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


def _write(folder: str, name: str, code: bytes) -> None:
    temporary = f"{folder}/.{token_hex(8)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(sha256(code).digest() + code)
        Path(temporary).replace(f"{folder}/{name}")
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
