"""The long-lived process: it takes the state folder, opens its sockets, serves until it is told to stop, and drains."""

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
from deedbook_serve.bridging.desk import Desk as Agents

from . import bridge
from .desk import GRACE, Desk
from .instance_lock import tenure
from .methods import Runtime
from .peers import known
from .reception import MOST, ConnectionServer, Service
from .sockets import handed_over, listen, notify

SOCKET: Final = "runtime.sock"
DRAIN: Final = 10.0
"""Seconds that what runs has to finish when the process is told to stop."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LEAVING: Final = 2.0


@attrs.frozen(kw_only=True)
class Limits:
    """How much, and how long, in seconds."""

    connections: int = MOST
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
    """End what dead processes left, and serve *kernel*'s workspace until a signal ends it.

    *ready* is told what happens, a line each, and *stopping* is called when it is to end. Raises `DeedbookError`
    (``RUNTIME_RUNNING``) where another process does.
    """
    limits = limits or Limits()
    _raise_files()
    with tenure(kernel.state, {"pid": os.getpid(), "since": timestamp(clock())}):
        kernel.notices.listen(lambda subject, error: ready(f"{subject}: {error} [{error.code}]"))
        for line in kernel.recover().lines():
            ready(line)
        desk, agents = Desk(kernel, grace=limits.grace), Agents(kernel)
        present: list[ConnectionServer] = []
        services: dict[str, Service] = {
            SOCKET: Runtime(kernel, desk, present=lambda: len(present[0].present()), agents=agents.count),
            bridge.SOCKET: bridge.Bridge(agents),
        }
        with _listening(kernel, services, environment) as sockets:
            reception = ConnectionServer(sockets, known(kernel), say=ready, most=limits.connections)
            present.append(reception)
            with _stopped_by_signals(reception):
                ready(f"serving {kernel.site.root}: {kernel.site.state}/{SOCKET}")
                notify(environment, b"READY=1")
                reception.run()
                stopping()
                notify(environment, b"STOPPING=1")
                ready("stopping: what runs may finish")
                _drain(reception, (desk, agents), limits.drain, ready)


def _drain(
    reception: ConnectionServer, desks: tuple[Desk, Agents], seconds: float, ready: Callable[[str], None]
) -> None:
    """Let what runs finish; then end the sessions, in which whatever still runs is recorded as unknown."""
    left = reception.dismiss(seconds)
    if left:
        ready(f"{left} connections did not finish in {seconds:g} s; what they began is recorded as unknown")
    if unended := sum(desk.close() for desk in desks):
        ready(f"{unended} sessions could not be ended; the next start ends them")
    reception.close(_LEAVING)


@contextmanager
def _listening(
    kernel: Kernel, services: Mapping[str, Service], environment: Mapping[str, str]
) -> Iterator[dict[socket.socket, Service]]:
    """Open the socket of each service, for which a service manager may have done so."""
    given = handed_over(environment)
    with ExitStack() as held:
        made = {}
        for name, service in services.items():
            listening = given.get(name)
            if listening is None:
                listening = listen(kernel.state, name)
                held.callback(_forget, kernel, name)
            held.callback(listening.close)
            made[listening] = service
        yield made


def _forget(kernel: Kernel, name: str) -> None:
    with suppress(OSError):
        kernel.state.remove(name)


@contextmanager
def _stopped_by_signals(reception: ConnectionServer) -> Iterator[None]:
    """Let the signals that ask a process to end stop the reception; the second of them ends it as it always would."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[number])
        reception.stop()

    before: dict[int, Any] = {}
    # Python runs `stop` on the main thread only. One that comes just before that waits, or to another thread, would be
    # heard at the next connection; a byte in the waker ends the wait.
    woken = signal.set_wakeup_fd(reception.waker, warn_on_full_buffer=False)
    for number in STOPPING:
        before[number] = signal.getsignal(number)
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number in STOPPING:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(woken)


def _raise_files() -> None:
    """Take as many descriptors as this process may have: each connection and each session needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
