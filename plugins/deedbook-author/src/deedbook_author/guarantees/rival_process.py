"""The process that `rival` starts."""

import json
import os
import signal
import sys
from pathlib import Path

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.kernel import open_kernel
from deedbook.ledger.ledger import Ledger

from .inert import make_inert
from .network import block_sockets
from .target import InertKernel


def main() -> None:
    """Do the task in the first argument; write the report as lines of JSON."""
    task = canonical.parse(sys.argv[1])
    if "locked" in task:
        _tell(refusal=_try_to_write(Path(task["locked"])))
    if task["silence"]:
        block_sockets()
    kernel = open_kernel(task["root"], profile=task["profile"])
    opened = InertKernel(*make_inert(kernel, silence=task["silence"]))
    if task.get("kill"):
        opened.effects.during = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        with opened.session(task["principal"]) as session:
            _tell(killed=session.id)
            session.call(task["ability"], task["args"])
    elif "spend" in task:
        made = [opened.attempt(task["ability"], task["args"], task["principal"]) for _ in range(task["spend"])]
        _tell(spent=sum(not each.code for each in made))
    kernel.close()


def _try_to_write(folder: Path) -> str:
    try:
        with Folder.at(folder) as held:
            Ledger.reopen(held).close()
    except DeedbookError as problem:
        return problem.error.code
    return ""


def _tell(**said: object) -> None:
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()
