"""Freeze and thaw a workspace.

A freeze takes four steps; a process that dies between two of them leaves at least as much frozen as before:

1. write the document, durably: from now on every call that checks it is denied,
2. take the lock alone: every call that checked before has recorded its intent, or is denied,
3. end the requests that wait for a person,
4. record the freeze, with the calls that still run, in the workspace ledger.

A thaw records first and writes the document afterwards; a process that dies in between leaves everything frozen.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import attrs

from deedbook.approvals.keys import KeyRing
from deedbook.approvals.results import choose_approver, load_key
from deedbook.call.pending_calls import withdraw
from deedbook.call.queue import OPEN, ApprovalQueue
from deedbook.cli.ledgers import read_leniently
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, LedgerError, fault, recordable
from deedbook.format.events import Entry, label, new_id, timestamp
from deedbook.format.files import Folder
from deedbook.format.notes import SigningKey
from deedbook.format.schema import suggest
from deedbook.format.terminal import plain
from deedbook.kernel import open_kernel
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.callers import AGENT, LOCAL, PLAIN
from deedbook.policy.conditions import glob_test
from deedbook.policy.requests import approvers
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.own_ledger import open_own_ledger

from .checking import FreezeDocument
from .feature import FREEZE, THAW
from .freezes import MAX_FREEZES, MAX_REASON, Freeze, FreezeInvalid, FreezeState
from .lock_holders import describe_lock_holders
from .running import Charters, OpenSession, find_uncovered, read_open_sessions

_CHANGES: Final = "changes"
"""The lock of a process that changes the document."""
T = TypeVar("T")


@attrs.frozen
class FreezeReport:
    """What a freeze found: the calls that still run, the ended requests, and what it does not cover."""

    freeze: Freeze
    running: Sequence[Mapping[str, str]]
    ended: Sequence[str]
    not_covered: Sequence[str]


@attrs.frozen
class FreezeStatus:
    """The freezes in force, or why that is unknown (*unsound*).

    *unrecorded*: the ledger lacks the newest change.
    """

    freezes: Sequence[Freeze]
    unsound: str = ""
    unrecorded: bool = False


@attrs.define(eq=False)
class Freezer:
    """Changes the freezes of one workspace; made by `open_freezer`."""

    workspace: Workspace
    notes: Sequence[str]
    state: Folder
    ledger: WorkspaceLedger
    document: FreezeDocument
    charters: Charters
    principals: Mapping[str, Any]

    def status(self) -> FreezeStatus:
        """Return what is frozen."""
        try:
            found = self.document.read()
        except FreezeInvalid as problem:
            return FreezeStatus(self._recorded_freezes(), str(problem))
        unrecorded = found.number > self.document.recorded.number
        return FreezeStatus(found.freezes, unrecorded=unrecorded)

    def freeze(self, agent: str, ability: str, reason: str, who: str | None, *, partial: bool) -> FreezeReport:
        """Put a freeze in force, durably; raises `BindingError` (``FREEZE_REFUSED``), `LedgerError`.

        A target that is frozen for the same reason stays as it is; for another reason the freeze is one more. With
        *partial* it is put in force although some sessions do not check it.
        """
        _check_reason(reason)
        by, key = self._signer(who)
        with _hold(self.document.lock(_CHANGES)):
            sessions = read_open_sessions(self.state)
            not_covered = list(find_uncovered(self.state, sessions, self.charters))
            self._refuse_uncovered(not_covered, partial=partial)
            self._record_charter()
            self._refuse_unknown(agent, ability, sessions)
            state = self._state()
            new = Freeze(new_id(), agent, ability, recordable(reason), by, timestamp(time.time()))
            freeze = next((each for each in state.freezes if each.is_same_as(new)), new)
            others = [each for each in state.freezes if each != freeze]
            if len(others) >= MAX_FREEZES:
                _refuse(f"{len(others)} freezes are in force, which is the most; lift some: deedbook thaw")
            state = self._next(state.number, [*others, freeze], by)
            statement = state.encode(key)
            self._write(statement)
            self._drain()
            running = [call for each in read_open_sessions(self.state) for call in each.running_calls(freeze)]
            ended = self._end_waiting(freeze)
            found = FreezeReport(freeze, running, ended, not_covered)
            told = {"running": running, "ended": ended, "not_covered": not_covered}
            self._record(FREEZE, state, statement, told)
        return found

    def thaw(self, name: str, who: str | None) -> Sequence[Freeze]:
        """Lift the freeze with the id *name*, or its beginning, or all of them if it is empty; return them."""
        by, key = self._signer(who)
        with _hold(self.document.lock(_CHANGES)):
            state = self._state()
            lifted = [each for each in state.freezes if each.id.startswith(name)]
            if name and len(lifted) != 1:
                known = ", ".join(f"{each.id[:8]} ({each.target})" for each in state.freezes) or "none"
                _refuse(f"{len(lifted)} freezes begin with {name!r}. In force: {known}")
            if not lifted and not self.status().unsound:
                return ()
            left = [each for each in state.freezes if each not in lifted]
            state = self._next(state.number, left, by)
            statement = state.encode(key)
            self._record(THAW, state, statement, {"lifted": [each.as_json() for each in lifted]})
            self._write(statement)
        return lifted

    # --- steps --------------------------------------------------------------------------------------------------------

    def _write(self, statement: str) -> None:
        self.document.write(statement)

    def _drain(self) -> None:
        """Wait until every call that checked before has recorded its intent; raises `LedgerError`."""
        try:
            with self.document.lock():
                pass
        except LedgerError:
            why = (
                "the freeze is in force for every later call, but a process is still recording a call that began "
                "before: it is stopped, or its disk does not answer. "
                f"{describe_lock_holders(self.document.lock_file)}, and run the same command again"
            )
            raise LedgerError(fault("FREEZE_REFUSED", why, retryable=True)) from None

    def _end_waiting(self, freeze: Freeze) -> list[str]:
        """Withdraw the requests for a person's decision that *freeze* covers; return their ids."""
        try:
            waiting = ApprovalQueue.of(Path(self.state.path))
        except FileNotFoundError:
            return []
        with waiting:
            now = timestamp(time.time())
            found = [each.id for each in waiting if each.state(now) in OPEN and _covers(freeze, each.requested.payload)]
        withdraw(self.ledger, found, recordable(f"{freeze}; lift it with: deedbook thaw"))
        return found

    def _record(self, event_type: str, state: FreezeState, statement: str, more: Object) -> None:
        freezes = [each.as_json() for each in state.freezes]
        payload = {"number": state.number, "freezes": freezes, "by": state.by, "statement": statement, **more}
        raw = canonical.encode_payload(payload)
        entry = Entry(label(event_type, "user", state.by), self.ledger.span(), self.ledger.root, raw)
        self.ledger.append([entry], durable=True)

    def _record_charter(self) -> None:
        """Open the workspace once if its last charter lacks the feature: a charter declares the events of freezes."""
        current = self.charters.current()
        if not self.notes and not (current and self.charters.has_feature(current.digest)):
            open_kernel(self.workspace.root).close()

    # --- what is known ------------------------------------------------------------------------------------------------

    def _state(self) -> FreezeState:
        """Return the freezes in force; where the document is not sound, those that are recorded."""
        try:
            return self.document.read()
        except FreezeInvalid:
            number = self.document.recorded.number
            return FreezeState(self.ledger.session_id, number, tuple(self._recorded_freezes()))

    def _recorded_freezes(self) -> list[Freeze]:
        try:
            return [Freeze.parse(row) for row in self.document.recorded.newest.get("freezes", ())]
        except FreezeInvalid:  # sealed, or excised
            return []

    def _next(self, number: int, freezes: Sequence[Freeze], by: str) -> FreezeState:
        newest = max(number, self.document.recorded.number) + 1
        return FreezeState(self.ledger.session_id, newest, tuple(freezes), by, timestamp(time.time()))

    def _signer(self, who: str | None) -> tuple[str, SigningKey | None]:
        """Return the principal that acts, and its key where approvers have keys; raises `DeedbookError`."""
        known = approvers(self.principals)
        if not known:
            if who is not None and who not in self.principals:
                _refuse(f"no principal {who!r} is declared{suggest(who, self.principals)}")
            return who or LOCAL.id, None
        ring = KeyRing.of(os.environ)
        by = who or choose_approver(known, ring)
        return by, load_key(self.principals, by, ring)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _refuse_uncovered(self, not_covered: Sequence[str], *, partial: bool) -> None:
        if not_covered and not partial:
            why = f"{len(not_covered)} of what is open was started without deedbook-operate and would go on"
            todo = "End it, or freeze the rest with --partial"
            _refuse(f"{why}: {', '.join(not_covered)}. {todo}")

    def _refuse_unknown(self, agent: str, ability: str, sessions: Sequence[OpenSession]) -> None:
        """Refuse a target that nothing here has: a mistyped one would freeze nothing."""
        found = [self.charters.current(), *(self.charters.find(each.charter) for each in sessions if each.charter)]
        documents = [each.document for each in found if each is not None]
        if ability:
            names = {name for each in documents for name in each["abilities"]} | set(self.workspace.abilities)
            if not any(map(glob_test([ability]), names)):
                _refuse(f"no ability here is {ability!r}{suggest(ability, names)}")
        if agent:
            principals = {
                name for each in documents for name in (*each["principals"], *each["clients"], *each["roles"])
            }
            known = {LOCAL.id, PLAIN, *self.principals, *self.workspace.clients, *self.workspace.roles, *principals}
            known |= {who for each in sessions for who in each.principals if who}
            if agent not in known and f"{AGENT}{agent}" not in known and agent.removeprefix(AGENT) not in known:
                _refuse(f"no agent, role or principal here is {agent!r}{suggest(agent, known)}")


