"""Where the command ``deedbook`` begins: until the command line is imported, Ctrl-C ends it in one line.

Importing it takes longer than a finger: a traceback from the middle of somebody's library would tell nobody anything.
What comes before this module is Python's own start, which nobody here can catch.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Import the command line and run it; whenever Ctrl-C comes, exit with 130 and without a traceback."""
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the parent wants it ignored
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
    """End at once: nothing has begun, and an exception could come to rest in whatever is half imported."""
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
