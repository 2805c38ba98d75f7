"""The long-lived process: it locks the state folder, opens its sockets, serves until a signal, and drains."""

import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Final

import attrs

from deedbook.format.events import timestamp
from deedbook.kernel import Kernel
from deedbook_serve.bridging.session_table import AgentSessionTable as Agents

from . import bridge
from .connection_server import MAX_CONNECTIONS, ConnectionServer, Service
from .instance_lock import hold_instance_lock
from .methods import RuntimeService
from .peers import build_principal_lookup
from .prompt_runs import PromptRuns
from .resuming import RunResumer
from .session_table import GRACE, SessionTable
from .sockets import listen, notify, take_inherited

SOCKET: Final = "runtime.sock"
DRAIN: Final = 10.0
"""Seconds that running requests have to finish when the process is told to stop."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CLOSE_TIMEOUT: Final = 2.0
_RESUMED: Final = 2.0
"""Seconds that a resumed run has to end, after the drain, before it is suspended again."""


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of the process; times are in seconds."""

    connections: int = MAX_CONNECTIONS
    grace: float = GRACE
    drain: float = DRAIN


def serve(
    kernel: Kernel,
    *,
    limits: Limits | None = None,
    ready: Callable[[str], None],
    clock: Callable[[], float],
    environment: Mapping[str, str] = os.environ,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """End the sessions of dead processes, and serve *kernel*'s workspace until a signal.

    Suspended runs whose people have answered go on in the background.
    *ready* receives progress messages, one line each; *stopping* is called when draining begins. Raises `DeedbookError`
    (``RUNTIME_RUNNING``) if another process serves the workspace.
    """
    limits = limits or Limits()
    _raise_file_limit()
    with hold_instance_lock(kernel.state, {"pid": os.getpid(), "since": timestamp(clock())}):
        kernel.notices.listen(lambda subject, error: ready(f"{subject}: {error} [{error.code}]"))
        recovered = kernel.recover()
        for line in recovered.lines():
            ready(line)
        resumer = RunResumer(kernel, recovered.resumable, ready)
        sessions, agents, runs = SessionTable(kernel, grace=limits.grace), Agents(kernel), PromptRuns(kernel)
        servers: list[ConnectionServer] = []
        services: dict[str, Service] = {
            SOCKET: RuntimeService(
                kernel, sessions, runs, connections=lambda: len(servers[0].connections()), agents=agents.count
            ),
            bridge.SOCKET: bridge.BridgeService(agents),
        }
        with _open_sockets(kernel, services, environment) as sockets:
            server = ConnectionServer(sockets, build_principal_lookup(kernel), report=ready, most=limits.connections)
            servers.append(server)
            with _stop_on_signals(server):
                ready(f"serving {kernel.site.root}: {kernel.site.state}/{SOCKET}")
                notify(environment, b"READY=1")
                resumer.start()
                server.serve()
                stopping()
                notify(environment, b"STOPPING=1")
                ready("stopping: what runs may finish")
                _drain(server, (sessions, agents), runs, limits.drain, ready)
                resumer.stop(_RESUMED)


def _drain(
    server: ConnectionServer,
    tables: tuple[SessionTable, Agents],
    runs: PromptRuns,
    seconds: float,
    ready: Callable[[str], None],
) -> None:
    """Let running requests finish; then suspend runs, and end the sessions, which makes running calls unknown."""
    unfinished = server.drain(seconds)
    if unfinished:
        ready(f"{unfinished} connections did not finish in {seconds:g} s; what they began is recorded as unknown")
    runs.suspend(reason="the process that ran it was stopped")
    if unended := sum(sessions.close() for sessions in tables):
        ready(f"{unended} sessions could not be ended; the next start ends them")
    server.close(_CLOSE_TIMEOUT)


@contextmanager
def _open_sockets(
    kernel: Kernel, services: Mapping[str, Service], environment: Mapping[str, str]
) -> Iterator[dict[socket.socket, Service]]:
    """Open the socket of each service, or take the one that a service manager opened."""
    inherited = take_inherited(environment)
    with ExitStack() as stack:
        opened = {}
        for name, service in services.items():
            listening = inherited.get(name)
            if listening is None:
                listening = listen(kernel.state, name)
                stack.callback(_remove_socket, kernel, name)
            stack.callback(listening.close)
            opened[listening] = service
        yield opened


def _remove_socket(kernel: Kernel, name: str) -> None:
    with suppress(OSError):
        kernel.state.remove(name)


@contextmanager
def _stop_on_signals(server: ConnectionServer) -> Iterator[None]:
    """Stop the server on the first signal to end; the second signal ends the process as usual."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[number])
        server.stop()

    before: dict[int, Any] = {}
    # Python runs `stop` on the main thread only. A signal just before the wait, or to another thread, would take effect
    # only at the next connection; a byte in the waker ends the wait.
    woken = signal.set_wakeup_fd(server.waker, warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        before[number] = signal.getsignal(number)
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(woken)


def _raise_file_limit() -> None:
    """Raise the limit of open files to its maximum: each connection and each session needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
