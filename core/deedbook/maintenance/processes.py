"""Processes, runs and sessions of a workspace: a fold of its ledger, and which of the processes live."""

from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.charter.store import Store
from deedbook.contract import Event
from deedbook.format.errors import DeedbookError
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read
from deedbook.policy.charter import Charter

from .liveness import list_living

Ending: TypeAlias = Literal["running", "shut down", "died"]
FOUND: Final = ("closed", "removed", "refused", "died")
"""The members of a process's boot that list what it found dead."""


@attrs.define
class SessionRecord:
    """A session in the workspace ledger: its last head's *state* and number of *events*.

    *process*, *run* and *trace* are empty if no ``system.run`` names it: it is older, or its process died first.
    """

    id: str
    process: str = ""
    run: str = ""
    trace: str = ""
    state: str = ""
    events: int = 0


@attrs.define
class Process:
    """One process: its beginning, its runs with the ids of their sessions, and its end.

    *recovered* is what it found dead, as its boot records it under the names in `FOUND`; *reason* is empty before its
    shutdown.
    """

    id: str
    kind: str
    pid: int
    kernel: str
    charter: str
    started: str
    recovered: dict[str, Any] = attrs.field(factory=dict)
    runs: dict[str, list[str]] = attrs.field(factory=dict)
    ended: str = ""
    reason: str = ""
    state: Ending = "running"


@attrs.define
class Processes:
    """All processes of a *system*, the oldest first, and all sessions, by id."""

    system: str = ""
    processes: dict[str, Process] = attrs.field(factory=dict)
    sessions: dict[str, SessionRecord] = attrs.field(factory=dict)


class ProcessesFold:
    """The fold of the workspace ledger whose state is `Processes`; sealed values are left out.

    A process without a shutdown counts as running: the ledger cannot know that, `read_processes` can.
    """

    def start(self) -> Processes:
        """Return no processes."""
        return Processes()

    def step(self, state: Processes, event: Event) -> Processes:
        """Add *event*; irrelevant events change nothing."""
        payload = dict(event.payload)
        name = payload.get("session_id" if event.type == "ledger.session" else "process_id")
        if isinstance(name, str):
            if event.type == "ledger.session":
                seen, count = state.sessions.setdefault(name, SessionRecord(name)), payload.get("events")
                seen.state, seen.events = _text(payload.get("state")), count if isinstance(count, int) else seen.events
            elif event.type == "system.boot":
                state.processes.setdefault(name, _parse_boot(name, payload, event.ts))
            elif event.type == "system.run":
                _take_run(state, name, payload)
            elif event.type == "system.shutdown" and name in state.processes:
                process = state.processes[name]
                process.ended, process.reason, process.state = event.ts, _text(payload.get("reason")), "shut down"
        return state


def read_processes(state: Folder) -> Processes:
    """Return the processes of a *state* folder, with those that died marked.

    Raises `LedgerError` if the workspace ledger cannot be read; without one there are none.
    """
    found, alive = _read(state), list_living(state)
    lost = [each.id for each in found.processes.values() if each.state == "running" and each.id not in alive]
    if lost:
        found = _read(state)  # a process writes its shutdown before it releases its lifeline
    for process in map(found.processes.__getitem__, lost):
        if process.state == "running":
            process.state = "died"
    return found


def find_outdated(place: Path, charter: Charter) -> list[Process]:
    """Return the running processes of the state folder at *place* under other rules than *charter*, the files' own.

    One that runs under another profile of the same files is not among them. Raises `LedgerError`.
    """
    if not place.is_dir():
        return []
    with Folder.at(place) as state:
        if not list_living(state):
            return []
        store, found = Store(state), read_processes(state).processes.values()
        running = [each for each in found if each.state == "running" and each.charter != charter.digest]
        return [each for each in running if not _is_other_profile(store, each.charter, charter)]


def _is_other_profile(store: Store, digest: str, charter: Charter) -> bool:
    try:
        found = store.find(digest)
    except DeedbookError:
        return False
    if found is None or found.document["profile"] == charter.document["profile"]:
        return False
    return all(found.document.get(name) == charter.document[name] for name in ("sources", "kernel"))


def describe_outdated(process: Process, charter: Charter) -> str:
    """Return that a process goes on under an earlier charter than that of the files."""
    who = f"process {process.pid}, running since {process.started},"
    return f"{who} decides by charter {process.charter[:12]}; the files differ: they give {charter.digest[:12]}"


def _read(state: Folder) -> Processes:
    place = Path(state.path, "workspace", LEDGER_FILE)
    try:
        found = fold(ProcessesFold(), read(place))
        with state.open(f"workspace/{LEDGER_FILE}") as file:
            first = file.readline()
    except FileNotFoundError:
        return Processes()
    if first.endswith(b"\n"):  # otherwise nothing is recorded yet
        found.system = split_line(first, place=str(place)).session_id
    return found


def _parse_boot(name: str, payload: dict[str, Any], ts: str) -> Process:
    pid = payload.get("pid")
    return Process(
        name,
        _text(payload.get("kind")),
        pid if isinstance(pid, int) else 0,
        _text(payload.get("kernel")),
        _text(payload.get("charter")),
        ts,
        {name: payload[name] for name in FOUND if isinstance(payload.get(name), list)},
    )


def _take_run(state: Processes, name: str, payload: dict[str, Any]) -> None:
    run, session = payload.get("run_id"), payload.get("session_id")
    process = state.processes.get(name)
    if process and isinstance(run, str) and isinstance(session, str):
        process.runs.setdefault(run, []).append(session)
        seen = state.sessions.setdefault(session, SessionRecord(session))
        seen.process, seen.run, seen.trace = name, run, _text(payload.get("trace_id"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
