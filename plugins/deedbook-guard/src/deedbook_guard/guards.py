"""One object for a program: finds the workspace, begins conversations, and governs functions."""

import os
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, ParamSpec, Self, TypeVar, cast

from deedbook.format.errors import BindingError, DeedbookError, fault, recordable
from deedbook.policy.match import EFFECTS

from .adoption.programs import note_guard, refuse_session
from .conversation import Conversation, Fits, current
from .faults import FaultReport
from .parameters import Parameters
from .workspaces import OPEN, choose_workspace, find_or_create, open_client

NO_POLICY: Final = "no policy in force"
"""What the ledger of a conversation says if its workspace has no policy."""
P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """The governed tools of one program; `guard` makes it. May be shared between threads and tasks.

    *agent* is its name under ``agents:``. A call belongs to the conversation of its context, otherwise to one that
    begins with the first such call and ends with the process, or with `close`. *wait* is how many seconds a call
    waits for a person's answer.
    """

    def __init__(self, agent: str, root: Path, *, profile: str | None = None, wait: float = 0.0) -> None:
        self.agent = agent
        self.workspace = root
        self._profile, self._wait = profile, wait
        self._conversations: set[Conversation] = set()
        self._default: tuple[int, Conversation] | None = None
        self._lock = threading.RLock()
        self._faults = FaultReport(agent)
        self._open()

    def _open(self) -> None:
        """Check the declaration of the program; raises `DeedbookError`."""
        open_client(OPEN.kernel(self.workspace, self._profile), self.agent)

    def conversation(self, purpose: str = "") -> Conversation:
        """Begin a conversation: a session of its own. Use it with ``with``, or end it."""
        with self._faults:
            return self._begin(purpose)

    def _begin(self, purpose: str) -> Conversation:
        kernel = OPEN.kernel(self.workspace, self._profile)
        document = kernel.bindings.charter.document
        session = kernel.session(principal=open_client(kernel, self.agent), wait=self._wait)
        said = {"purpose": recordable(purpose)} if purpose else {}
        if not document["policies"]:
            said["policy"] = NO_POLICY
        unknown = str(document["clients"][self.agent]["unknown_tools"])
        begun = Conversation(session, self.agent, unknown=unknown, faults=self._faults)
        OPEN.remember(begun)
        begun.note("Conversation", said)
        with self._lock:
            self._conversations = {each for each in self._conversations if not each.session.ended} | {begun}
        return begun

    @property
    def current(self) -> Conversation:
        """The conversation that a call belongs to now."""
        found = current(self._is_own)
        if found is not None:
            return found
        with self._lock:
            if self._default is None or self._default[0] != os.getpid() or self._default[1].session.ended:
                self._default = (os.getpid(), self.conversation())
            return self._default[1]

    def _is_own(self, conversation: Conversation) -> bool:
        return conversation in self._conversations

    def call(
        self,
        name: str,
        args: Mapping[str, Any],
        perform: Callable[[dict[str, Any]], Any],
        *,
        fits: Fits | None = None,
    ) -> Any:
        """Call the tool *name* in the current conversation; see `Conversation.call`."""
        return self.current.call(name, args, perform, fits=fits)

    async def acall(
        self,
        name: str,
        args: Mapping[str, Any],
        perform: Callable[[dict[str, Any]], Any],
        *,
        fits: Fits | None = None,
    ) -> Any:
        """Act like `call`, from a coroutine."""
        return await self.current.acall(name, args, perform, fits=fits)

    def tool(
        self, *, name: str | None = None, effects: Literal["none", "read", "write", "irreversible"] | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator that governs a function or a coroutine function.

        *effects* is what the tool can do at most; a workspace that declares less raises `BindingError`.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            tool = name or str(getattr(function, "__name__", ""))
            self._check(tool, effects)
            return _wrap(self, tool, function, Parameters.read(tool, function))

        return decorate

    def _check(self, tool: str, effects: str | None) -> None:
        if not tool:
            raise BindingError(fault("BINDING_INVALID", "the tool has no name of its own; give it one with name="))
        if effects is not None and effects not in EFFECTS:
            raise BindingError(fault("BINDING_INVALID", f"tool {tool!r}: effects {effects!r} is none of {EFFECTS}"))
        entry = self._find_declaration(tool)
        if effects is not None and entry and EFFECTS.index(entry["effects"]) < EFFECTS.index(effects):
            said = f"the program says effects {effects} and the workspace {entry['effects']}"
            raise BindingError(
                fault("BINDING_INVALID", f"tool {tool!r}: {said}; raise it in the workspace", place=entry.get("place"))
            )

    def _find_declaration(self, tool: str) -> Any:
        """Return the charter's entry of a tool, if the workspace declares it."""
        return OPEN.kernel(self.workspace, self._profile).bindings.entry_of(f"{self.agent}/{tool}")

    def close(self, reason: str = "done") -> None:
        """End every conversation that is still open, and raise the first error after the last one."""
        with self._lock:
            left, self._conversations, self._default = self._conversations, set(), None
        problems = list[DeedbookError]()
        for each in left:
            try:
                each.end(reason)
            except DeedbookError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close("done" if kind is None else kind.__name__)


class ImportedGuard(Guard):
    """The guard of a program that ``deedbook adopt`` imports: no conversation begins, so no governed call runs."""

    def _open(self) -> None:
        """Open no workspace: the program may not be declared yet."""

    def conversation(self, purpose: str = "") -> NoReturn:  # noqa: ARG002 - refused
        """Refuse the conversation, and with it every call."""
        raise refuse_session(self.agent)

    def _find_declaration(self, tool: str) -> Any:  # noqa: ARG002 - nothing is declared here
        return None


def guard(
    agent: str,
    *,
    workspace: str | os.PathLike[str] | None = None,
    state: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    wait: float = 0.0,
) -> Guard:
    """Return the guard of the program *agent*, under the workspace at or above *workspace*.

    By default it is at or above the folder that ``DEEDBOOK_WORKSPACE`` names, otherwise this folder. A named workspace
    must exist. If none is named and this folder has none, one in which nothing is refused is created in the folder
    *state*, or in the user's own state folder (``$XDG_STATE_HOME/deedbook/AGENT``), and standard error says where.
    Raises `DeedbookError`.
    """
    try:
        named = choose_workspace(workspace)
        if note_guard(agent, named):
            return ImportedGuard(agent, Path.cwd(), profile=profile, wait=wait)
        root = find_or_create(agent, named, state)
        return Guard(agent, root, profile=profile, wait=wait)
    except DeedbookError as problem:  # the message has each fault's place: the traceback ends at the program's own line
        raise problem.with_traceback(None) from None


def _wrap(guard_: Guard, tool: str, function: Callable[P, T], parameters: Parameters) -> Callable[P, T]:
    if parameters.is_async:

        @wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            given = parameters.bind(acall, args, kwargs)
            return await guard_.acall(tool, given.by_name, given.apply, fits=given.misfit)

        return cast("Callable[P, T]", acall)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = parameters.bind(call, args, kwargs)
        made: T = guard_.call(tool, given.by_name, given.apply, fits=given.misfit)
        return made

    return call
