"""Real packs: a project on disk, built by flit into a wheel, and installed for one workspace only."""

import os
import shutil
import zipfile
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

from commandline import Place
from flit_core.buildapi import build_wheel

BOOBY_TRAP = 'raise SystemExit("a pack was imported")\n'


def project(folder: Path, name: str, files: dict[str, str], *, version: str = "1.0", pack: str = "") -> Path:
    """Write the project of a pack: distribution *name*, which offers *pack* (default: its name)."""
    module = name.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(
        f'[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\ndescription = "A pack."\n'
        f'[project.entry-points."deedbook.packs"]\n{pack or name} = "{module}.data"\n'
    )
    for path, text in {"__init__.py": BOOBY_TRAP, **{f"data/{path}": text for path, text in files.items()}}.items():
        place = folder / module / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text), encoding="utf-8")
    return folder


def wheel(folder: Path) -> Path:
    """Build the wheel of a project, in its own folder."""
    with chdir(folder):
        return folder / build_wheel(".")


def unpack(built: Path, site: Path, *, upgrade: bool = False) -> None:
    """Install a wheel in *site*, as pip would: unpacked, with its record; with *upgrade* instead of other versions."""
    site.mkdir(exist_ok=True)
    for other in site.glob(f"{built.name.partition('-')[0]}-*.dist-info") if upgrade else ():
        shutil.rmtree(other)
    with zipfile.ZipFile(built) as packed:
        packed.extractall(site)


def install(place: Place, built: Path) -> Path:
    """Install a wheel for *place* only; return where."""
    site = place.path.parent / "site-packages"
    unpack(built, site)
    before = place.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    if str(site) not in (before or "").split(os.pathsep):
        place.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), before]))
    return site


def installed(place: Place, name: str, files: dict[str, str], *, version: str = "1.0", pack: str = "") -> Path:
    """Write, build and install a pack; return where it was installed."""
    return install(
        place, wheel(project(place.path.parent / "projects" / name, name, files, version=version, pack=pack))
    )
