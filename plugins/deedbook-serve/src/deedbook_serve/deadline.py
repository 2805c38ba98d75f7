"""The end of a process that does not stop in time."""

import faulthandler
import os
import threading
from contextlib import suppress
from typing import Self


class Deadline:
    """Ends the process *seconds* after `begin` and prints the stack of each thread.

    Use it as a context, which cancels the deadline at its end. *what* names the task that did not end.
    """

    def __init__(self, seconds: float, what: str) -> None:
        self._watch = threading.Timer(seconds, self._cut_off)
        self._watch.daemon = True
        self._exit = os._exit  # a plugin may replace it
        self._said = (
            f"{what} did not end within {seconds:g} s after the request to stop; it is ended now. Its threads:\n"
        )

    def begin(self) -> None:
        """Start the timer."""
        self._watch.start()

    def _cut_off(self) -> None:
        with suppress(OSError):
            os.write(2, self._said.encode())
            faulthandler.dump_traceback(2)
        self._exit(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
