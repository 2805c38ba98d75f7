"""The kernel: an open workspace. There is no global state; two kernels in one process are independent."""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from .charter.bindings import bind
from .charter.cachekeys import CacheKey, cache_key
from .charter.judging import bind_for_judging
from .charter.locks import ActiveCharter, choose_charter, enforce, find_unchanged
from .charter.settings import CheckpointSettings
from .charter.store import StartRecord, Store
from .contract import MODES, Json, Object, Principal
from .format import canonical
from .format.errors import (
    BindingError,
    DeedbookError,
    Err,
    LedgerError,
    SessionRefused,
    SourceError,
    fault,
    require_type,
)
from .format.events import Entry, label, new_id
from .format.files import Folder
from .format.paths import LEDGER_FILE
from .format.release import VERSION
from .format.schema import Schemas, data_folder, suggest
from .format.sealed import Sealer
from .ledger.chain import translate_errors
from .ledger.journal import DATASYNC
from .ledger.ledger import Ledger, WorkspaceLedger
from .maintenance.identity import CLOSED, Identity
from .maintenance.liveness import SESSIONS, session_start_lock
from .maintenance.log_presence import FEATURE as LOG
from .maintenance.log_presence import LogWatch
from .plugins.features import Features, Notices
from .plugins.groups import FEATURE
from .plugins.host import ReadingHost, WorkspaceHost
from .plugins.plugins import Catalogue, discover
from .policy.bindings import Bindings
from .policy.callers import LOCAL, PROGRAM, Client, declared_client, declared_principal, exposed_abilities, route_data
from .policy.charter import Charter
from .programs.on_demand import WorkersOnDemand
from .sessions.session import Session
from .workspace import inventory
from .workspace.site import Site, find_state
from .workspace.sources import SYSTEM, find_workspace
from .workspace.trust import check_search_path, hold_sources, open_sources, open_state

if TYPE_CHECKING:
    from .call.pending_calls import OpenAnswer, PendingCalls
    from .continuation.resume import Resumption
    from .continuation.settling import PersonResult, Settlement
    from .maintenance.closing import RecoveryResult
    from .sessions.run_journal import SessionOrigin
    from .workspace.declarations import Workspace


_MOST: Final = 10
"""How many differences of charters a message names."""
PURPOSES: Final = ("open", "run", "call")
"""What a session is for: to take calls one after the other, to run a prompt, or to make one call."""


