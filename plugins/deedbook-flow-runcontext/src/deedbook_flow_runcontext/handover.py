"""Hand a suspended session over to another state folder, and receive one from its bundle.

Handing over appends a ``session.suspended`` with the code `HANDED_OVER` to the session's ledger, which the bundle has
as its last event. From then on, no command resumes or closes the session in this state folder. It goes on in a folder
whose workspace ledger says that it was received (``ledger.received``). So the older ledger is the beginning of the
newer one.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deedbook import Event
from deedbook.call.pending_calls import principal_of, withdraw
from deedbook.charter.store import Store
from deedbook.format.canonical import digest, encode
from deedbook.format.errors import BindingError, LedgerError, fault
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import SEALED, read, summarise
from deedbook.kernel import Kernel
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.ledger.recovery import HANDED_OVER, find_handover, refuse_handed_over
from deedbook.maintenance.closing import write_head
from deedbook.maintenance.liveness import session_start_lock
from deedbook.maintenance.opening import open_ledger
from deedbook.policy.callers import LOCAL
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.site import Site

from .bundles import SessionBundle, read_ledger

_REASON = "the session is handed over, and goes on where its bundle is loaded"


def hand_over(workspace: Workspace, session: str, by: str) -> None:
    """Record that *session*, which is suspended, leaves this state folder; its open requests are withdrawn.

    Nothing is recorded if it has left already. Raises `LedgerError`: ``RESUME_REFUSED`` if it is not suspended,
    ``LEDGER_LOCKED`` while a process has it.
    """
    with Folder.at(workspace.state) as state:
        found = summarise(state, session)
        if found.state != "suspended":
            why = f"session {session} is {found.state}; only a suspended one is handed over"
            if found.state == "interrupted":
                why += f". Let its run stop first: deedbook resume {session}"
            raise LedgerError(fault("RESUME_REFUSED", why))
        events = list(read(Path(state.path, "sessions", session)))
    asked = [str(event.payload["approval"]) for event in events if event.type == "approval.requested"]
    if find_handover(events) is None:
        _append(workspace, session, by, found.approval)
    else:
        _refuse_received(workspace.state, session, events)
    with open_own_ledger(workspace) as own:
        withdraw(own, asked, _REASON)


def _append(workspace: Workspace, session: str, by: str, approval: str) -> None:
    payload = {"code": HANDED_OVER, "reason": _REASON, "approval": approval or None}
    with open_ledger(Site.of(workspace), session, by) as opened:
        span = opened.ledger.span()
        entry = Entry(label("session.suspended", "user", by), span, opened.ledger.root, encode(payload))
        opened.ledger.append([entry], durable=True)


def is_handed_over(bundle: SessionBundle) -> bool:
    """Return whether *bundle* hands its session over."""
    return find_handover(bundle.events) is not None


def receive(kernel: Kernel, bundle: SessionBundle, by: str) -> None:
    """Put the session of *bundle* into the state folder of *kernel*, and record that it goes on here.

    A session that left this folder earlier is taken back, with what was recorded meanwhile. Raises `LedgerError`:
    ``BUNDLE_REFUSED`` if the bundle does not hand the session over, if the folder has another record of it, or if the
    workspace does not have its charters and its principal. Killed at any moment, it can be called again.
    """
    _refuse_unknown_charters(kernel, bundle)
    _refuse_other_principal(kernel, bundle)
    if not is_handed_over(bundle):
        why = (
            f"the bundle was saved without handing session {bundle.session} over, so it can go on where it is. Save "
            f"it there again: deedbook context save {bundle.session} BUNDLE --hand-over"
        )
        raise _refusal(why)
    with session_start_lock(kernel.state), kernel.state.sub(f"sessions/{bundle.session}", create=True) as folder:
        _place(folder, bundle)
    _record(kernel.ledger, bundle, by)


def _place(folder: Folder, bundle: SessionBundle) -> None:
    """Write the ledger and the sealed values; the ledger comes last."""
    here = b""
    with suppress(FileNotFoundError):
        here = read_ledger(folder)
    if not bundle.raw.startswith(here):
        raise _refusal(f"session {bundle.session} is in this state folder, with another record than the bundle has")
    if here == bundle.raw:
        return
    for name, data in bundle.sealed.items():
        folder.replace(f"{SEALED}/{name}", data)
    if not here:
        folder.replace(LEDGER_FILE, bundle.raw, expected="")
        return
    ledger = Ledger.reopen(folder)  # for its lock
    try:
        if find_handover(list(read(Path(folder.path)))) is None:
            raise _refusal(f"session {bundle.session} is in this state folder, and was not handed over")
        folder.replace(LEDGER_FILE, bundle.raw, expected=digest(here))
    finally:
        ledger.close()


def _record(ledger: WorkspaceLedger, bundle: SessionBundle, by: str) -> None:
    told = {
        "session_id": bundle.session,
        "events": len(bundle.lines),
        "head": bundle.head,
        "bundle": bundle.digest,
        "by": by,
    }
    write_head(ledger, bundle.session, len(bundle.lines), bundle.head, "interrupted")
    ledger.append([Entry(label("ledger.received", "user", by), ledger.span(), ledger.root, encode(told))], durable=True)


def _refuse_unknown_charters(kernel: Kernel, bundle: SessionBundle) -> None:
    known = Store(kernel.state)
    unknown = sorted(name for name in bundle.charters if known.find(name) is None)
    if unknown:
        why = (
            f"session {bundle.session} ran under charter {unknown[0]}, which this workspace has never had; in force is "
            f"{kernel.bindings.charter.digest}. Load it into a workspace with the same sources and plugins"
        )
        raise _refusal(why)


def _refuse_other_principal(kernel: Kernel, bundle: SessionBundle) -> None:
    """Refuse a session whose principal this workspace does not have: its later calls would have the stated roles."""
    try:
        stated = principal_of(bundle.events[0].payload["principal"])
        known = LOCAL if stated.id == LOCAL.id else kernel.principal(stated.id, via=stated.via)
    except (BindingError, KeyError, TypeError, AttributeError) as problem:
        raise _refusal(f"the principal of session {bundle.session} is not one of this workspace: {problem}") from None
    if (stated.roles, stated.on_behalf_of) != (known.roles, known.on_behalf_of):
        raise _refusal(f"the principal {stated.id} of session {bundle.session} has other roles in this workspace")


def _refuse_received(state: Path, session: str, events: Sequence[Event]) -> None:
    """Refuse to hand on a session that was received here and has not gone on: its bundle is in use."""
    try:
        refuse_handed_over(state, session, events)
    except LedgerError:
        return
    why = f"session {session} was received and not resumed; go on with it first: deedbook resume {session}"
    raise LedgerError(fault("RESUME_REFUSED", why))


def _refusal(why: str) -> LedgerError:
    return LedgerError(fault("BUNDLE_REFUSED", why))
