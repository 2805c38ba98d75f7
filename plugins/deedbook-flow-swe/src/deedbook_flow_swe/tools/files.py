"""Find and read the files below a root that fit globs, through a host."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook.contract import Ctx, Failed, Host
from deedbook.policy.limits import FileList
from deedbook_tool_standard.reach import check_time, decode_text, read_bytes, translate_os_errors

MOST_FILES: Final = 5_000
"""The most files that one call finds."""
MOST_FOLDERS: Final = 20_000
"""The most folders that one call looks into."""


@attrs.frozen
class TextFile:
    """A file that was read."""

    path: str
    text: str
    digest: str
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"path": self.path, "text": self.text, "digest": self.digest, "bytes": self.bytes}


def compile_globs(globs: Sequence[str]) -> FileList:
    """Return *globs* as a list that paths are matched against; raises `Failed` (``BAD_PATTERN``)."""
    try:
        return FileList.compile(globs)
    except ValueError as problem:
        raise Failed("BAD_PATTERN", str(problem)) from None


def is_glob(text: str) -> bool:
    """Return whether *text* may stand for several files."""
    return "*" in text or text.endswith("/")


def find_files(host: Host, globs: Sequence[str], excluded: FileList | None, ctx: Ctx) -> Iterator[str]:
    """Yield the files that fit one of *globs* and are not *excluded*, sorted within each folder."""
    fitting = compile_globs(globs)
    count, waiting = 0, sorted({_fixed_folder(each) for each in globs}, reverse=True)
    seen: set[str] = set()
    while waiting:
        check_time(ctx)
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        if len(seen) > MOST_FOLDERS:
            raise Failed("TOO_MANY", f"more than {MOST_FOLDERS} folders to look into; begin the globs with a folder")
        for entry in _scan(host, folder):
            if entry.folder:
                waiting += [entry.path] if fitting.reaches_below(entry.path) else []
            elif fitting.fits(entry.path) and not (excluded is not None and excluded.fits(entry.path)):
                count += 1
                if count > MOST_FILES:
                    raise Failed("TOO_MANY", f"more than {MOST_FILES} files fit; use narrower globs")
                yield entry.path


def read_text(host: Host, path: str, most: int) -> TextFile:
    """Return a whole UTF-8 file of at most *most* bytes; ``NO_SUCH_FILE``, ``TOO_LARGE``, ``NOT_TEXT``."""
    raw = read_bytes(host, path, most)
    return TextFile(path, decode_text(path, raw), sha256(raw).hexdigest(), len(raw))


def digest_of(host: Host, path: str) -> str:
    """Return the SHA-256 of a file in hex; empty if there is none."""
    found = sha256()
    try:
        file = host.open(path)
    except FileNotFoundError:
        return ""
    with translate_os_errors(path), file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def check_unique(paths: Iterable[str]) -> None:
    """Raise `Failed` (``ARGUMENT_REFUSED``) where a path is named twice."""
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise Failed("ARGUMENT_REFUSED", f"{path[:200]!r} is named twice; name each file once")
        seen.add(path)


def _fixed_folder(glob: str) -> str:
    """Return the folder that all files that fit *glob* are in."""
    return glob.partition("*")[0].rpartition("/")[0]


def _scan(host: Host, folder: str) -> Sequence[Any]:
    """List a folder; an absent one is empty."""
    try:
        with translate_os_errors(folder):
            return host.scan(folder)
    except Failed as problem:
        if problem.code == "NO_SUCH_FILE":
            return ()
        raise
