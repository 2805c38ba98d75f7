"""What can go wrong, and how it is said.

A failure of the domain (a denial, a violation, a conflict) is a *value*: ``Err(DomainError)``.
An exception means that the kernel cannot do what it was asked to do at all, and carries the same values::

    DeedbookError              one or more DomainErrors
    ├── IntakeError            a value that can never be recorded (NaN, a lone surrogate, 65 levels)
    │   └── NotJsonError       text that is no JSON at all
    ├── FileRefused            a path that leads outside, through a link, or to no regular file
    ├── SchemaError            an unknown schema id, or a schema that the lint refuses
    ├── SourceError            a workspace file that is missing or wrong; has file, line, column
    ├── BindingError           a plugin, hook, policy or ability that cannot be frozen
    ├── SessionRefused         a hook refused a session, which has ended
    ├── LedgerError            the record cannot be written, or is not what it should be
    ├── SignatureError         a key or a signed note that is not what it should be
    ├── ApprovalError          a request that cannot be answered or performed, and what to do
    ├── TaskError              a task that cannot be run, changed or decided, and what to do
    └── MemoryRefused          a memory file that cannot be read, or must not be touched

Every code stands in `CODES`, with its kind and the exit status of the command line.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen
class Code:
    """One stable code: its kind, its exit status, and its meaning."""

    kind: str
    exit: int
    meaning: str


CODES: Mapping[str, Code] = MappingProxyType(
    {
        # gate: the door refused
        "TOOL_NOT_FOUND": Code("gate", 3, "no ability of that name is in the charter"),
        "TOOL_NOT_ALLOWED": Code("gate", 3, "the ability is outside the caller's scope"),
        "GATE_DENIED": Code("gate", 3, "a hook or a policy denied, failed, or answered late"),
        "ARGUMENTS_CHANGED": Code("gate", 3, "the arguments are no longer what was judged, so nothing ran"),
        "NEEDS_HUMAN": Code("gate", 3, "a person has to decide"),
        "FROZEN": Code("gate", 3, "a person has frozen calls, or the state of the freeze cannot be read"),
        "FREEZE_REFUSED": Code("gate", 1, "a freeze or a thaw cannot be put in force"),
        "PROMPT_DENIED": Code("gate", 3, "a hook refused the prompt"),
        "SESSION_DENIED": Code("gate", 3, "a hook refused the session"),
        "SKILL_DENIED": Code("gate", 3, "a hook refused the skill"),
        # schema: a value crossed a boundary in the wrong shape
        "SCHEMA_VIOLATION": Code("schema", 1, "a value does not fit its schema"),
        "SCHEMA_UNKNOWN": Code("schema", 1, "no schema has that id"),
        "SCHEMA_REFUSED": Code("schema", 1, "a schema uses what the lint refuses"),
        "MALFORMED_AGENT_MESSAGE": Code("schema", 1, "a role's message is not the JSON it has to be"),
        "INTAKE_REFUSED": Code("schema", 1, "JSON that cannot be read, or a value that cannot be recorded exactly"),
        # run: the effect was tried
        "TOOL_ERROR": Code("run", 1, "a handler raised"),
        "TOOL_TIMEOUT": Code("run", 1, "a handler passed its time limit"),
        "OUTPUT_TOO_LARGE": Code("run", 1, "a program wrote more than it may; it was killed"),
        "NOT_STARTED": Code("run", 1, "a program could not be started: none of that name, not executable, no folder"),
        "WORKER_BROKEN": Code("run", 1, "a program that is kept alive died, or answered with anything but one line"),
        "CANCELLED": Code("run", 130, "the call was cancelled"),
        "OUTCOME_UNKNOWN": Code("run", 1, "the call was begun and its outcome was lost"),
        "PROVIDER_ERROR": Code("run", 1, "a model provider failed"),
        "NO_RULE": Code("run", 1, "no rule of any skill fits the request"),
        "ARGUMENT_REFUSED": Code("run", 1, "a value would become something else than the value it is"),
        "PROCESS_FAILED": Code("run", 1, "a program ended with a status that is no success"),
        "OUTPUT_REFUSED": Code("run", 1, "what a program or a server said is not what was expected"),
        "HTTP_FAILED": Code("run", 1, "a server could not be asked, or its answer is no success"),
        "HTTP_REFUSED": Code("run", 1, "a request or an answer would lead where it must not"),
        "SEQUENCE_FAILED": Code("run", 1, "a pointer of a sequence leads nowhere in what its steps gave"),
        "MCP_UNAVAILABLE": Code("run", 1, "an MCP server cannot be started, reached or spoken with"),
        "MCP_DISCONNECTED": Code("run", 1, "the connection to an MCP server broke while it was used"),
        "MCP_TOOL_CHANGED": Code("run", 1, "an MCP server offers a tool that differs from the reviewed one"),
        "MCP_TOOL_FAILED": Code("run", 1, "a tool of an MCP server says that it failed"),
        "MCP_REFUSED": Code("run", 1, "an MCP server refused a request"),
        "MCP_REQUEST_REFUSED": Code("run", 1, "an MCP server wants an answer of a model or a person first"),
        "MCP_RESULT_INVALID": Code("run", 1, "what an MCP server answered is not what the protocol says"),
        "WRITE_CONFLICT": Code("lock", 1, "the file is not what the writer expected"),
        # source: a workspace file
        "WORKSPACE_NOT_FOUND": Code("source", 2, "no folder with .system/ here or above"),
        "WORKSPACE_UNTRUSTED": Code("source", 1, "others own or may write what would run code or decide here"),
        "SOURCE_INVALID": Code("source", 1, "a workspace file is not what its schema says"),
        "PATH_REFUSED": Code("source", 1, "a path leads outside the allowed roots, or through a link"),
        "STATE_REFUSED": Code("source", 1, "the state folder cannot be made, read or written"),
        "STATE_IN_USE": Code("source", 1, "the state folder belongs to another workspace"),
        # binding: sources and plugins do not fit together
        "PLUGIN_MISSING": Code("binding", 1, "no installed plugin offers that name"),
        "PLUGIN_BROKEN": Code("binding", 1, "a plugin does not load, or is not what its kind needs"),
        "BINDING_INVALID": Code("binding", 1, "an ability, hook or policy cannot be bound"),
        "NOT_AVAILABLE": Code("binding", 1, "declared by the design, not in this release"),
        "SECRET_MISSING": Code("binding", 1, "a declared secret has no value"),
        "CHARTER_CHANGED": Code("binding", 1, "the sources or plugins are not what the lock pins"),
        # ledger: the record
        "LEDGER_LOCKED": Code("ledger", 1, "another process writes this ledger"),
        "LEDGER_BROKEN": Code("ledger", 1, "the ledger cannot be written; reopen and verify it"),
        "LEDGER_UNSOUND": Code("ledger", 4, "the ledger is not what was written"),
        "SESSION_NOT_FOUND": Code("ledger", 2, "no session has that id"),
        "EVENT_NOT_FOUND": Code("ledger", 2, "no event of the session has that seq or span, or it is of another kind"),
        "CHECKPOINT_FAILED": Code("ledger", 3, "no checkpoint could be written that covers the call; it was not begun"),
        "KERNEL_CLOSED": Code("ledger", 1, "the kernel is closed; open the workspace again"),
        "SESSION_ENDED": Code("ledger", 1, "the session has ended"),
        "NOT_A_LEDGER": Code("ledger", 4, "a file is no ledger of any known form; nothing of it was checked"),
        "SESSION_NOT_NAMED": Code("ledger", 2, "a file holds several sessions, and none is named"),
        "IMPORT_REFUSED": Code("ledger", 4, "an old ledger is not sound, or not old; it was not taken in"),
        "BUNDLE_REFUSED": Code("ledger", 4, "a bundle cannot be read, was changed, or is not for this state folder"),
        "AMEND_REFUSED": Code("ledger", 2, "a recorded event cannot be corrected so"),
        "ERASE_REFUSED": Code("ledger", 2, "there is nothing sealed there that could be erased"),
        "EXCISE_REFUSED": Code("ledger", 2, "a payload that the ledger stands on is not taken out of it"),
        # forks: sessions that go on from another's past
        "FORK_REFUSED": Code("ledger", 1, "a session cannot be gone on from there: no such event, or an older form"),
        "FORK_DIVERGED": Code("ledger", 1, "a call differs from the past that is served; nothing more was done"),
        "FORK_INCOMPLETE": Code("ledger", 1, "what was recorded is gone: a sealed value, or a payload taken out"),
        "FORK_ENDED": Code("ledger", 1, "the past that is served is over, and nothing more was to be done"),
        # runs: flows that keep a context, and sessions that are resumed
        "RUN_ENDED": Code("run", 1, "a run ended FAILED or HALTED, for the reason in its context"),
        "FLOW_UNFINISHED": Code("run", 1, "a flow returned before its context had ended"),
        "RESUME_REFUSED": Code("ledger", 1, "a session has no open run that could go on"),
        "SESSION_HANDED_OVER": Code("ledger", 1, "the session was handed over; it goes on where its bundle was loaded"),
        "RESUME_CHARTER_CHANGED": Code("binding", 1, "another charter is in force than when the run was interrupted"),
        "RESUME_DIVERGED": Code("ledger", 1, "a resumed flow asked for something else than is recorded"),
        "RESUME_INCOMPLETE": Code("ledger", 1, "a recorded answer that a resumed flow needs is not there any more"),
        # approvals: what waits for a person, and the keys that people sign with
        "KEY_INVALID": Code("approval", 1, "a key is not in the form that keys have"),
        "KEY_REFUSED": Code("approval", 1, "a private key's file is missing, is there already, or is not kept safely"),
        "NOTE_INVALID": Code("approval", 1, "a signed note is not in the form that notes have"),
        "APPROVAL_NOT_FOUND": Code("approval", 2, "no request has that id"),
        "APPROVAL_NO_APPROVER": Code("approval", 3, "who answers is no principal with the role approver and a key"),
        "APPROVAL_WRONG_KEY": Code("approval", 3, "the key is not the one that the charter declares for the approver"),
        "APPROVAL_OWN_REQUEST": Code("approval", 3, "a person may not answer their own request"),
        "APPROVAL_EXPIRED": Code("approval", 3, "the request was not answered, or not performed, in time"),
        "APPROVAL_ANSWERED": Code("approval", 1, "the request was answered already"),
        "APPROVAL_WITHDRAWN": Code("approval", 3, "the request was withdrawn: by who asked, or by a freeze"),
        "APPROVAL_USED": Code("approval", 1, "the approved call was performed, or begun, already"),
        "APPROVAL_NOT_GRANTED": Code("approval", 3, "the request is not approved"),
        "APPROVAL_REFUSED": Code("approval", 3, "a person refused the call"),
        "APPROVAL_CHARTER_CHANGED": Code("approval", 1, "another charter is in force than when the request was made"),
        "APPROVAL_INCOMPLETE": Code(
            "approval", 1, "the record lacks what the call needs: a secret, or an erased value"
        ),
        "APPROVAL_FORGED": Code("approval", 4, "an answer is not what its approver signed for this request"),
        # witnesses and proofs
        "WITNESS_BUSY": Code("ledger", 1, "another process holds what the witness knows"),
        "WITNESS_UNREACHABLE": Code("ledger", 1, "a witness was not reached, or has not answered yet"),
        "WITNESS_STRANGER": Code("ledger", 1, "a witness does not serve this log, or does not know its key"),
        "WITNESS_INVALID": Code("ledger", 1, "what a witness answered is not what the protocol says"),
        "PROOF_UNAVAILABLE": Code("ledger", 1, "no checkpoint covers what is to be proved"),
        "WITNESS_REFUSED": Code("ledger", 4, "a witness has seen another history: rolled back, or forked"),
        # serving: the long-lived process and who asks it
        "NOTIFY_FAILED": Code("serving", 1, "a notification cannot be sent"),
        "RUNTIME_RUNNING": Code("serving", 1, "another process serves this workspace already"),
        "RUNTIME_UNREACHABLE": Code("serving", 1, "no process serves this workspace, or it went while it was asked"),
        "RUNTIME_ENDING": Code("serving", 1, "the process is ending; nothing new is begun"),
        "RUNTIME_BUSY": Code("serving", 1, "more is asked at once than is attended to"),
        "PEER_UNKNOWN": Code("serving", 3, "the user at the other end is no principal"),
        "METHOD_UNKNOWN": Code("serving", 2, "the runtime has no method of that name"),
        "MESSAGE_INVALID": Code("serving", 2, "a message is no request as JSON-RPC 2.0 and its schema have it"),
        "ACTION_UNKNOWN": Code("serving", 2, "there is no action of that name"),
        "ACTION_SKIPPED": Code("serving", 1, "an action that it waits for was not ok, or the answer is full"),
        "SESSION_NOT_YOURS": Code("serving", 3, "another principal opened the session"),
        "SESSION_BUSY": Code("serving", 1, "the session does something else"),
        "BATCH_INVALID": Code("serving", 2, "actions wait for each other in a circle, or for one that is not there"),
        "REQUEST_REUSED": Code("serving", 1, "an idempotency key came with another request than before"),
        # tasks: uses of abilities that are made first and run later
        "TASK_NOT_FOUND": Code("task", 2, "no task has that id"),
        "TASK_NOT_YOURS": Code("task", 3, "the task belongs to another principal"),
        "TASK_UNAVAILABLE": Code("task", 3, "a hook refused that the task is made; there is none"),
        "TASK_CHARTER_CHANGED": Code("task", 1, "another charter is in force than the task is bound to; update it"),
        "TASK_RUNNING": Code("task", 1, "the task runs now"),
        "TASK_UNKNOWN": Code("task", 1, "it is unknown whether the task had its effect; a person must decide"),
        "TASK_DECIDED": Code("task", 1, "there is nothing to decide about the task"),
        "TASK_ENDED": Code("task", 1, "the task has succeeded, or was deleted; nothing more is done with it"),
        "TASK_KEY_INVALID": Code("task", 2, "an idempotency key is not in the form that they have"),
        "TASK_KEY_REUSED": Code("task", 1, "an idempotency key came with another ability or input than before"),
        "TASK_INCOMPLETE": Code("task", 1, "the record lacks what the task needs: a secret, or an erased value"),
        # the bridge for coding agents
        "BRIDGE_INPUT": Code("bridge", 2, "a hook's input is not what the agent is known to send"),
        "BRIDGE_AGENT_UNKNOWN": Code("bridge", 2, "no coding agent of that name is declared under agents:"),
        "BRIDGE_SETTINGS": Code("bridge", 1, "an agent's settings file cannot be read, or not be changed safely"),
        "AGENT_TOOL_FAILED": Code("bridge", 1, "a tool of a coding agent failed, as the agent says"),
        "EFFECT_ELSEWHERE": Code("bridge", 1, "the effect of the ability is an agent's own; nothing is done here"),
        # memory: what is remembered from session to session
        "MEMORY_UNPROVEN": Code("memory", 3, "the provenance of a proposal is missing, or not so"),
        "MEMORY_FORBIDDEN": Code("memory", 3, "a proposal holds what must never enter memory"),
        "MEMORY_CONFLICT": Code("memory", 1, "the key is at another version than the proposal expects"),
        "MEMORY_INVALID": Code("memory", 1, "a proposal is not what its zone or its key wants, or there is no room"),
        "MEMORY_NOT_FOUND": Code("memory", 2, "nothing is remembered under that key"),
        "MEMORY_FUTURE": Code("memory", 1, "the memory store is of a later form than this release knows"),
        "MEMORY_UNREADABLE": Code("memory", 1, "a file is no memory store"),
        # usage and accidents
        "USAGE": Code("usage", 2, "the command was called wrongly"),
        "FAILED": Code("usage", 1, "the system refused something, or there is a fault in Deedbook itself"),
        "PLATFORM_REFUSED": Code("usage", 1, "this platform cannot keep the promises"),
    }
)


@attrs.frozen
class DomainError:
    """A failure as a value: *kind* groups it, *code* names it, *message* is for people.

    *place* is the location (``file:line:column``, a JSON path, a plugin and its distribution) and part of `str`. If it
    is *retryable*, *retry_after* is the number of seconds to wait before, as far as it is known.
    """

    kind: str
    code: str
    message: str
    retryable: bool = False
    place: str | None = None
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


def fault(code: str, message: str, *, retryable: bool = False, place: str | None = None) -> DomainError:
    """Return the `DomainError` for *code*, with its kind; an unknown code (a plugin's own) has the kind ``run``."""
    known = CODES.get(code)
    return DomainError(known.kind if known else "run", code, message, retryable, place)


def require_type(value: object, wanted: tuple[type, ...], what: str) -> None:
    """Raise `TypeError` with *what*, the *wanted* types and the given one, unless *value* has one of them."""
    if not isinstance(value, wanted):
        names = " or ".join("None" if each is type(None) else each.__name__ for each in wanted)
        raise TypeError(f"{what} must be {names}, not {type(value).__name__}")


def require_text(value: object, what: str) -> str:
    """Return *value* as a plain `str`: a subclass could answer differently each time it is compared or shown.

    Raises `TypeError` with *what* for any other type.
    """
    require_type(value, (str,), what)
    return str.__str__(value)


@attrs.frozen
class Ok(Generic[T]):
    """Success, with its value."""

    value: T


@attrs.frozen
class Err:
    """A failure of the domain.

    *details* has what else the caller of a refused call may know: the ``signals`` of hooks, ``by`` which gate it was
    refused, and the id of a pending ``approval``. A call that was begun has its ``outcome`` there, such as ``unknown``.
    """

    error: DomainError
    details: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)


