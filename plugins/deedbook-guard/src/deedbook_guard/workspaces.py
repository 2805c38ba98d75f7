"""The workspaces of guards: found, or created where there is none; one kernel for each in a process."""

import atexit
import os
import re
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from deedbook.format.errors import BindingError, DeedbookError, SourceError, fault
from deedbook.kernel import Kernel, open_kernel
from deedbook.policy.callers import Client
from deedbook.policy.fitting import find_unknown_names
from deedbook.sessions.session import Session
from deedbook.workspace.sources import find_workspace

WORKSPACE: Final = "DEEDBOOK_WORKSPACE"
"""The environment variable that names the workspace of guards that name none."""
_AGENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OBSERVING: Final = """\
# Written by guard({agent!r}): there was no workspace, so no policy is in force.
# Every call is recorded, and none is refused. To decide about calls, move this folder's .system/ into your project,
# declare tools and policies there, and remove the line `enforcement`.
schema_version: v1
enforcement: observe
agents:
  {agent}: {{kind: program, unknown_tools: allow}}
"""


class _Conversation(Protocol):
    session: Session

    def end(self, reason: str = ...) -> None:
        """End the session."""


class OpenKernels:
    """The kernels of a process, by workspace and profile, and the conversations in them. Closed when it exits."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[int, Path, str | None], Kernel] = {}
        self._conversations: set[_Conversation] = set()
        self._named: set[Path] = set()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)
        atexit.register(self.close)

    def _renew(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._conversations = set()

    def kernel(self, root: Path, profile: str | None = None) -> Kernel:
        """Return the kernel of a workspace, opened once; raises `DeedbookError`."""
        key = (os.getpid(), root, profile)
        with self._lock:
            found = self._kernels.get(key)
            if found is None or found.closed.is_set():
                found = self._kernels[key] = open_kernel(root, profile=profile)
                _warn(found)
            return found

    def is_first(self, root: Path) -> bool:
        """Return whether this is the first question about *root*."""
        with self._lock:
            first = root not in self._named
            self._named.add(root)
            return first

    def remember(self, conversation: _Conversation) -> None:
        """End *conversation* when the process exits, also if its guard is gone by then."""
        with self._lock:
            self._conversations = {each for each in self._conversations if not each.session.ended} | {conversation}

    def close(self) -> None:
        """End the conversations of this process, then close its kernels."""
        with self._lock:
            conversations, self._conversations = self._conversations, set()
            kernels = [self._kernels.pop(key) for key in list(self._kernels) if key[0] == os.getpid()]
        for conversation in conversations:
            with suppress(DeedbookError):  # what cannot be recorded now is found by `deedbook sessions close`
                conversation.end("the process ended")
        for kernel in kernels:
            with suppress(DeedbookError):
                kernel.close()


OPEN: Final = OpenKernels()


def _warn(kernel: Kernel) -> None:
    """Write to standard error what the policies do not guard, because they name abilities that do not exist."""
    opened = kernel.active_charter
    for note in find_unknown_names(opened.charter.document, patterns=opened.previous != opened.charter.digest):
        sys.stderr.write(f"deedbook: {note.place}: {note}\n")


def open_client(kernel: Kernel, agent: str) -> Client:
    """Return the client that the workspace declares for a program; raises `BindingError`."""
    entry: Any = kernel.bindings.charter.document["clients"].get(agent)
    if entry is None or entry["kind"] != "program":
        todo = f"agents: {{{agent}: {{kind: program}}}}"
        why = f"{agent!r} is not declared as a program; add to .system/deedbook.yaml: {todo}"
        raise BindingError(fault("BINDING_INVALID", why, place=str(kernel.site.root)))
    return kernel.client(agent, via="python")


def check_agent_name(agent: str) -> None:
    """Raise `BindingError` unless *agent* can be the name of a program."""
    if not _AGENT.fullmatch(agent):
        raise BindingError(
            fault("USAGE", f"guard({agent!r}): a name has letters, digits, dots, dashes and underscores")
        )


def choose_workspace(workspace: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder that the program names, or else the environment (`WORKSPACE`); raises `BindingError`."""
    if workspace is not None:
        return Path(workspace)
    named = os.environ.get(WORKSPACE)
    if named is None:
        return None
    if not Path(named).is_absolute():  # an empty one too: a program must not lose its policies by a mistake here
        why = f"{named!r} is not an absolute path; name the folder of the workspace, or remove the variable"
        raise BindingError(fault("USAGE", why, place=WORKSPACE))
    return Path(named)


def find_or_create(agent: str, workspace: Path | None, state: str | os.PathLike[str] | None) -> Path:
    """Return the root of the workspace, created in a state folder if there is none; raises `DeedbookError`."""
    check_agent_name(agent)
    try:
        return find_workspace(workspace if workspace is not None else Path.cwd()).resolve()
    except SourceError as problem:
        if workspace is not None or problem.error.code != "WORKSPACE_NOT_FOUND":
            raise
    place = Path(state) if state is not None else _user_state() / agent
    _create(agent, place)
    if OPEN.is_first(place.resolve()):
        sys.stderr.write(
            f"deedbook: no workspace here, so no policy is in force for {agent!r}; calls are recorded. "
            f"See them with: deedbook -C {place} tree last; "
            f"if the workspace is in another folder, name it: guard({agent!r}, workspace=…)\n"
        )
    return place.resolve()


def _user_state() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return base / "deedbook"


def _create(agent: str, place: Path) -> None:
    """Write the workspace that observes, unless it is there; several processes may begin at once."""
    folder = place / ".system"
    target = folder / "deedbook.yaml"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.exists():
            return
        handle, name = tempfile.mkstemp(dir=place, prefix=".deedbook-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_OBSERVING.format(agent=agent))
        with suppress(FileExistsError):
            os.link(name, target)
        os.unlink(name)  # noqa: PTH108 - the name is a text here
    except OSError as problem:
        why = f"no workspace can be created: {problem.strerror}; give guard(state=…) a folder of your own"
        raise SourceError(fault("STATE_REFUSED", why, place=str(place))) from None
