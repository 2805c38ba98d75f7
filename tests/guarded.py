"""A program of its own: calls commands in a process that may neither write a file, connect, nor start a process.

Python reports each such act to an audit hook before it happens (PEP 578), and this one raises. What is printed is JSON:
the answers of the commands, and what became of an attempt at each forbidden act.
"""

import io
import json
import os
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

FORBIDDEN = ("socket.", "subprocess.", "shutil.", "tempfile.", "ctypes.dlopen", "pty.", "sqlite3.")
ACTS = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "os.kill",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(BaseException):
    """Somebody tried what the guard forbids; no handler of ordinary errors hides it."""


def guard(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
    if writes or event in ACTS or event.startswith(FORBIDDEN):
        raise Forbidden(f"{event} {arguments!r}")


def attempts(folder):
    """Return one way to do each forbidden thing; none may succeed."""
    place = str(folder / "made")
    return {
        "open": lambda: open(place, "w"),
        "append": lambda: open(folder / "there", "a"),
        "os.open": lambda: os.open(place, os.O_CREAT | os.O_WRONLY),
        "write_text": lambda: Path(place).write_text("x"),
        "mkdir": lambda: os.mkdir(place),
        "remove": lambda: os.remove(folder / "there"),
        "rename": lambda: os.rename(folder / "there", place),
        "chmod": lambda: os.chmod(folder / "there", 0o777),
        "symlink": lambda: os.symlink("there", place),
        "socket": socket.socket,
        "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
        "subprocess": lambda: subprocess.run(["true"], check=True),
        "system": lambda: os.system("true"),
        "fork": lambda: os.fork() or os._exit(0),
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    }


def tried(act):
    try:
        act()
    except Forbidden as stopped:
        return str(stopped).split(" ")[0]
    return "done"


def told(status, args):
    """Return what the command ``deedbook *args`` comes to: its status and its output, or which act stopped it."""
    sys.argv, out = ["deedbook", *args], io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            return [status(), out.getvalue()]
    except Forbidden as stopped:
        return ["forbidden", str(stopped)]


def main():
    from deedbook.cli.common import GlobalOptions
    from deedbook.cli.program import _status

    folder, commands = Path(sys.argv[1]), json.loads(sys.argv[2])
    sys.addaudithook(guard)
    answers = [told(lambda: _status(GlobalOptions()), args) for args in commands]
    print(json.dumps({"answers": answers, "tried": {name: tried(act) for name, act in attempts(folder).items()}}))


if __name__ == "__main__":
    main()
