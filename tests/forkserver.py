"""A process that has imported the command line once, and forks for each command that a test calls.

A command that is called this way is a process of its own, with its own arguments, environment, folder, streams, signals
and exit status. Only the start of Python and the imports are left out, which take longer than most commands do.
`python tests/forkserver.py SOCKET FD` serves at SOCKET, a file descriptor that listens, until FD, the reading end of a
pipe, is closed. It imports nothing before it is asked for a command.
"""

import array
import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

PACKAGES = (
    "deedbook",
    "deedbook_approvals",
    "deedbook_audit",
    "deedbook_author",
    "deedbook_flow_review",
    "deedbook_flow_runcontext",
    "deedbook_flow_swe",
    "deedbook_flow_workflow",
    "deedbook_guard",
    "deedbook_hook_standard",
    "deedbook_inspect",
    "deedbook_log",
    "deedbook_memory",
    "deedbook_operate",
    "deedbook_pack",
    "deedbook_legacy",
    "deedbook_policy_cedar",
    "deedbook_policy_standard",
    "deedbook_provider_anthropic",
    "deedbook_provider_http",
    "deedbook_provider_openai",
    "deedbook_provider_recorded",
    "deedbook_provider_rules",
    "deedbook_serve",
    "deedbook_sink_otel",
    "deedbook_skill_markdown",
    "deedbook_tool_http",
    "deedbook_tool_mcp",
    "deedbook_tool_sandbox",
    "deedbook_tool_standard",
)
"""What is imported before the first fork: the kernel and its plugins."""
LIBRARIES = (
    "cel_expr_python",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "fastjsonschema",
    "jsonschema_rs",
    "openai",
    "prometheus_client",
    "ruamel.yaml",
)
"""What they import late."""
ROLE_SCHEMAS = (
    "clarification_v1",
    "completion_request_v2",
    "completion_response_v2",
    "lead_directive_v1",
    "plan_v1",
    "review_result_v1",
    "scope_v1",
    "verification_v1",
    "worker_report_v1",
)
"""What is compiled before the first fork, with the schemas of the events: what a run checks."""
FDS = 3
SIZE = 1 << 20


