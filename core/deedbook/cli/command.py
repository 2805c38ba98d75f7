"""The entry point of the command ``deedbook``: Ctrl-C during the import of the command line prints one line.

The import takes long enough to be interrupted, and a traceback from the middle of a library would not help. An
interrupt during Python's own start cannot be caught here.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Import the command line and run it; on Ctrl-C, exit with 130 and without a traceback."""
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # otherwise the parent ignores it
    if early:
        signal.signal(signal.SIGINT, _leave)
    from .program import main as run

    try:
        if early:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave()


def _leave(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """Exit at once: no work has begun, and an exception could be swallowed by a half-imported module."""
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
