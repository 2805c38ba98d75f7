"""What a piece of work hashes: the bytes of every SHA-256 that Deedbook makes meanwhile."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.rounds import Work

_SHA256: Final = hashlib.sha256


def hashed_by(work: Work) -> list[bytes]:
    """Run *work* once and return what it hashed on this thread, in order.

    Raises `AssertionError` if Python's profiler counts other calls of `hashlib.sha256` than those that were recorded.
    """
    recorded: list[bytes] = []
    counted = 0

    def record(data: bytes = b"", **options: Any) -> Any:
        recorded.append(bytes(data))
        return _SHA256(data, **options)

    def count(_frame: Any, event: str, function: Any) -> None:
        nonlocal counted
        counted += event == "c_call" and function is _SHA256

    with _replaced(record):
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(before)
    assert counted == len(recorded), f"{counted} hashes were made, {len(recorded)} were recorded"
    return recorded


@contextmanager
def _replaced(record: Callable[..., Any]) -> Iterator[None]:
    """Let `hashlib` and every module of Deedbook that holds `hashlib.sha256` have *record* in its place."""
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] == "deedbook"]
    found = [(each, name) for each in (hashlib, *modules) for name, value in vars(each).items() if value is _SHA256]
    for module, name in found:
        setattr(module, name, record)
    try:
        yield
    finally:
        for module, name in found:
            setattr(module, name, _SHA256)
