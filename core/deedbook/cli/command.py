"""The entry point of the command ``deedbook``: Ctrl-C during the import of the command line prints one line.

The import takes long enough to be interrupted, and a traceback from the middle of a library would not help. This module
itself imports only what is part of the interpreter: `signal` and `typing` would be interrupted as well. An interrupt
during Python's own start cannot be caught here.
"""

import _signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Import the command line and run it; on Ctrl-C, exit with 130 and without a traceback."""
    early = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # otherwise the parent ignores it
    if early:
        _signal.signal(_signal.SIGINT, _leave)
    from .program import main as run

    try:
        if early:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave()


def _leave(_number: int = 0, _frame: object = None) -> "NoReturn":
    """Exit at once: no work has begun, and an exception could be swallowed by a half-imported module."""
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
