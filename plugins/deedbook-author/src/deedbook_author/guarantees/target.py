"""The workspace under attack: an open kernel on a scratch copy, with inert effects, and calls to attack it with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import attrs

from deedbook.contract import Event, Principal
from deedbook.format.errors import DeedbookError, Err, Ok
from deedbook.format.reader import read
from deedbook.kernel import Kernel, open_kernel
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bound import DURABLE
from deedbook.policy.callers import AGENT
from deedbook.policy.kinds import KINDS
from deedbook.sessions.session import Session
from deedbook_author.guarantees.candidates import JudgedCall, judge_candidates

from .attacks import NotApplicable
from .inert import Change, InertEffects, make_inert
from .rival import RivalReport, start_rival
from .scratch import Scratch

PERFORMED: Final = ("tool", "memory")
"""The kinds of abilities whose handler can be replaced by one function."""
NOTHING_ALLOWED: Final = "no call of a tool could be built that this workspace allows by itself"
_MOST_TRIES: Final = 24


@attrs.frozen
class Attempt:
    """A call that was made: its *result*, the *events* that the session recorded for it, and the effects *begun*."""

    result: Ok[Any] | Err
    events: tuple[Event, ...]
    begun: int

    @property
    def code(self) -> str:
        """The error's code; empty if there is none."""
        return self.result.error.code if isinstance(self.result, Err) else ""

    @property
    def place(self) -> str:
        """The hook or rule that refused it; empty if there is none."""
        return (self.result.error.place or "") if isinstance(self.result, Err) else ""

    @property
    def intents(self) -> list[Event]:
        """The recorded intents."""
        types = {kind.intent for kind in KINDS.values()}
        return [event for event in self.events if event.type in types]

    @property
    def is_refused(self) -> bool:
        """Whether nothing was begun, and none of its intents recorded."""
        return isinstance(self.result, Err) and not self.begun and not self.intents

    def __str__(self) -> str:
        if isinstance(self.result, Ok):
            return "it was performed"
        return f"{self.result.error.code}: {self.result.error.message}"


class InertKernel:
    """An open kernel on a scratch copy, with inert effects."""

    def __init__(self, kernel: Kernel, effects: InertEffects) -> None:
        self.kernel = kernel
        self.effects = effects

    @contextmanager
    def session(self, principal: str = "local", **how: Any) -> Iterator[Session]:
        """Begin a session of a principal, declared or not."""
        who: Any = Principal(principal, "python")
        if principal.startswith(AGENT):
            who = self.kernel.client(principal.removeprefix(AGENT), via="python")
        elif principal in self.kernel.bindings.charter.document["principals"]:
            who = self.kernel.principal(principal)
        with self.kernel.session(principal=who, **how) as session:
            yield session

    def attempt(self, ability: str, args: Any, principal: str = "local") -> Attempt:
        """Make a call in a session of its own."""
        with self.session(principal) as session:
            return self.attempt_in(session, ability, args)

    def attempt_in(self, session: Session, ability: str, args: Any) -> Attempt:
        """Make a call in *session*."""
        place, effects = Path(session.ledger.place), len(self.effects.begun)
        before = sum(1 for _ in read(place))
        result = session.call(ability, args)
        return Attempt(result, tuple(read(place))[before:], len(self.effects.begun) - effects)


