"""Commands run as forks of one process that has imported everything: see `forkserver.py`."""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from forkclient import Asked

HERE = Path(__file__).parent
BACKLOG = 64
SHARED = "DEEDBOOK_TESTS_FORK_SERVER"
"""The variable that names the folder of a process that forks for all workers of xdist."""
ENDS = 120
"""Seconds in which the process has to end, on a busy machine too."""
OWN = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
"""Variables for Python's own start that a fork can still obey."""
STAND_IN = "#!{} -IS\nimport sys\nsys.path.insert(0, {!r})\nimport forkclient\nforkclient.stand_in({!r})\n"


class ForkServer:
    """The process that forks. It imports everything when it is first asked; its socket takes requests before that."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fork")
        self.folder = Path(self._folder.name)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(_socket(self.folder))
        listening.listen(BACKLOG)
        ear, self._lifeline = os.pipe()
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env |= {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        fds = [listening.fileno(), ear]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forkserver.py"), *map(str, fds)],
            env=env, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        os.close(ear)
        listening.close()  # it is the process's alone: if that ends, whoever asks is refused and does not wait
        _commands(self.folder).mkdir()
        for name in ("deedbook", "python"):
            stand_in = _commands(self.folder) / name
            stand_in.write_text(STAND_IN.format(sys.executable, str(HERE), _socket(self.folder)))
            stand_in.chmod(0o755)

    def close(self) -> None:
        """End the process and what it still runs."""
        os.close(self._lifeline)
        self._process.communicate(timeout=ENDS)
        self._folder.cleanup()


def _socket(folder: Path) -> str:
    return str(folder / "socket")


def _commands(folder: Path) -> Path:
    return folder / "bin"


@cache
def start() -> Path:
    """Start the process, which ends with this one; return its folder."""
    made = ForkServer()
    atexit.register(made.close)
    return made.folder


def server() -> Path:
    """Return the folder of the one that serves this process: that of all workers of xdist, or its own."""
    shared = os.environ.get(SHARED)
    return Path(shared) if shared else start()


def commands() -> Path:
    """Return a folder for a shell's PATH, in which `deedbook`, and `python` with a file, are such forks.

    SIGHUP, SIGINT and SIGTERM are passed on, and who kills one kills its fork; other signals are not, nor is its id the
    fork's.
    """
    return _commands(server())


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    program: str | None = None,
    seconds: float,
) -> tuple[int, bytes, bytes]:
    """Run the command, or the Python file *program*, and return its status and what it wrote.

    The status is below zero for a signal, as `subprocess` has it. Raises `TimeoutError` after *seconds*; the process
    is killed then.
    """
    with ExitStack() as stack:
        names = ("in", "out", "err")
        streams = [stack.enter_context(open(os.memfd_create(name), "w+b", buffering=0)) for name in names]
        streams[0].write(stdin)
        streams[0].seek(0)
        fds = [stream.fileno() for stream in streams]
        asked = Asked(_socket(server()), argv, fds, program=program, cwd=os.fspath(cwd), env=dict(env))
        stack.callback(asked.close)
        status = asked.wait(seconds)
        out, err = (os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds[1:])
    return status, out, err


def can_fork(env: Mapping[str, str]) -> bool:
    """Say whether a fork can obey *env*: what Python looks at when it starts is decided before."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    return locale.upper().endswith("UTF-8") and {name for name in env if name.startswith("PYTHON")} <= OWN
