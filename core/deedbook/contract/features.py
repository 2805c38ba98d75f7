"""What a feature takes part in: the life of kernels and sessions, and what is done to finished ledgers.

A feature is neither a handler nor a gate. It is a class named by an entry point of the group ``deedbook.features``; the
name is that of its section in ``.system/deedbook.yaml``. It is made once for each kernel, without arguments, and
implements what it needs of `FeatureHooks`, each method marked with `featureimpl`. It acts in sessions only if the
charter has its section; removing and covering concern every installed feature. Private until 1.0.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import pluggy

PROJECT = "deedbook.features"
featurespec = pluggy.HookspecMarker(PROJECT)
featureimpl = pluggy.HookimplMarker(PROJECT)


class FeatureHooks:
    """Every method that a feature may have; each may name fewer arguments. *kernel* is a `deedbook.kernel.Kernel`."""

    @featurespec
    def client_abilities(self, client: Any) -> Iterable[Any]:
        """Return the abilities (`AbilitySource`) of a client that ``agents:`` declares: a coding agent's own tools."""
        raise NotImplementedError

    @featurespec
    def client_problems(self, client: Any) -> Iterable[tuple[str, str]]:
        """Return what is wrong with what ``agents:`` says of a client: a JSON pointer into it, and a message."""
        raise NotImplementedError

    @featurespec
    def before_effects(self, kernel: Any, ledger: Any, undo: ExitStack) -> Mapping[str, Callable[[Any], None]] | None:
        """Return what is called with a ticket before its effect begins, by the kind of effects, or ``None``.

        It is asked when a session is made, before the first line of its *ledger*. What is returned raises `LedgerError`
        to keep an effect from beginning. *undo* takes what has to be undone if the session does not begin.
        """

    @featurespec
    def session_prompted(self, kernel: Any, session: Any) -> None:
        """Do something once a prompt of the session is recorded; a failure is reported, and the session goes on."""

    @featurespec
    def session_ended(self, kernel: Any, session: Any) -> None:
        """Do something once ``session.end`` is recorded; a failure is reported, and the session has ended."""

    @featurespec
    def recovered(self, kernel: Any) -> None:
        """Do something once the sessions of dead processes were ended; a failure is reported."""

    @featurespec
    def kernel_closed(self, kernel: Any) -> None:
        """Stop what runs in the background, and give everything back."""

    @featurespec
    def ledger_extended(self, workspace: Any, name: str, report: Callable[[Any], None]) -> None:
        """Do something after lines were added to the finished ledger *name* (a session's id, or ``workspace``).

        *workspace* was read from its files; no kernel is open. *report* takes a `DomainError` that changes nothing.
        """

    @featurespec
    def examine(self, workspace: Any) -> Iterable[Any]:
        """Return checks (`deedbook.cli.health.Check`) for ``deedbook doctor``."""
        raise NotImplementedError

    @featurespec
    def before_lock(self, workspace: Any, yes: bool) -> bool:
        """Look at what stands outside the workspace's files before they are compiled; ``False`` stops the lock.

        *yes*: ask nobody, and accept what is other than before.
        """
        raise NotImplementedError

    @featurespec
    def payload_removed(self, state: Any, name: str) -> None:
        """Remove what was kept of the ledger *name* besides the ledger itself: a payload was taken out of a line.

        *state* is the state folder, held open. Raise whatever prevents it: the removal is then not reported as done.
        """

    @featurespec
    def pages_renewed(self, workspace: Any, name: str) -> None:
        """Write anew what was rendered from the ledger *name*, of which a payload was taken out."""