class Target:
    """A workspace under attack. *secrets* are the values that stand for the real ones, by name.

    *silence*: hooks in processes of their own are not asked.
    """

    def __init__(
        self, scratch: Scratch, catalogue: Catalogue, secrets: Mapping[str, str], *, silence: bool = False
    ) -> None:
        self.scratch = scratch
        self.catalogue = catalogue
        self.secrets = secrets
        self.silence = silence
        self.workspace = scratch.original.workspace
        self._held = ExitStack()
        self._copies = 0
        self._shared: dict[str, InertKernel] = {}
        self._verified: tuple[bool, str] | None = None

    def close(self) -> None:
        """Close every kernel."""
        self._held.close()

    # --- copies -------------------------------------------------------------------------------------------------------

    def variant(self) -> Scratch:
        """Return another copy of the workspace."""
        self._copies += 1
        return self.scratch.variant(str(self._copies))

    def open(self, scratch: Scratch, change: Change | None = None) -> InertKernel:
        """Open a copy with inert effects; the target closes it. Raises `DeedbookError`."""
        kernel = self._held.enter_context(_close_after(self.open_raw(scratch)))
        return self.reopen(kernel, change)

    def reopen(self, kernel: Kernel, change: Change | None = None) -> InertKernel:
        """Return an open *kernel* with inert effects; *change* is applied to each ability."""
        return InertKernel(*make_inert(kernel, *([change] if change else []), silence=self.silence))

    def open_raw(self, scratch: Scratch, catalogue: Catalogue | None = None) -> Kernel:
        """Open a copy as a start does; the caller closes it."""
        return open_kernel(scratch.root, profile=scratch.original.profile, catalogue=catalogue or self.catalogue)

    def open_once(self, name: str, make: "Callable[[Target], InertKernel]") -> InertKernel:
        """Return the copy that *make* opens, made once for all attacks that use that *name*."""
        if name not in self._shared:
            self._shared[name] = make(self)
        return self._shared[name]

    @cached_property
    def base(self) -> InertKernel:
        """The copy as it is."""
        return self.open(self.scratch)

    @property
    def document(self) -> Mapping[str, Any]:
        """The charter of the copy."""
        document: Mapping[str, Any] = self.base.kernel.bindings.charter.document
        return document

    # --- calls --------------------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> Sequence[JudgedCall]:
        """Calls of the workspace's abilities, each with what its policies decide about it."""
        return judge_candidates(self.scratch.root, self.scratch.original.profile, self.catalogue)

    @cached_property
    def denied_calls(self) -> Sequence[JudgedCall]:
        """Calls that policies deny."""
        return [call for call in self.calls if call.outcome == "deny"]

    @cached_property
    def asked_calls(self) -> Sequence[JudgedCall]:
        """Calls about which a person is asked."""
        return [call for call in self.calls if call.outcome == "ask" and call.kind in PERFORMED]

    @cached_property
    def allowed_call(self) -> JudgedCall:
        """A call that the door allows; raises `NotApplicable` if none is found."""
        return self._first_allowed(self.calls)

    @cached_property
    def allowed_write_call(self) -> JudgedCall:
        """A call with an effect outside that the door allows; raises `NotApplicable` if none is found."""
        return self._first_allowed([call for call in self.calls if call.effects in DURABLE])

    @cached_property
    def call(self) -> JudgedCall:
        """A call that is allowed, or waits for a person; raises `NotApplicable` if none is found."""
        with suppress(NotApplicable):
            return self.allowed_call
        for call in self.asked_calls:
            if self.base.attempt(call.ability, call.args, call.principal).code == "NEEDS_HUMAN":
                return call
        raise NotApplicable("no call of a tool could be built that this workspace does not deny")

    def why_not(self, find: Callable[[], object]) -> str:
        """Return why *find* raises `NotApplicable`; empty if it does not."""
        try:
            find()
        except NotApplicable as problem:
            return str(problem)
        return ""

    def _first_allowed(self, calls: Sequence[JudgedCall]) -> JudgedCall:
        likely = [call for call in calls if call.kind in PERFORMED and call.outcome in ("allow", "")]
        likely.sort(key=lambda call: call.outcome == "")
        for call in likely[:_MOST_TRIES]:
            if self.base.attempt(call.ability, call.args, call.principal).begun:
                return call
        raise NotApplicable(NOTHING_ALLOWED)

    # --- other processes ----------------------------------------------------------------------------------------------

    @cached_property
    def rival(self) -> RivalReport:
        """What another process reports that tries to write an open session, and then is killed within a call."""
        with self.base.session() as session:
            kill = not self.why_not(lambda: self.allowed_call)
            task = {"locked": str(Path(session.ledger.place).parent), "kill": kill}
            with start_rival(self, self.scratch, task) as rival:
                return rival.finish()

    # --- records ------------------------------------------------------------------------------------------------------

    def verify_once(self, verify: Callable[[Path], tuple[bool, str]]) -> tuple[bool, str]:
        """Return what *verify* says of the unchanged records; it is asked once."""
        if self._verified is None:
            self._verified = verify(self.record.state)
        return self._verified

    @cached_property
    def record(self) -> "Record":
        """The state folder after a few finished sessions of a copy of its own."""
        copy = self.variant()
        opened = self.open(copy)
        with opened.session() as session:
            for call in self.calls[:3]:
                opened.attempt_in(session, call.ability, call.args)
            opened.attempt_in(session, "guarantees/unknown", {"text": "recorded"})
        with opened.session() as other:
            opened.attempt_in(other, "guarantees/unknown", {"text": "another"})
        return Record(self, copy.state, session.id, other.id)


@attrs.frozen
class Record:
    """A state folder with two finished sessions, of which each attack changes a copy."""

    target: Target
    state: Path
    session: str
    other: str

    def copy(self) -> "Record":
        """Return a copy that may be changed."""
        self.target._copies += 1  # noqa: SLF001 - copies share the target's names
        place = self.target.scratch.root.with_name(f"{self.target.scratch.root.name}-state-{self.target._copies}")  # noqa: SLF001
        copytree(self.state, place)
        return attrs.evolve(self, state=place)

    def ledger(self, session: str = "") -> Path:
        """Return the path of a session's ledger."""
        return self.state / "sessions" / (session or self.session) / self._name

    @property
    def workspace_ledger(self) -> Path:
        """The path of the workspace ledger."""
        return self.state / "workspace" / self._name

    @property
    def _name(self) -> str:
        return ".events.jsonl"


@contextmanager
def _close_after(kernel: Kernel) -> Iterator[Kernel]:
    try:
        yield kernel
    finally:
        with suppress(DeedbookError, OSError):
            kernel.close()
