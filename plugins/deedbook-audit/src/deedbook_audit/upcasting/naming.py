"""Names of single sessions in a file: ``FILE#SESSION``."""

import os
from pathlib import Path


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """Return the file that *source* names, and the session in it if it is ``FILE#SESSION``."""
    text = str(source)
    cuts = [at for at, sign in enumerate(text) if sign == "#"]
    if not cuts or os.path.exists(source):  # noqa: PTH110 - a session's name may be too long for a file's, which raises
        return Path(source), None
    found = ((Path(text[:at]), text[at + 1 :]) for at in cuts if os.path.isfile(text[:at]))  # noqa: PTH113 - the same
    return next(found, (Path(source), None))
