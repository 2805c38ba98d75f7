"""How one of several sessions of a file is named: ``FILE#SESSION``."""

from pathlib import Path


def parted(source: str | Path) -> tuple[Path, str | None]:
    """Return the file that *source* names, and the session in it where it is ``FILE#SESSION``."""
    text = str(source)
    cuts = [at for at, sign in enumerate(text) if sign == "#"]
    if not cuts or Path(source).exists():
        return Path(source), None
    return next(((Path(text[:at]), text[at + 1 :]) for at in cuts if Path(text[:at]).is_file()), (Path(source), None))
