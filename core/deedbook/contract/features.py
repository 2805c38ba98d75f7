"""The contract of features: plugins that take part in the life of kernels and sessions.

A feature is neither a handler nor a gate. It is a class named by an entry point of the group ``deedbook.features``. The
kernel makes it once, without arguments, and calls those methods of `FeatureHooks` that it implements, each marked with
`featureimpl`. A feature acts in sessions only if the workspace names it under ``features:``, or in a section of its own
for Deedbook's own features; the charter then pins its code. Removing payloads and examining a workspace concern every
installed feature. Private until 1.0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import attrs
import pluggy

from .plugins import Call, Decision, EventType, Failed, Object, Outcome, Routes

if TYPE_CHECKING:
    from .views import (
        CallerView,
        ClientView,
        DeclarationView,
        DocumentView,
        ErrorView,
        KernelView,
        LedgerView,
        OutcomeView,
        ReaderView,
        SectionView,
        SessionView,
        StateView,
        TicketView,
        TreeView,
        WorkspaceView,
    )

PROJECT = "deedbook.features"
featurespec = pluggy.HookspecMarker(PROJECT)
featureimpl = pluggy.HookimplMarker(PROJECT)

_MOST_FAULTS: Final = 20
"""The most faults of one kind that ``deedbook doctor`` lists."""


@attrs.frozen(kw_only=True)
class FeatureSpec:
    """What a feature declares, as the attribute ``spec`` of its class; a class without one declares nothing.

    *settings* is the JSON Schema of its section in YAML (``features: {NAME: …}``). *records* has the event types that
    it records with `Session.record`; their names begin with ``x.`` and the feature's name. *facts* has the facts that
    it offers to gates (`FeatureHooks.session_facts`), each with its JSON Schema; their names are the feature's name, a
    dot, and a name. A policy or hook that reads one activates the feature. *blocking*: its functions that are asked
    about calls may take longer than some microseconds, so asynchronous calls ask them on another thread.
    """

    settings: Object = attrs.field(factory=lambda: {"type": "object", "additionalProperties": False})
    records: Mapping[str, EventType] = attrs.field(factory=dict)
    facts: Mapping[str, Object] = attrs.field(factory=dict)
    blocking: bool = True


class FactsChanged(Exception):  # noqa: N818 - a state, not an error of the caller
    """Raised by a function of `before_intents`: the facts that allowed the call have changed, so it is judged again."""


class CallPrevented(Failed):
    """Raised by a function of `judge_calls`, `before_intents` or `around_intents`: the call is denied.

    The denial is recorded with the code and the message of this error, and names the feature. The *code* is in capital
    letters, and none of the kernel's own for anything else than a denial.
    """


@attrs.frozen(kw_only=True, slots=False)
class AllowedCall:
    """A call that was allowed, before its intent is recorded.

    *call* is the call as gates saw it, with its arguments (``call.args``), without facts and not to be changed. *span*
    will be that of the intent. *answers* are the outcomes of the policies that were asked, by id: another one than
    ``allow`` was overruled by a person's approval or by ``enforcement: observe``, or is the ``ask`` for which a person
    is to be asked now.
    """

    caller: "CallerView"
    span: str
    answers: Mapping[str, Outcome]
    _build: Callable[[], Call]

    @cached_property
    def call(self) -> Call:
        """The call, with its arguments: built when a feature first looks at it."""
        return self._build()


@attrs.frozen
class Check:
    """A check of ``deedbook doctor``: its *name* and *level*, what was *found*, and how to *fix* what is wrong."""

    name: str
    level: Literal["ok", "note", "fault"]
    found: str
    fix: str = ""


def first_faults(faults: Sequence[Check]) -> Iterator[Check]:
    """Yield the first of many faults of one kind, and the number of the others."""
    yield from faults[:_MOST_FAULTS]
    if (more := len(faults) - _MOST_FAULTS) > 0:
        yield Check(faults[0].name, "fault", f"{more} more faults of this kind", "deedbook verify")


class FeatureHooks:
    """Every method that a feature may implement. A method may take fewer arguments.

    `views` has the types of what the kernel passes. *settings* is the feature's own section under ``features:`` as the
    charter has it, an empty object where there is none.
    """

    @featurespec
    def client_abilities(self, client: "ClientView") -> "Iterable[DeclarationView]":
        """Return the abilities (`AbilitySource`) of a client declared under ``agents:``: a coding agent's own tools."""
        raise NotImplementedError

    @featurespec
    def client_problems(self, client: "ClientView") -> Iterable[tuple[str, str]]:
        """Return the problems of a client's section under ``agents:``, each as JSON pointer and message."""
        raise NotImplementedError

    @featurespec
    def read_section(
        self,
        reader: "ReaderView",
        tree: "TreeView",
        document: "DocumentView | None",
        roots: Sequence[str],
        packs: "Sequence[TreeView]",
    ) -> "SectionView":
        """Read the section of the feature's name and its files in ``.system`` (``known/sections.json`` lists both).

        *reader* reads files of *tree* and collects faults, *document* is ``deedbook.yaml``, or ``None``.
        *roots* are the folders under the feature's name in ``roots:``, *packs* the trees of the activated packs.
        Return a `deedbook.workspace.declarations.FeatureSection`: abilities, policies, skills, and the member of the
        charter.
        """
        raise NotImplementedError

    @featurespec
    def rank_routes(self, data: Object) -> Routes:
        """Return the targets for prompts that `Host.catalogue` gives to hooks.

        *data* is what `deedbook.policy.callers.route_data` returns.
        """
        raise NotImplementedError

    @featurespec
    def before_effects(
        self, kernel: "KernelView", ledger: "LedgerView", undo: ExitStack, settings: Object
    ) -> "Mapping[str, Callable[[TicketView], None]] | None":
        """Return functions to call with a ticket before an effect begins, by the kind of effects, or ``None``.

        Called when a session is created, before the first line of its *ledger*. A returned function raises
        `LedgerError` to prevent an effect. *undo* collects what to undo if the session does not start.
        """

    @featurespec
    def session_facts(
        self, kernel: "KernelView", ledger: "LedgerView", settings: Object
    ) -> "Mapping[str, Callable[[CallerView], Object]] | None":
        """Return functions that read the facts of `FeatureSpec.facts`, by name, or ``None``.

        Called when a session is created, before the first line of its *ledger*. A function is called with the caller
        of each call whose gates read the fact, and returns an object; an empty one says that nothing is known yet. The
        object is recorded with the decision.
        """

    @featurespec
    def judge_calls(
        self, kernel: "KernelView", ledger: "LedgerView", settings: Object
    ) -> Callable[[AllowedCall], Decision] | None:
        """Return a function that decides about each call that no gate denies, or ``None``.

        Called when a session is created, before the first line of its *ledger*. The function returns ``allow()`` or
        ``deny(reason)``, or raises `CallPrevented` to deny with a code of its own; any other answer and any other error
        denies. It is asked before the intent is recorded and before a person is asked, and again when the person has
        approved. It may be asked about a call that does not begin: use `before_intents` to count.
        """

    @featurespec
    def before_intents(
        self, kernel: "KernelView", ledger: "LedgerView", settings: Object
    ) -> "Callable[[AllowedCall], Callable[[OutcomeView | None], None] | None] | None":
        """Return a function to call with each `AllowedCall` whose intent comes next, or ``None``.

        Called when a session is created, before the first line of its *ledger*. The function raises `CallPrevented` to
        deny the call, `FactsChanged` if the call must be judged again, with the facts as they are now, and
        `LedgerError` if nothing can be recorded; any other error denies the call. What it returns, if anything, is
        called once: with the outcome after this is recorded, or with ``None`` if the call did not begin. It is not
        called for a call whose outcome is lost.
        """

    @featurespec
    def around_intents(
        self, kernel: "KernelView", ledger: "LedgerView", settings: Object
    ) -> Callable[[AllowedCall], AbstractContextManager[object]] | None:
        """Return a function to call with each call that no gate denies, or ``None``.

        Called when a session is created, before the first line of its *ledger*. The function returns a context manager,
        or raises `CallPrevented`, as entering may, to deny the call; any other error denies it too. It is left when the
        intent is recorded and, for effects, durable, or when the request for a person's decision is. Nothing else may
        happen inside: it is entered again when the call is judged again.
        """

    @featurespec
    def session_prompted(self, kernel: "KernelView", session: "SessionView", settings: Object) -> None:
        """Act after a prompt of the session is recorded; a failure is reported, and the session continues."""

    @featurespec
    def session_ending(self, kernel: "KernelView", session: "SessionView", settings: Object) -> None:
        """Act before ``session.end`` is recorded; the feature may still record events of its own.

        A failure is reported, and the session ends all the same. Not called for a session whose process died.
        """

    @featurespec
    def session_ended(self, kernel: "KernelView", session: "SessionView", settings: Object) -> None:
        """Act after ``session.end`` is recorded; a failure is reported."""

    @featurespec
    def sessions_recovered(self, kernel: "KernelView", settings: Object) -> None:
        """Act after the sessions of dead processes are ended; a failure is reported."""

    @featurespec
    def kernel_closed(self, kernel: "KernelView", settings: Object) -> None:
        """Stop background work and release everything."""

    @featurespec
    def ledger_extended(self, workspace: "WorkspaceView", name: str, report: "Callable[[ErrorView], None]") -> None:
        """Act after lines were added to the finished ledger *name* (a session's id, or ``workspace``).

        *workspace* was read from its files; no kernel is open. *report* takes an error that changes nothing.
        """

    @featurespec
    def examine(self, workspace: "WorkspaceView") -> Iterable[Check]:
        """Return checks for ``deedbook doctor``."""
        raise NotImplementedError

    @featurespec
    def before_lock(self, workspace: "WorkspaceView", yes: bool) -> bool:
        """Check state outside the workspace's files before they are compiled; ``False`` stops the lock.

        *yes*: accept changes without asking.
        """
        raise NotImplementedError

    @featurespec
    def payload_removed(self, state: "StateView", name: str) -> None:
        """Remove copies of the payloads of the ledger *name*, because a payload was removed from a line.

        *state* is the open state folder. Raise an error if that fails: the removal is then not reported as done.
        """

    @featurespec
    def pages_renewed(self, workspace: "WorkspaceView", name: str) -> None:
        """Render again everything that was rendered from the ledger *name*, from which a payload was removed."""
