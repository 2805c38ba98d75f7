"""The process of one isolated hook: it loads that plugin and answers each line with a line.

The first line tells what to load, since secrets are part of it. The process checks that the code is what the charter
pins. Output of the hook goes to standard error; a hook that writes to the kernel's pipe itself is killed.
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
from deedbook.format.errors import DeedbookError, describe_crash
from deedbook.format.files import Folder
from deedbook.programs.exchange import dumps, parse_subject

from .answers import adapt_method
from .host import WorkspaceHost
from .plugins import discover, find_implementation, load


class HookProcess:
    """The only hook of this process; its resources stay open with *held*."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._event = ""
        self._mask: Callable[[str], str] = str
        self._ask: Callable[..., Any] | None = None

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one line: ready, the decision, an error, or ``need`` before the setup."""
        message = orjson.loads(line)
        try:
            if "setup" in message:
                self._ask = self._load(message["setup"])
                found: dict[str, Any] = {"ready": True}
            elif self._ask is None:
                found = {"need": "setup"}
            else:
                found = _encode_decision(self._ask(*parse_subject(self._event, message["question"])))
        except DeedbookError as problem:
            found = {"error": str(problem)}
        except BaseException as problem:  # noqa: BLE001 - any exception is reported to the kernel as an error
            found = {"error": describe_crash(problem, self._mask)}
        return {"id": message["id"], **found}

    def _load(self, setup: Mapping[str, Any]) -> Callable[..., Any]:
        catalogue = discover()
        offer = catalogue.find("hook", setup["name"])
        if (offer.distribution, offer.version, offer.digest) != (
            setup["distribution"],
            setup["version"],
            setup["digest"],
        ):
            raise RuntimeError(f"{offer} is not the code that the charter names; run: deedbook lock")
        folder = self._held.enter_context(Folder.at(Path(setup["root"])))
        routes = partial(setup.__getitem__, "routes") if "routes" in setup else None
        host = WorkspaceHost(
            folder, setup["roots"], setup["hidden"], setup["secrets"], routes=routes, catalogue=catalogue
        )
        self._event, self._mask = setup["event"], host.mask
        return adapt_method(self._event, find_implementation(offer, load(offer)(setup["settings"], host), self._event))


def _encode_decision(decision: Any) -> dict[str, Any]:
    if type(decision) is not Decision:
        return {"error": f"answered {type(decision).__name__}, not a Decision"}
    members = attrs.asdict(decision, recurse=False)
    members["signals"] = dict(decision.signals)
    members["args"] = None if decision.args is None else dict(decision.args)
    return {"decision": canonical.decode(canonical.encode(members))}


def main() -> None:
    """Answer lines until the end of input."""
    with os.fdopen(os.dup(1), "wb") as out, ExitStack() as held:
        os.dup2(2, 1)
        hooked = HookProcess(held)
        for line in sys.stdin.buffer:
            out.write(dumps(hooked.answer(line)) + b"\n")
            out.flush()
