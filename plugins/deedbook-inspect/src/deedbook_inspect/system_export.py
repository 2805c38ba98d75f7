"""The processes of a workspace as runs of a system, in the form of seed 002's own programs.

The seed calls the time from ``system.boot`` to ``system.shutdown`` a run, so each process is one run. The form knows
one run at a time: the two lines of a run stand together, in the order of the boots, and running processes come last.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.event_text import show
from deedbook_audit.upcasting.envelope_1_0 import spell

SESSION: Final = "system"
"""The session of the seed's lines about the system itself."""

_SYSTEM: Final = "ws-"


def build_run_id(process_id: str) -> str:
    """Return the seed's run id of a process."""
    return f"run_{process_id}"


def export_runs(events: Iterable[Event], *, system: str, alive: Collection[str] = ()) -> Iterator[bytes]:
    r"""Yield the boots and shutdowns among the *events* of a workspace ledger as lines of envelope 1.0, with ``\n``.

    *system* is the id of that ledger; *alive* are the ids of running processes. ``boot_mode`` has the seed's meaning:
    ``cold`` for the first run, ``recover`` after a run that never shut down, else ``warm``.
    """
    runs = _read_runs(events)
    before: _Run | None = None
    for run in sorted(runs, key=lambda each: each.process in alive):  # a stable sort keeps the order of the boots
        lost = before is not None and before.shutdown is None and before.process not in alive
        mode = "cold" if before is None else "recover" if lost else "warm"
        yield from _encode_run(run, system, mode, build_run_id(before.process) if before and lost else None)
        before = run


@attrs.define
class _Run:
    process: str
    boot: Event
    shutdown: Event | None = None


def _read_runs(events: Iterable[Event]) -> list[_Run]:
    """Return the runs in the order of their boots; one whose process id is sealed is left out."""
    runs: dict[str, _Run] = {}
    for event in events:
        process = event.payload.get("process_id")
        if not isinstance(process, str):
            continue
        if event.type == "system.boot":
            runs.setdefault(process, _Run(process, event))
        elif event.type == "system.shutdown" and process in runs:
            runs[process].shutdown = runs[process].shutdown or event
    return list(runs.values())


def _encode_run(run: _Run, system: str, mode: str, recovered: str | None) -> Iterator[bytes]:
    members = {"boot_mode": mode, "started_at": run.boot.ts}
    if recovered is not None:
        members["recovered_from_run_id"] = recovered
    yield _encode_line(run, run.boot, system, members)
    if run.shutdown is not None:
        reason = show(run.shutdown.payload.get("reason")) or "unknown"
        yield _encode_line(run, run.shutdown, system, {"exit_reason": reason, "_parent_span_id": run.boot.span})


def _encode_line(run: _Run, event: Event, system: str, members: dict[str, Any]) -> bytes:
    payload = {
        "system_id": f"sys_{system.removeprefix(_SYSTEM)}",
        "process_id": f"proc_{run.process}",
        "run_id": build_run_id(run.process),
        "_actor": event.actor,
        "_source": "deedbook",
        "_span_id": event.span,
        **members,
    }
    return spell(event.type, payload, session_id=SESSION, trace_id=build_run_id(run.process), ts=event.ts)
