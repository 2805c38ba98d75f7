"""Workers that are made when the first program is started: most sessions start none."""

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .workers import Workers


class WorkersOnDemand:
    """Returns the workers of one kernel, made at the first call; see `Workers` for *private*."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._lock = Lock()
        self._workers: Workers | None = None

    def __call__(self) -> "Workers":
        """Return the workers, from any thread."""
        from .workers import Workers

        with self._lock:
            if self._workers is None:
                self._workers = Workers(private=self._private)
            return self._workers

    def close(self) -> None:
        """Close the workers, if there are any; after that every start of a program fails."""
        with self._lock:
            workers = self._workers
        if workers is not None:
            workers.close()
