"""The process of a hook that is asked in one of its own: it loads that one plugin, and answers a line with a line.

It is told what to load by its first line, since secrets are among it, and checks that the code is what the charter
says. What the hook prints goes to standard error; a hook that writes to the kernel's pipe itself is killed for it.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import orjson

from deedbook.contract import Decision
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, describe
from deedbook.format.files import Folder
from deedbook.programs.exchange import dumps, subject

from .answers import asked
from .host import WorkspaceHost
from .plugins import discover, implementations, load


class Hooked:
    """The one hook of this process; what it was given stays open with *held*."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._event = ""
        self._mask: Callable[[str], str] = str
        self._ask: Callable[..., Any] | None = None

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one line: ready, the decision, or an error; or ``need`` if it was told nothing yet."""
        said = orjson.loads(line)
        try:
            if "setup" in said:
                self._ask = self._made(said["setup"])
                found: dict[str, Any] = {"ready": True}
            elif self._ask is None:
                found = {"need": "setup"}
            else:
                found = _spelled(self._ask(*subject(self._event, said["question"])))
        except DeedbookError as problem:
            found = {"error": str(problem)}
        except BaseException as problem:  # noqa: BLE001 - whatever it is, it is no answer, and the kernel is told so
            found = {"error": describe(problem, self._mask)}
        return {"id": said["id"], **found}

    def _made(self, told: Mapping[str, Any]) -> Callable[..., Any]:
        offer = discover().find("hook", told["name"])
        if (offer.distribution, offer.version, offer.digest) != (told["distribution"], told["version"], told["digest"]):
            raise RuntimeError(f"{offer} is not the code that the charter names; run: deedbook lock")
        folder = self._held.enter_context(Folder.at(Path(told["root"])))
        routes = partial(told.__getitem__, "routes") if "routes" in told else None
        host = WorkspaceHost(folder, told["roots"], told["hidden"], told["secrets"], routes=routes)
        self._event, self._mask = told["event"], host.mask
        return asked(self._event, implementations(offer, load(offer)(told["settings"], host), self._event))


def _spelled(decision: Any) -> dict[str, Any]:
    if type(decision) is not Decision:
        return {"error": f"answered {type(decision).__name__}, not a Decision"}
    said = attrs.asdict(decision, recurse=False)
    said["signals"] = dict(decision.signals)
    said["args"] = None if decision.args is None else dict(decision.args)
    return {"decision": canonical.decode(canonical.encode(said))}


def main() -> None:
    """Answer lines until there are none."""
    with os.fdopen(os.dup(1), "wb") as out, ExitStack() as held:
        os.dup2(2, 1)
        hooked = Hooked(held)
        for line in sys.stdin.buffer:
            out.write(dumps(hooked.answer(line)) + b"\n")
            out.flush()
