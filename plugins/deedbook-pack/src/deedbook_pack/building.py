"""The wheel of a pack as a file: built, read back and written."""

from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import attrs

from deedbook.format.errors import BindingError, SourceError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.plugins import discover

from .lint import lint
from .packages import open_wheel
from .projects import build, read_project


@attrs.frozen
class Wheel:
    """A written wheel: its *path*, the SHA-256 of its bytes, and the *packs* of its distribution."""

    path: Path
    digest: str
    distribution: str
    version: str
    packs: tuple[str, ...]


def build_wheel(folder: Path, out: Path) -> Wheel:
    """Build the wheel of the project in *folder* and write it to the folder *out*.

    Raises `DeedbookError` with every error that lint reports, and if *out* is inside the pack.
    """
    project = read_project(folder)
    inside = [pack for pack in project.packs if out.resolve().is_relative_to(project.folder(pack).resolve())]
    if inside:
        why = f"is inside pack {inside[0]}, whose files it would join; name a folder outside of it"
        raise SourceError(fault("USAGE", why, place=str(out)))
    name, data = build(project)
    with ExitStack() as held:
        packs = open_wheel(name, data, held, project)
        catalogue = discover()
        errors = [each for pack in packs for each in lint(pack, catalogue) if each.level == "error"]
        raise_all(
            BindingError, (fault(each.code or "SOURCE_INVALID", each.message, place=each.place) for each in errors)
        )
    try:
        with Folder.at(out, create=True) as target:
            target.replace(name, data, mode=0o644)
    except OSError as problem:
        raise SourceError(fault("SOURCE_INVALID", f"cannot be written: {problem.strerror}", place=str(out))) from None
    return Wheel(
        path=out / name,
        digest=sha256(data).hexdigest(),
        distribution=project.distribution,
        version=project.version,
        packs=tuple(sorted(project.packs)),
    )
