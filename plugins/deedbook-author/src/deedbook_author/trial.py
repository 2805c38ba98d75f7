"""Import plugins in a separate process first, to find those that end it, hang or crash."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from deedbook.contract import Failed
from deedbook.format.errors import BindingError
from deedbook.plugins.importing import VARIABLE, import_seconds
from deedbook.plugins.plugins import Offer, discover, load
from deedbook.programs.workers import Workers

_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from deedbook_author.trial import child; child()"
)
_BEGUN: Final = "trying"
_DONE: Final = "tried"
_PATIENCE: Final = 10.0
"""Seconds for the process itself, in addition to the limits of the imports."""


def find_fatal(offers: Sequence[Offer]) -> Iterator[tuple[Offer, str]]:
    """Yield those of *offers* whose import ends or blocks its process, each with a description.

    A plugin that only raises, or can be interrupted, is not yielded: loading it reports the error.
    """
    left = list(offers)
    with Workers() as workers:
        while left:
            ended = _attempt(workers, left)
            if ended is None:
                return
            count, what = ended
            if count >= len(left):
                return
            yield left[count], what
            left = left[count + 1 :]


def _attempt(workers: Workers, offers: Sequence[Offer]) -> tuple[int, str] | None:
    """Import *offers* in one process; return how many imports succeeded, and what the next one did."""
    try:
        ran = _run(workers, offers)
    except Failed as problem:
        if problem.code != "TOOL_TIMEOUT" or len(offers) == 1:
            return 0, "hangs while it is imported" if problem.code == "TOOL_TIMEOUT" else str(problem)
        return next(_one_by_one(workers, offers), None)
    done = ran[1].splitlines().count(_DONE.encode())
    if done == len(offers):
        return None
    return done, f"ends the process with status {ran[0]} while it is imported"


def _one_by_one(workers: Workers, offers: Iterable[Offer]) -> Iterator[tuple[int, str]]:
    for count, offer in enumerate(offers):
        ended = _attempt(workers, [offer])
        if ended is not None:
            yield count, ended[1]


def _run(workers: Workers, offers: Sequence[Offer]) -> tuple[int, bytes]:
    names = "".join(f"{offer.kind} {offer.name}\n" for offer in offers)
    env = {name: os.environ[name] for name in ("PATH", "HOME", VARIABLE) if name in os.environ}
    ran = workers.run(
        [sys.executable, "-c", _CODE, json.dumps(sys.path)],
        stdin=names.encode(),
        env=env,
        seconds=_PATIENCE + import_seconds() * min(len(offers), 2),
    )
    return ran.status, ran.out


def child() -> None:
    """Import the plugins listed on standard input; print when each begins and is done. Ends the process."""
    leave, write = os._exit, os.write  # a plugin may replace them
    catalogue = discover()
    for line in sys.stdin.read().splitlines():
        kind, _, name = line.partition(" ")
        write(1, f"{_BEGUN} {line}\n".encode())
        with suppress(BindingError):  # loading it later reports the same error
            load(catalogue.find(kind, name))
        write(1, f"\n{_DONE}\n".encode())
    leave(0)