@contextmanager
def open_freezer(path: str) -> Iterator[Freezer]:
    """Open the workspace at *path* for a freeze, even if its settings cannot be read; raises `DeedbookError`."""
    workspace, notes = read_leniently(path)
    with _hold(open_own_ledger(workspace)) as ledger, Folder.at(workspace.state) as state:
        charters = Charters(state)
        if notes:
            current = charters.current()
            principals: Mapping[str, Any] = current.document["principals"] if current else {}
        else:
            sources = workspace.principals.items()
            principals = {name: {"roles": each.roles, "key": each.key} for name, each in sources}
        document = FreezeDocument(state, ledger.session_id, approvers(principals))
        try:
            yield Freezer(workspace, notes, state, ledger, document, charters, principals)
        finally:
            document.close()


@contextmanager
def _hold(lock: AbstractContextManager[T]) -> Iterator[T]:
    """Hold *lock*; if it does not become free, the error says that no freeze was changed, and which process has it."""
    with ExitStack() as held:
        try:
            found = held.enter_context(lock)
        except LedgerError as problem:
            if problem.error.code != "LEDGER_LOCKED" or problem.error.place is None:
                raise
            todo = describe_lock_holders(Path(problem.error.place))
            why = f"no freeze was changed, because another process is writing here and does not end. {todo}, and repeat"
            raise LedgerError(attrs.evolve(problem.error, message=why)) from None
        yield found


def _covers(freeze: Freeze, request: Mapping[str, Any]) -> bool:
    """Return whether *freeze* covers the call of a *request*; parts that are sealed count as covered."""
    who, name = request.get("principal"), request.get("name")
    principals = [who.get("id"), who.get("on_behalf_of")] if isinstance(who, dict) and "id" in who else [freeze.agent]
    return freeze.covers(principals, name if isinstance(name, str) else freeze.ability)


def _check_reason(reason: str) -> None:
    if not reason.strip() or len(reason) > MAX_REASON:
        raise BindingError(fault("USAGE", f"a reason has 1 to {MAX_REASON} characters", place="--reason"))


def _refuse(why: str) -> NoReturn:
    raise BindingError(fault("FREEZE_REFUSED", plain(why)))