Result: TypeAlias = Ok[T] | Err


class DeedbookError(Exception):
    """The kernel cannot continue; `errors` has one entry per fault, most important first."""

    def __init__(self, *errors: DomainError) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors

    @property
    def error(self) -> DomainError:
        """The first fault."""
        return self.errors[0]


class IntakeError(DeedbookError):
    """A value that canonical JSON cannot carry exactly."""


class NotJsonError(IntakeError):
    """Text that is not JSON at all."""


class FileRefused(DeedbookError):  # noqa: N818 - named like `FileNotFoundError`
    """A path that must not be opened."""


class SchemaError(DeedbookError):
    """A schema that is unknown or refused."""


class SourceError(DeedbookError):
    """A workspace file that is missing or wrong."""


class BindingError(DeedbookError):
    """Sources and plugins that do not fit together."""


class SessionRefused(DeedbookError):  # noqa: N818 - as `FileRefused`
    """A hook refused the session; its ledger has the hook and the reason, *refusal* what else a caller may know."""

    def __init__(self, refusal: Err) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal


class LedgerError(DeedbookError):
    """A record that cannot be written or is damaged."""


class SignatureError(DeedbookError):
    """An invalid key or signed note."""


class WitnessError(DeedbookError):
    """A witness that does not answer, or refuses."""


