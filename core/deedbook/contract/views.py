"""What features see of the kernel: the members of its objects that a feature may use.

The kernel passes its own objects; each has more members than its view, and those may change at any time.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from .plugins import Effects, Json, Object, Principal


class CallerView(Protocol):
    """The caller of a call: its *principal*, and its position in a run."""

    @property
    def principal(self) -> Principal:
        """The principal that calls."""

    @property
    def role(self) -> str | None:
        """The role of a run that calls, if one does."""

    @property
    def skill(self) -> str | None:
        """The skill in force, if there is one."""

    @property
    def depth(self) -> int:
        """How many calls this one is nested in."""

    @property
    def run(self) -> str | None:
        """The span of the flow's call that it acts for, if there is one."""

    @property
    def mode(self) -> str:
        """The mode of the session (`deedbook.contract.MODES`)."""


class AbilityView(Protocol):
    """An ability of the charter."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def kind(self) -> str:
        """``tool``, ``model``, ``flow`` or ``memory``."""

    @property
    def effects(self) -> Effects:
        """What its calls change."""


class TicketView(Protocol):
    """A call whose intent is recorded."""

    @property
    def bound(self) -> AbilityView:
        """The ability."""

    @property
    def caller(self) -> CallerView:
        """The caller."""

    @property
    def span(self) -> str:
        """The span of its intent."""

    @property
    def session(self) -> str:
        """The id of its session."""


class OutcomeView(Protocol):
    """The recorded outcome of a call."""

    @property
    def end(self) -> str:
        """``result``, ``failed``, ``cancelled``, ``timed_out`` or ``unknown``."""

    @property
    def value(self) -> Json:
        """The result; ``None`` without one."""


class LedgerView(Protocol):
    """A ledger: of a session, or of the workspace."""

    @property
    def session_id(self) -> str:
        """The id of the session, or of the workspace's ledger."""

    @property
    def place(self) -> str:
        """The path of its file."""

    @property
    def size(self) -> int:
        """The number of its events."""

    def now(self) -> str:
        """Return the time that the next event would have, in UTC."""


class StateView(Protocol):
    """The open state folder."""

    @property
    def path(self) -> str:
        """Where it is."""


class SiteView(Protocol):
    """Where a workspace is."""

    @property
    def root(self) -> Path:
        """The folder that has ``.system``."""


class KernelView(Protocol):
    """An open workspace."""

    @property
    def site(self) -> SiteView:
        """Where the workspace is."""

    @property
    def state(self) -> StateView:
        """The state folder."""

    @property
    def ledger(self) -> LedgerView:
        """The workspace ledger."""

    @property
    def resources(self) -> ExitStack:
        """What is released when the kernel is closed."""


class SessionView(Protocol):
    """A session."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def ledger(self) -> LedgerView:
        """Its ledger."""

    def record(self, event_type: str, payload: Object) -> str:
        """Record an event of a type that the feature declares; return its span."""


class WorkspaceView(Protocol):
    """A workspace as read from its files; no kernel is open."""

    @property
    def root(self) -> Path:
        """The folder that has ``.system``."""

    @property
    def state(self) -> Path:
        """Where the state folder is, if there is one yet."""


class ErrorView(Protocol):
    """An error of the kernel (`deedbook.format.errors.DomainError`)."""

    @property
    def code(self) -> str:
        """Its stable code."""

    @property
    def message(self) -> str:
        """What is wrong, and what to do."""


class ClientView(Protocol):
    """A client that the workspace declares under ``agents:``."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str | None:
        """The kind of coding agent, if its name is none."""

    @property
    def tools(self) -> Mapping[str, Object]:
        """The declarations of its tools, by name."""


class DeclarationView(Protocol):
    """A definition that a feature made: a `deedbook.workspace.declarations.AbilitySource`."""

    @property
    def id(self) -> str:
        """Its id."""


class TreeView(Protocol):
    """A folder with the layout of ``.system`` (`deedbook.workspace.trees.SourceTree`)."""

    @property
    def base(self) -> str:
        """Where it begins."""

    @property
    def label(self) -> str:
        """What precedes its paths in messages; empty for the workspace's own."""


class ReaderView(Protocol):
    """Reads the files of trees, and collects their faults (`deedbook.workspace.trees.SourceReader`)."""

    @property
    def faults(self) -> Sequence[ErrorView]:
        """The faults so far."""

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of every file that was read from the workspace's own tree, by its path."""


class DocumentView(Protocol):
    """A YAML file with the places of its values (`deedbook.workspace.documents.Document`)."""

    @property
    def value(self) -> Json:
        """What it says."""


class SectionView(Protocol):
    """What a feature read (`deedbook.workspace.declarations.FeatureSection`)."""

    def trigger_names(self) -> Iterable[str]:
        """Return the names that words of prompts lead to."""
