"""How every file tool reaches files: through its host, with failures that name the path."""

from collections.abc import Iterator
from contextlib import contextmanager

from deedbook.contract import Ctx, Failed, Host, Object

MAX_TEXT = 2 * 1024 * 1024
"""The longest text, in bytes, that is read into or written from a record."""


class FileTool:
    """A tool that has nothing but a host."""

    def __init__(self, settings: Object, host: Host) -> None:
        self.settings = settings
        self.host = host


@contextmanager
def translate_os_errors(path: str) -> Iterator[None]:
    """Turn what the system says about *path* into the tool's own failure."""
    try:
        yield
    except FileNotFoundError:
        raise Failed("NO_SUCH_FILE", f"{path or 'the root'}: there is no such file or folder") from None
    except PermissionError:
        raise Failed("NOT_READABLE", f"{path or 'the root'}: the system denies access") from None


def read_bytes(host: Host, path: str, limit: int = MAX_TEXT) -> bytes:
    """Return a whole file of at most *limit* bytes; raise `Failed` with ``TOO_LARGE``."""
    with translate_os_errors(path), host.open(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise Failed("TOO_LARGE", f"{path}: more than {limit} bytes")
    return raw


def decode_text(path: str, raw: bytes) -> str:
    """Return the text of UTF-8 bytes, exactly; raise `Failed` with ``NOT_TEXT``."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise Failed("NOT_TEXT", f"{path}: byte {problem.start} is not UTF-8 text") from None


def check_time(ctx: Ctx) -> None:
    """Stop in good order when the call is late or cancelled; raise `Failed` with ``TOOL_TIMEOUT``."""
    if ctx.remaining() <= 0:
        raise Failed("TOOL_TIMEOUT", "the call was cancelled or its time is up; nothing was changed")