class ApprovalError(DeedbookError):
    """A request that cannot be answered or performed."""


class TaskError(DeedbookError):
    """A task that cannot be run, changed or decided."""


class MemoryRefused(DeedbookError):  # noqa: N818 - what happened, in the words of `FileRefused`
    """A memory file that cannot be read, or must not be touched."""


def raise_all(error: type[DeedbookError], faults: Iterable[DomainError]) -> None:
    """Raise *error* with all *faults*, if there are any."""
    found = tuple(faults)
    if found:
        raise error(*found)


def recordable(text: str, limit: int = 500) -> str:
    """Return *text* in a form that the ledger can hold: lone surrogates escaped, at most *limit* characters."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def describe(problem: BaseException, mask: Callable[[str], str] = str, place: str = "") -> str:
    """Return type and message of any exception, recordable; only the type if its message cannot be read.

    *mask* removes secrets before truncation: a truncated secret would not be recognised later. *place* follows whole.
    """
    name = type(problem).__name__
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - a plugin's exception may fail in its own __str__
        text = ""
    return recordable(mask(f"{name}: {text}" if text else name), 500 - len(place)) + place


def describe_crash(problem: BaseException, mask: Callable[[str], str] = str) -> str:
    """Act like `describe`, and name the innermost line of the plugin: the first package that is not a caller of it."""
    owner, place, at = "", "", problem.__traceback__
    callers = ("deedbook", "importlib_metadata", "__main__", *sys.stdlib_module_names)
    while at:
        module: Any = at.tb_frame.f_globals.get("__name__")
        top = module.partition(".")[0] if type(module) is str else "deedbook"
        if owner == top or not (owner or top in callers):
            end = "/__init__.py" if at.tb_frame.f_code.co_filename.endswith("__init__.py") else ".py"
            owner, place = top, recordable(f" ({module.replace('.', '/')[:200]}{end}:{at.tb_lineno})")
        at = at.tb_next
    return describe(problem, mask, place)