@attrs.frozen(eq=False)
class Kernel:
    """A workspace under one charter; creates sessions. Get one with `open_kernel`, and use it as a context manager."""

    site: Site
    active_charter: ActiveCharter
    bindings: Bindings
    schemas: Schemas
    state: Folder
    ledger: WorkspaceLedger
    sealer: Sealer
    identity: Identity
    log: LogWatch
    features: Features
    notices: Notices
    host: WorkspaceHost
    programs: WorkersOnDemand
    resources: ExitStack
    closed: Event = attrs.field(factory=Event, init=False, repr=False)

    def session(  # noqa: PLR0913 - all but the purpose by name
        self,
        purpose: str = "open",
        *,
        principal: Principal | Client = PROGRAM,
        show: Callable[[Json], None] | None = None,
        wait: float | None = 0.0,
        origin: "SessionOrigin | None" = None,
        run: str | None = None,
        mode: str = "interactive",
        clock: Callable[[], float] = time.time,
        fdatasync: Callable[[int], None] = DATASYNC,
    ) -> Session:
        """Begin a session of a person or a client with a ledger of its own; its *purpose* is one of `PURPOSES`.

        *show* receives what handlers show their caller meanwhile. A call that a person must decide waits *wait* seconds
        for the answer; with ``None`` the caller asks a person, since the effect is the caller's. *origin* is what the
        session continues. *run* is the id of its command or connection, by default the kernel's own. *clock* gives the
        recorded time, in seconds since the epoch, and *fdatasync* makes it durable. Hooks, policies and flows see the
        *mode* (`contract.flow.MODES`). Raises `SessionRefused` if a hook refuses it, and `LedgerError` if the ledger
        cannot be written or the kernel is closed.
        """
        self._refuse_closed()
        require_type(purpose, (str,), "purpose")
        require_type(wait, (int, float, type(None)), "wait")
        _check_choice("purpose", purpose, PURPOSES)
        who = _require_principal(principal)
        _check_choice("mode", mode, MODES)
        run = self.identity.run(run)
        self._require_log()
        with ExitStack() as undo:
            ledger = self._new_ledger(clock=clock, fdatasync=fdatasync)
            undo.callback(ledger.close)
            build = self._session_builder(ledger, undo, show, wait, run)
            session = build(principal=who, deferred=wait is None, origin=origin, mode=mode)
            begun = session.start(purpose)
            if isinstance(begun, Err):
                raise SessionRefused(begun)
            session.ledger.sync()  # the head is durable at once; without its lines it would look like a cut
            self._record_head(session, run)
            undo.pop_all()
        return session

    def resume(  # noqa: PLR0913 - all but the session by name
        self,
        session: str,
        *,
        accept_charter: str = "",
        result: "PersonResult | None" = None,
        show: Callable[[Json], None] | None = None,
        wait: float = 0.0,
        run: str | None = None,
        clock: Callable[[], float] = time.time,
        fdatasync: Callable[[int], None] = DATASYNC,
    ) -> Session:
        """Reopen a session that was suspended or interrupted; `Session.go_on` then goes on with its run.

        Under another charter than before, *accept_charter* must be its digest. *wait* is how many seconds to wait for a
        person, *result* a person's own result for a call that waits (`approvals.results.sign_as`). Raises
        `LedgerError`: ``LEDGER_LOCKED`` while another process has the session, ``SESSION_NOT_FOUND``,
        ``SESSION_ENDED``, ``SESSION_HANDED_OVER``, ``RESUME_REFUSED`` if there is no open run; `BindingError`
        (``RESUME_CHARTER_CHANGED``); `ApprovalError` (``NEEDS_HUMAN``) without an answer; and for a *result* as
        `build_settlement`. Then nothing is recorded.
        """
        self._refuse_closed()
        from .call.pending_calls import principal_of
        from .continuation import resume as continuation
        from .ledger.recovery import refuse_cut, refuse_handed_over
        from .maintenance.closing import folder_of

        folder, place = folder_of(self.state, session), Path(self.state.path, SESSIONS, session)
        durability, run = self.bindings.charter.document["durability"], self.identity.run(run)
        with ExitStack() as undo:
            refuse_cut(Path(self.state.path), session)
            ledger = Ledger.reopen(folder, durability=durability, sealer=self.sealer, clock=clock, fdatasync=fdatasync)
            undo.callback(ledger.close)
            found, added = continuation.read_resumption(place / LEDGER_FILE), list[Any]()
            refuse_handed_over(Path(self.state.path), session, found.parent.events)
            ledger.subscribe(added.append)
            self._refuse_other_charter(found.charter, accept_charter)
            self._require_log()
            find_answer = self._record_resumption(ledger, found, wait, result)
            runs = continuation.build_runs(found, added, self.sealer, find_answer, self._bind_earlier)
            start = found.start.payload
            reopened = self._session_builder(ledger, undo, show, wait, run)(
                principal=principal_of(start["principal"]), mode=str(start.get("mode", "interactive")),
                past=[*found.parent.events, *added],
            )  # fmt: skip
            prompt = found.prompt
            reopened.reopen(found.start.span, (prompt.prompt, prompt.signals, prompt.message, prompt.flow), runs)
            self.identity.adopt(ledger)
            self._record_head(reopened, run)
            undo.pop_all()
        return reopened

    def _session_builder(
        self, ledger: Ledger, undo: ExitStack, show: Callable[[Json], None] | None, wait: float | None, run: str
    ) -> "partial[Session]":
        """Return what makes a session of this kernel with *ledger*; *undo* releases what features hold for it."""
        return partial(
            Session,
            self.bindings,
            ledger,
            schemas=self.schemas,
            show=show or _ignore,
            workspace_ledger=self.ledger,
            pending_calls=partial(self.pending_calls, wait),
            parts=self.features.session_parts(self, ledger, undo),
            after_prompt=self._after_prompt,
            before_end=self._before_end,
            after_end=partial(self._after_end, run=run),
        )

    def _bind_earlier(self, digest: str) -> Bindings:
        """Bind an earlier charter of this workspace so that its declarations can be read; no plugin is loaded."""
        charter, none = Store(self.state).load(digest), Catalogue({}, {})
        found = bind_for_judging(charter, none, self.host, self.schemas, lambda _: False, self.site.root)
        return attrs.evolve(found, persona=self.bindings.persona)

    def _record_resumption(
        self, ledger: Ledger, found: "Resumption", wait: float, result: "PersonResult | None"
    ) -> "Callable[[str], OpenAnswer | None]":
        """Close what was lost, record that the session goes on, and return how to find answers of people.

        Raises before anything is recorded if the run waits for people, or *result* does not count.
        """
        from .continuation import resume as continuation

        pending, document = self.pending_calls(wait), self.bindings.charter.document

        def find_answer(name: str) -> "OpenAnswer | None":
            return pending.find_answer(name, ledger.now())

        closing = continuation.build_closing(ledger, found, self.bindings)
        settlement = self._settle(found, result, ledger, closing) if result is not None else None
        if settlement is None:
            found.await_answer(find_answer, wait)
        charter = {"charter": self.bindings.charter.digest, "enforcement": document["enforcement"]}
        resumed = _event(ledger, "session.resumed", {**charter, "kernel": VERSION}, found.start.span)
        ledger.append([*closing, resumed], durable=True)
        if settlement is not None:
            settlement.record(ledger, self.ledger)
        continuation.resume_contexts(ledger, found)
        return find_answer

    def _settle(
        self, found: "Resumption", result: "PersonResult", ledger: Ledger, closing: list[Entry]
    ) -> "Settlement":
        from .continuation.settling import build_settlement
        from .ledger.recovery import UNKNOWN

        reconciled = {entry.parent or "" for entry in closing if UNKNOWN not in entry.payload}
        return build_settlement(found, result, ledger, self.ledger, self.bindings, reconciled)

    def _refuse_other_charter(self, before: str, accepted: str) -> None:
        """Raise `BindingError` if the session began under another charter, unless the one in force is accepted."""
        now = self.bindings.charter.digest
        if before in (now, "") or accepted == now:
            return
        why = f"another charter is in force than when the run was interrupted: {now}, was {before}"
        differences = self._charter_differences(before)
        suffix = f"; {differences}" if differences else ""
        raise BindingError(fault("RESUME_CHARTER_CHANGED", f"{why}{suffix}. To go on under it: --accept-charter {now}"))

    def _charter_differences(self, before: str) -> str:
        from .charter.changes import compare

        with suppress(DeedbookError, OSError):
            changes = compare(Store(self.state).load(before).document, self.bindings.charter.document)
            shown = [*changes.looser, *changes.tighter] or list(changes.other)
            more = [f"{len(shown) - _MOST} more"] if len(shown) > _MOST else []
            return "; ".join([*shown[:_MOST], *more])
        return ""

    def pending_calls(self, wait: float | None = 0.0) -> "PendingCalls":
        """Return the store of calls that a person must decide; see `session`."""
        from .call.pending_calls import PendingCalls

        return PendingCalls(self.ledger, self.active_charter.charter, wait or 0.0)

    def principal(self, name: str, *, via: str = PROGRAM.via) -> Principal:
        """Return a declared principal, or a client as ``agent:NAME``; raises `BindingError`.

        *via* is the channel, unless the declaration names one.
        """
        return declared_principal(self.bindings.charter.document, name, via)

    def client(self, name: str, *, via: str, on_behalf_of: str = LOCAL.id) -> Client:
        """Return a client declared under ``agents:``, acting for *on_behalf_of*; raises `BindingError`.

        *via* is its channel. The name ``mcp`` needs no declaration.
        """
        return declared_client(self.bindings.charter.document, name, via, on_behalf_of)

    def recover(self) -> "RecoveryResult":
        """End what dead processes left open, and record it in ``system.boot``; return the record.

        For a long-lived process, before its first session. Raises `LedgerError`.
        """
        self._refuse_closed()
        from .maintenance.closing import recover

        found = recover(self.state, self.ledger, self.sealer)
        self.identity.boot(found.as_json() if found else None)
        if found:
            with self.notices.collect(LOG):
                self._require_log()
            self.features.notify("sessions_recovered", self.notices, kernel=self)
        return found

    def close(self, reason: str = CLOSED) -> None:
        """Release the workspace; end its sessions first, since each writes its head into the workspace ledger.

        A kernel that began sessions writes ``system.shutdown`` with *reason*.
        """
        try:
            self.features.notify("kernel_closed", self.notices, kernel=self)
            self.identity.shut_down(reason)
        finally:
            self.resources.close()
            self.closed.set()

    def _refuse_closed(self, why: str = "the kernel is closed; open the workspace again with open_kernel") -> None:
        if self.closed.is_set():
            raise LedgerError(fault("KERNEL_CLOSED", why, place=str(self.site.root)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close("interrupted" if kind and issubclass(kind, KeyboardInterrupt) else kind.__name__ if kind else CLOSED)

    def _new_ledger(self, **how: Any) -> Ledger:
        """Create the ledger of a new session, protected from removal as an unstarted one."""
        identity, durability = new_id(), self.bindings.charter.document["durability"]
        with translate_errors(f"{self.state.path}/{SESSIONS}"), session_start_lock(self.state), ExitStack() as undo:
            folder = undo.enter_context(self.state.sub(f"sessions/{identity}", create=True))
            ledger = Ledger.create(folder, identity, new_id(), durability=durability, sealer=self.sealer, **how)
            undo.callback(ledger.close)
            _refuse_removed(folder)
            undo.pop_all()
        return ledger

    def _after_prompt(self, session: Session) -> None:
        self.features.notify("session_prompted", self.notices, kernel=self, session=session)

    def _before_end(self, session: Session) -> None:
        self.features.notify("session_ending", self.notices, kernel=self, session=session)

    def _after_end(self, session: Session, run: str) -> None:
        why = (
            f"session {session.id} ended after its kernel was closed, so the workspace ledger has no record of its end"
        )
        self._refuse_closed(f"{why}; end sessions before the kernel")
        try:
            self._record_head(session, run)
        finally:
            with self.notices.collect(LOG):
                self._require_log()
            self.features.notify("session_ended", self.notices, kernel=self, session=session)

    def _require_log(self) -> None:
        """Activate the feature that keeps the log, if the workspace has a log; raises `BindingError`."""
        if self.log.is_present():
            self.features.require(LOG)

    def _record_head(self, session: Session, run: str) -> None:
        state = "ended" if session.ended and not session.suspended else "open"
        self.identity.head(session.ledger, state, run)


def open_kernel(path: str | Path = ".", *, profile: str | None = None, catalogue: Catalogue | None = None) -> Kernel:
    """Open the workspace at or above *path*; raises `DeedbookError` with every fault.

    *profile* replaces the workspace's own, *catalogue* the installed plugins. If nothing has changed since the last
    start, sources are only hashed, and abilities are bound at their first use.
    """
    refuse_platform()
    require_type(path, (str, os.PathLike), "path")
    require_type(profile, (str, type(None)), "profile")
    try:
        root, catalogue = find_workspace(Path(path)), catalogue or discover()
        with ExitStack() as held:
            kernel = _reopen(root, profile, catalogue, held) or _open_from_sources(root, profile, catalogue, held)
            return attrs.evolve(kernel, resources=held.pop_all())
    except SourceError as problem:  # it names the faulty lines: the traceback needs no frame from here
        raise problem.with_traceback(None) from None


def _reopen(root: Path, profile: str | None, catalogue: Catalogue, held: ExitStack) -> Kernel | None:
    """Open a workspace as the last start left it; ``None`` if its sources must be read."""
    if profile == "":  # no profile has that name; the store uses it for the workspace's own
        return None
    with open_sources(root) as folder:
        place = find_state(folder, root)
        if place is None:
            return None
        _refuse_locked(place)
        if not (place / "charters").is_dir():
            return None
        with open_state(root, place) as state:
            key = cache_key(root, place)
            store = Store(state, key)
            start = store.start(profile or "")
            charter = find_unchanged(store, start, folder, catalogue, kernel=VERSION) if start else None
    if start is None or charter is None:
        return None
    check_search_path(root)
    site = Site.from_charter(charter.document, root, place)
    values = site.secret_values()
    if not all(values.get(name) for name in start.secrets):
        return None
    return _assemble(site, catalogue, held, lambda *_: charter, key, lazily=True)


def _open_from_sources(root: Path, profile: str | None, catalogue: Catalogue, held: ExitStack) -> Kernel:
    """Read a workspace, and open it."""
    with open_sources(root) as folder:
        place = find_state(folder, root)
        start = _last_start(root, place, profile) if place else None
        folders = start.folders if start else (SYSTEM,)
        listing = inventory.digest_names(
            folder, folders
        )  # before the sources are read: a change in between is noticed at the next start
    from .workspace.workspace import load_profile

    workspace = load_profile(root, profile, catalogue)

    site = Site.of(workspace)
    key = cache_key(site.root, site.state, create=True)
    choose = partial(choose_charter, workspace, catalogue, kernel=VERSION)
    kernel = _assemble(site, catalogue, held, choose, key, lazily=False)
    if kernel.active_charter.charter.pinned and not workspace.unread:  # an unreadable source has no digest to compare
        known = listing if folders == workspace.folders else ""
        found = StartRecord(
            kernel.active_charter.charter.digest, workspace.folders, known, tuple(sorted(kernel.host.requested_secrets))
        )
        Store(kernel.state, key).remember(profile or "", found)
    return kernel


def _last_start(root: Path, place: Path, profile: str | None) -> StartRecord | None:
    with suppress(FileNotFoundError, DeedbookError), open_state(root, place) as state:
        return Store(state, cache_key(root, place)).start(profile or "")
    return None


def _assemble(
    site: Site,
    catalogue: Catalogue,
    held: ExitStack,
    choose: Callable[[Store, Folder], Charter],
    key: CacheKey,
    *,
    lazily: bool,
) -> Kernel:
    """Open all parts of a kernel, to be closed with *held*; *choose* selects the charter.

    A charter is stored once all its plugins are constructed: a key in place of a secret's name leaves no copy.
    """
    state = held.enter_context(_state_folder(site))
    root, sources = held.enter_context(Folder.at(site.root)), held.enter_context(hold_sources(site.root))
    sealer = site.sealer()
    ledger = WorkspaceLedger.open(state, workspace=site.identity, kernel=VERSION, sealer=sealer)
    held.callback(ledger.close)
    store = Store(state, key)
    charter = choose(store, sources)
    schemas = Schemas.load(data_folder("schemas"))
    secrets = site.secret_values()
    programs = WorkersOnDemand(private=any(secrets.values()))
    held.callback(programs.close)
    host = build_host(root, site, secrets, schemas, programs, charter, catalogue)
    held.callback(host.close)
    persona = partial(_persona, sources, catalogue)
    bindings = bind(charter, catalogue, host, schemas, persona=persona, lazily=lazily, root=site.root)
    begun = ledger.size  # a new ledger names no charter yet, even if the state folder has one
    opened = enforce(charter, store, None if lazily else sources, lambda opened: _record_charter(ledger, opened))
    if begun == ledger.size == 1:
        _record_charter(ledger, opened)
    warm = lazily or opened.previous == charter.digest
    identity = Identity(ledger, state, kernel=VERSION, charter=charter.digest, warm=warm)
    log = LogWatch(state, ledger, CheckpointSettings.read(charter.document.get(LOG, {}), site.root))
    named = (key.partition("/")[2] for key in charter.document["plugins"] if key.startswith(f"{FEATURE}/"))
    settings = {name: entry["settings"] for name, entry in charter.document.get("features", {}).items()}
    features = Features(catalogue, named, settings)
    return Kernel(
        site, opened, bindings, schemas, state, ledger, sealer, identity, log, features, Notices(), host, programs, held
    )  # fmt: skip


def build_host(
    root: Folder,
    site: Site,
    secrets: Mapping[str, str | None],
    schemas: Schemas,
    programs: WorkersOnDemand,
    charter: Charter,
    catalogue: Catalogue,
) -> WorkspaceHost:
    """Return the host that the plugins of *charter* get in the workspace at *root*."""
    routes = partial(_routes, charter)
    return WorkspaceHost(
        root, site.file_roots, site.hidden, secrets, schemas, programs, site.secrets, routes, catalogue
    )


def _state_folder(site: Site) -> Folder:
    """Open the state folder, created if missing.

    Raises `SourceError`: ``STATE_REFUSED`` if it cannot be written, ``WORKSPACE_UNTRUSTED`` if others may write it.
    """
    _refuse_locked(site.state)
    try:
        return open_state(site.root, site.state, create=True)
    except OSError as problem:
        raise _state_refused(site.state, problem.strerror or str(problem)) from None


def _refuse_locked(place: Path) -> None:
    """Raise `SourceError` if the state folder exists and this user may not read and write it."""
    if place.exists() and not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise _state_refused(place, os.strerror(errno.EACCES))


def _state_refused(place: Path, why: str) -> SourceError:
    advice = f"let the user {os.geteuid()} write there, or set state: in .system/deedbook.yaml to another folder"
    return SourceError(fault("STATE_REFUSED", f"the state folder cannot be used: {why}; {advice}", place=str(place)))


def _routes(charter: Charter) -> Mapping[str, Any]:
    return route_data(charter.document, exposed_abilities(charter.document))


def _persona(root: Folder, catalogue: Catalogue, name: str, card: Mapping[str, Any]) -> str:
    from .workspace.personas import read_persona

    return read_persona(root, catalogue, name, card)


def _record_charter(ledger: WorkspaceLedger, opened: ActiveCharter) -> None:
    payload = {
        "digest": opened.charter.digest,
        "previous": opened.previous,
        "looser": list(opened.changes.looser),
        "tighter": list(opened.changes.tighter),
    }
    write(ledger, "ledger.charter", payload)


@contextmanager
def bindings_for_judging(workspace: "Workspace", catalogue: Catalogue | None = None) -> Iterator[Bindings]:
    """Compile *workspace* and bind it for judging calls: no handler is constructed, nothing is written or locked.

    Raises `DeedbookError` with every fault.
    """
    from .charter.compiler import compile_charter

    found, site = catalogue or discover(), Site.of(workspace)
    with Folder.at(workspace.root) as root:
        charter = compile_charter(workspace, found, kernel=VERSION)
        host = ReadingHost(
            root,
            workspace.file_roots,
            site.hidden,
            site.secret_values(),
            routes=partial(_routes, charter),
            catalogue=found,
        )
        yield bind_for_judging(charter, found, host, Schemas.load(data_folder("schemas")), root=workspace.root)


def _refuse_removed(folder: Folder) -> None:
    """Raise `LedgerError` if the ledger's file was removed before it was locked."""
    if not folder.exists(LEDGER_FILE):
        why = "the new session's folder was removed during its start; nothing was recorded. Start it again"
        raise LedgerError(fault("LEDGER_BROKEN", why, retryable=True, place=folder.path))


def write(ledger: WorkspaceLedger, event_type: str, payload: Object) -> None:
    """Append one of the kernel's own events under the root of the workspace ledger."""
    entry = Entry(label(event_type, "runtime", None), ledger.span(), ledger.root, canonical.encode(dict(payload)))
    ledger.append([entry], durable=True)


def _event(ledger: Ledger, event_type: str, payload: Object, cause: str) -> Entry:
    return Entry(label(event_type, "runtime", None), ledger.span(), cause, canonical.encode(dict(payload)))


def refuse_platform() -> None:
    """Raise `DeedbookError` on a platform without the needed files and locks."""
    if sys.platform not in ("linux", "darwin"):
        why = f"Deedbook runs on Linux and macOS; this is {sys.platform}, whose file locks and syncs it does not know"
        raise DeedbookError(fault("PLATFORM_REFUSED", why))


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BindingError(fault("USAGE", f"{name}={value!r} is none of {', '.join(choices)}{suggest(value, choices)}"))


def _require_principal(principal: Principal | Client) -> Principal:
    """Return the principal of a session; raises `BindingError` for an invalid one."""
    if not isinstance(principal, Principal | Client):
        example = principal if isinstance(principal, str) else "NAME"
        why = f"is a Principal or a Client, not {type(principal).__name__}: kernel.principal({example!r})"
        raise BindingError(fault("USAGE", f"principal= {why} returns one that the workspace declares"))
    who = principal.principal if isinstance(principal, Client) else principal
    for name in (who.id, who.on_behalf_of):
        label("session.start", "user", name)  # refuse a name that does not fit into a header
    return who


def _ignore(_delta: Json) -> None:
    """Ignore the progress."""
