"""The attacks in a process of their own: no network, an environment without the user's keys, a bounded time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, DomainError, IntakeError, fault, recordable

from .network import block_sockets, cut_network
from .runner import Examination, examine_guarantees

_PATIENCE: Final = 600.0
"""Seconds for all attacks."""
_CODE: Final = "from deedbook_author.guarantees.isolation import main; main()"
_RESULT: Final = "result.json"


def examine_apart(root: Path, profile: str | None = None) -> Examination:
    """Run `examine_guarantees` for the workspace at *root* in a process of its own.

    Raises `DeedbookError` with every fault if the workspace cannot be opened, or if the process does not end well.
    """
    with TemporaryDirectory(prefix="deedbook-guarantees-") as scratch:
        argv = [sys.executable, "-c", _CODE, str(root), scratch, profile or ""]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            ran = subprocess.run(  # noqa: S603 - this interpreter
                argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _start_failure(f"did not end within {_PATIENCE:g} s") from None
        try:
            said = canonical.parse((Path(scratch) / _RESULT).read_bytes())
        except (OSError, IntakeError):
            last = ran.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise _start_failure(f"ended with status {ran.returncode}: {''.join(last)}") from None
    if "errors" in said:
        raise DeedbookError(*(DomainError(**each) for each in said["errors"]))
    return Examination.restore(said)


def _start_failure(how: str) -> BindingError:
    why = f"the process of the attacks {how}; `deedbook doctor` checks the plugins that it loads"
    return BindingError(fault("NOT_STARTED", why))


def main() -> None:
    """Examine the workspace in the first argument below the folder in the second; write the result there."""
    root, scratch, profile = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] or None
    is_cut = cut_network()
    if not is_cut:
        block_sockets()
    said: dict[str, Any]
    try:
        said = examine_guarantees(root, scratch, profile, silence=not is_cut).as_json()
    except DeedbookError as problem:
        said = {"errors": [_as_json(each) for each in problem.errors]}
    partial = scratch / f"{_RESULT}.part"
    partial.write_text(json.dumps(said), encoding="utf-8")
    partial.rename(scratch / _RESULT)
    os._exit(0)  # threads and exit handlers of plugins do not matter any more


def _as_json(error: DomainError) -> dict[str, Any]:
    return {
        "kind": error.kind,
        "code": error.code,
        "message": recordable(error.message, 5000),
        "retryable": error.retryable,
        "place": error.place,
    }