class Server:
    """Forks a process for each connection: first its id is answered, and, when it has ended, how."""

    def __init__(self, listening: socket.socket, lifeline: int) -> None:
        self._socket = listening
        self._lifeline = lifeline
        self._waiting: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> "Request | None":
        """Serve until nobody is there any more; in a forked process, return what is asked of it."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for each in (self._socket, self._lifeline, self._woken):
            self._selector.register(each, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj: key.data for key, _ in self._selector.select()}
            if self._lifeline in ready:
                return self._stop()
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, SIZE)
            self._reap()
            for pid in filter(None, ready.values()):
                self._abandon(pid)
            if self._socket in ready and (request := self._fork()):
                return request

    def _fork(self) -> "Request | None":
        connection, _ = self._socket.accept()
        request = Request.received(connection)
        if request is None:
            connection.close()
            return None
        pid = os.fork()
        if pid:
            request.close()
            with suppress(OSError):  # whoever asked may be gone; the process is waited for all the same
                connection.send(json.dumps({"pid": pid}).encode())
            self._waiting[pid] = connection
            self._selector.register(connection, selectors.EVENT_READ, pid)
            return None
        self._selector.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._socket, connection, *self._waiting.values()):
            each.close()
        for fd in (self._lifeline, self._woken, self._waker):
            os.close(fd)
        return request

    def _reap(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._waiting.pop(pid) as connection, suppress(OSError):
                self._forget(connection)
                connection.send(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())

    def _abandon(self, pid: int) -> None:
        """Kill a process that nobody waits for any more: a connection is readable only at its end."""
        if pid in self._waiting:
            self._forget(self._waiting[pid])
            os.kill(pid, signal.SIGKILL)

    def _forget(self, connection: socket.socket) -> None:
        with suppress(KeyError):
            self._selector.unregister(connection)

    def _stop(self) -> None:
        for pid in self._waiting:
            os.kill(pid, signal.SIGKILL)
        for pid in self._waiting:
            os.waitpid(pid, 0)


class Request:
    """What a process is to run: a module's `main` or a file, its arguments, folder, environment and streams."""

    def __init__(self, asked: dict[str, Any], fds: list[int]) -> None:
        self._asked, self._fds = asked, fds

    @classmethod
    def received(cls, connection: socket.socket) -> "Request | None":
        """Read the request of a connection; ``None`` if it has none."""
        raw, more, _, _ = connection.recvmsg(SIZE, socket.CMSG_LEN(FDS * array.array("i").itemsize))
        fds = array.array("i")
        for _, _, data in more:
            fds.frombytes(data)
        return cls(json.loads(raw), list(fds)) if raw else None

    def close(self) -> None:
        """Close the streams, which are the forked process's."""
        for fd in self._fds:
            os.close(fd)

    def run(self) -> NoReturn:
        """Become the process that was asked for, and end with its status."""
        self._take_over()
        status = 0
        try:
            if self._asked["program"] is None:
                from deedbook.cli.command import main

                main()
            else:
                runpy.run_path(self._asked["program"], run_name="__main__")
        except SystemExit as end:
            status = self._exit_status(end)
        except KeyboardInterrupt:
            traceback.print_exc()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            traceback.print_exc()
            status = 1
        leave(status)

    @staticmethod
    def _exit_status(end: SystemExit) -> int:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1

    def _take_over(self) -> None:
        """Take on what was asked for, as Python does at its start."""
        for number, fd in enumerate(self._fds):
            os.dup2(fd, number)
        self.close()
        os.environ.clear()
        os.environ.update(self._asked["env"])
        os.chdir(self._asked["cwd"])
        os.umask(self._asked["umask"])
        program, before = self._asked["program"], os.environ.get("PYTHONPATH", "")
        sys.argv = self._asked["argv"]
        sys.path[0] = os.path.dirname(os.path.abspath(program or sys.argv[0]))
        sys.path[1:1] = [os.path.abspath(path) for path in before.split(os.pathsep)] if before else []
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
        importlib.invalidate_caches()
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process is there
        sys.stdout = _stream(1, "strict")
        sys.stderr = _stream(2, "backslashreplace")


def _stream(fd: int, errors: str) -> io.TextIOWrapper:
    raw = open(fd, "wb", buffering=-1, closefd=False)  # noqa: SIM115 - as above
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=fd == 2 or raw.isatty())


def leave(status: int) -> NoReturn:
    """End as Python does: threads are waited for, exit functions are called, streams are written out."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # somebody closed it
                stream.flush()
    except OSError:
        status = status or 120
    os._exit(status)


def prepare() -> None:
    """Import what the commands import; there must be one thread, as a fork has no other."""
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for _, name, _ in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(name)
    for name in LIBRARIES:
        importlib.import_module(name)
    build_caches()
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()


def build_caches() -> None:
    """Build what the kernel builds once in a process: its schemas, its converter, its detectors."""
    from deedbook.format.detectors import NAMES, Detectors
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.workspace.workspace import load_workspace
    from deedbook_author.starter import STARTER

    schemas = Schemas.load(data_folder("schemas"))
    for name in (*ROLE_SCHEMAS, *(name for name in schemas.ids() if name.startswith("event_"))):
        schemas.validator(name)
    Detectors(NAMES, ())
    with tempfile.TemporaryDirectory(prefix="fork") as folder:
        shutil.copytree(STARTER, os.path.join(folder, ".system"))
        load_workspace(Path(folder))


def main() -> None:
    """Serve; a forked process comes back with its request and runs it."""
    listening, lifeline = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    ready, _, _ = select.select([listening, lifeline], [], [])
    if lifeline in ready:
        return
    prepare()
    request = Server(listening, lifeline).serve()
    if request:
        request.run()


if __name__ == "__main__":
    main()
