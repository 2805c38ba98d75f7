"""Another process on a scratch copy: it competes for a session or a budget, or is killed within a call.

It runs `rival_process`. Its effects are also inert.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.format import canonical
from deedbook.format.errors import IntakeError

if TYPE_CHECKING:
    from .scratch import Scratch
    from .target import Target

_PATIENCE: Final = 60.0
"""Seconds for a process; it is killed then."""


@attrs.frozen
class RivalReport:
    """What the process did: the code of the *refusal*, the session in which it was *killed*, the calls it has *spent*.

    *error* is the end of its standard error.
    """

    refusal: str = ""
    killed: str = ""
    spent: int = 0
    error: str = ""


class Rival:
    """A started process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def finish(self) -> RivalReport:
        """Wait for its end, and return its report."""
        try:
            out, error = self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, error = self._process.communicate()
        said: dict[str, Any] = {}
        for line in out.splitlines():
            with suppress(IntakeError):
                said |= canonical.parse(line)
        if self._process.returncode != -signal.SIGKILL:
            said.pop("killed", None)
        return RivalReport(**said, error=error.decode(errors="replace")[-500:])


@contextmanager
def start_rival(target: "Target", scratch: "Scratch", task: Mapping[str, Any]) -> Iterator[Rival]:
    """Start a process on *scratch* with the call of *target*; it ends with the block.

    *task*: ``locked`` is the folder of a session that it tries to write; with ``kill`` it is killed within the call;
    ``spend`` is how often it makes the call as ``principal``.
    """
    call = target.call
    said: dict[str, Any] = {"root": str(scratch.root), "profile": scratch.original.profile, "silence": target.silence}
    said |= {"ability": call.ability, "args": dict(call.args), "principal": call.principal, **task}
    argv = [sys.executable, "-c", "from deedbook_author.guarantees.rival_process import main; main()", json.dumps(said)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(  # noqa: S603 - this interpreter
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    try:
        yield Rival(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
