"""One clear error where a process may not use as much memory as an engine needs."""

import errno
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from deedbook import Failed

from .engine import NUMPY, XLLAMACPP

MB: Final = 1_000_000
LEAST: Final[Mapping[str, int]] = MappingProxyType({NUMPY: 1000 * MB, XLLAMACPP: 1250 * MB})
"""The least address space in bytes (``ulimit -v``) that an engine gets, measured on two cores.

NumPy fails with one error a little above it. llama.cpp does not: a thread that it cannot start ends the process.
"""

_NO_THREAD: Final = "can't start new thread"
"""How Python says that there is no memory for a thread; it has no type of its own."""


def check_limit(engine: str) -> None:
    """Raise `Failed` if the limit of the address space (``ulimit -v``) is too low for *engine*.

    With far less, the import of NumPy ends or interrupts the process, because OpenBLAS cannot start its threads.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST[engine]:
        why = (
            f"the process may use {limit / MB:.0f} MB of address space, and {engine} needs {LEAST[engine] / MB:.0f} MB"
        )
        raise Failed("PROVIDER_ERROR", f"{why}; raise the limit (ulimit -v), or use another provider")


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Turn every way in which Python says that memory is missing into one `Failed`."""
    try:
        yield
    except MemoryError:
        raise _too_little(what) from None
    except (OSError, RuntimeError) as problem:
        if getattr(problem, "errno", None) != errno.ENOMEM and str(problem) != _NO_THREAD:
            raise
        raise _too_little(what) from None


def _too_little(what: str) -> Failed:
    why = f"there is not enough memory {what}: NumPy needs about 900 MB, xllamacpp about 600 MB"
    return Failed("PROVIDER_ERROR", f"{why}; free memory, or raise the limit of the process")
