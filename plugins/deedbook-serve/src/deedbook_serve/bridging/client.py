"""The program that a coding agent's hook starts: it sends the hook's JSON to the runtime and returns the answer.

A program of its own (``python -I -S client.py [--state DIR] [--limit SECONDS] AGENT EVENT``), started for every event,
so it imports only what a socket needs. On any failure it refuses an event that can be refused: no runtime, a late,
broken or short answer, or an invalid input. The client decides nothing itself.
"""

import _signal  # type: ignore[import-not-found]  # importing `signal` costs more than the rest of this program
import _socket
import posix
import sys

LARGEST = 16 * 1024 * 1024
LIMIT = 10.0
STATE = ".deedbook"
SOCKET = "bridge.sock"
OTHERS_WRITE = 0o022
REFUSABLE_EVENTS = (
    "PreToolUse", "UserPromptSubmit", "UserPromptExpansion", "PreCompact", "ConfigChange", "TaskCreated", "Elicitation",
    "ElicitationResult", "PreModelSwitch", "PermissionRequest", "permissionRequest", "BeforeTool", "BeforeAgent",
    "BeforeModel",
)  # fmt: skip
"""Events at which exit status 2 refuses something. At other events it does not, or it makes a stopping agent go on."""
PERMISSION_REQUEST = "PermissionRequest"
"""The event at which some agents accept a refusal only as JSON."""


class _Late(BaseException):
    """The time limit is over."""


def run(arguments: list[str]) -> int:
    """Answer one hook from standard input with these *arguments*; return the exit status. Never raises."""
    limit, event = LIMIT, ""
    try:
        try:
            state, limit, agent, event = _arguments(arguments)
            _signal.signal(_signal.SIGALRM, _raise_late)
            _signal.setitimer(_signal.ITIMER_REAL, limit)
            out, err, status = _ask(state, agent, event, _input())
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
        if _write(1, out + b"\n" if out.endswith(b"}") else out) & _write(2, err):
            return status
        why = "the answer could not be passed on"
    except _Late:
        why = f"no answer within {limit:g} s"
    except BaseException as problem:  # noqa: BLE001 - any failure is a refusal
        why = str(problem) or type(problem).__name__
    return refuse(event, why)


def _arguments(arguments: list[str]) -> tuple[str, float, str, str]:
    state, limit, rest = "", LIMIT, list(arguments)
    while rest and rest[0].startswith("--") and len(rest) > 1:
        name, value = rest.pop(0), rest.pop(0)
        if name == "--state":
            state = value
        elif name == "--limit" and 0 < float(value) < 86400:
            limit = float(value)
        else:
            raise ValueError(f"unknown option {name} {value}")
    if len(rest) != 2:
        raise ValueError("wrong usage: bridge [--state DIR] [--limit SECONDS] AGENT EVENT")
    for word in rest:
        if (
            not word.replace("-", "").replace("_", "").replace(".", "").isalnum()
            or not word.isascii()
            or len(word) > 100
        ):
            raise ValueError("an agent and an event are named by letters, digits, - and _")
    return state, limit, rest[0], rest[1]


def _input() -> bytes:
    """Return all of standard input; raises `ValueError` if it is too large."""
    parts, size = [], 0
    while part := posix.read(0, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise ValueError(f"the hook's input is larger than {LARGEST} bytes")
    return b"".join(parts)


def _ask(state: str, agent: str, event: str, body: bytes) -> tuple[bytes, bytes, int]:
    """Send one request and return the answer: what to print on both streams, and the exit status."""
    _enter(state)
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        try:
            link.connect(SOCKET)
        except OSError:
            raise ConnectionError("no runtime answers; start one with: deedbook serve") from None
        link.sendall(f"deedbook-bridge 1 {agent} {event} {len(body)}\n".encode() + body)
        return _answer(link)
    finally:
        link.close()


def _answer(link: _socket.socket) -> tuple[bytes, bytes, int]:
    raw = bytearray()
    head = -1
    while head < 0:
        part = link.recv(65536)
        raw += part
        head = raw.find(b"\n", 0, 64)
        if head < 0 and (not part or len(raw) > 64):
            raise ConnectionError("the runtime's answer is none")
    header = bytes(raw[:head]).split(b" ")
    if len(header) != 3 or not all(each.isdigit() for each in header):
        raise ConnectionError("the runtime's answer is none")
    status, first, second = map(int, header)
    if status > 255 or first + second > LARGEST:
        raise ConnectionError("the runtime's answer is none")
    whole = head + 1 + first + second
    while len(raw) < whole:
        part = link.recv(65536)
        if not part:
            raise ConnectionError("the runtime broke off in the middle of its answer")
        raw += part
    return bytes(raw[head + 1 : head + 1 + first]), bytes(raw[head + 1 + first : whole]), status


def _enter(state: str) -> None:
    """Change to the state folder, so that the socket's path is short; without *state*, search upwards."""
    if state:
        try:
            posix.chdir(state)
        except OSError as problem:
            raise ConnectionError(f"{state}: {problem.strerror}; start a runtime with: deedbook serve") from None
        return
    here = posix.getcwd()
    while True:
        place = f"{here.rstrip('/')}/{STATE}"
        try:
            found = posix.stat(place)
        except OSError:
            if here in ("/", ""):
                raise FileNotFoundError(f"there is no {STATE} here or above; name the state folder") from None
            here = here[: here.rfind("/")] or "/"
            continue
        if found.st_uid not in (posix.getuid(), 0):
            raise PermissionError(f"{place} belongs to another user")
        if found.st_mode & OTHERS_WRITE:
            raise PermissionError(f"{place} can be written by other users; correct it with chmod go-w")
        _refuse_copy(posix.getcwd())
        posix.chdir(place)
        return


def _refuse_copy(here: str) -> None:
    """Raise `PermissionError` in a copy of a repository that Deedbook made: see `deedbook.format.copies`."""
    above = here
    while above not in ("/", ""):
        above = above[: above.rfind("/")] or "/"
        marks = f"{above.rstrip('/')}/{STATE}/copies"
        try:
            owner = posix.stat(marks).st_uid
        except OSError:
            continue
        copy = here if owner in (posix.getuid(), 0) else above
        while copy != above:
            from hashlib import sha256  # noqa: PLC0415 - it costs time, and only copies need it

            name = sha256(copy[len(above.rstrip("/")) + 1 :].encode("utf-8", "surrogateescape")).hexdigest()
            if _is_there(f"{marks}/{name}"):
                raise PermissionError(f"{copy} is a copy of a repository, made by Deedbook; name the state folder")
            copy = copy[: copy.rfind("/")] or "/"


def _is_there(place: str) -> bool:
    try:
        posix.stat(place)
    except OSError:
        return False
    return True


def _raise_late(_number: int, _frame: object) -> None:
    raise _Late


def refuse(event: str, why: str) -> int:
    """Refuse in a form that every agent understands; at an event that cannot be refused, report the error."""
    text = "".join(c if c.isprintable() and c not in '"\\' else " " for c in why)[:500]
    _write(2, f"Deedbook: {text}\n".encode("utf-8", "replace"))
    if event == PERMISSION_REQUEST:
        decision = f'{{"behavior":"deny","message":"Deedbook: {text}"}}'
        _write(
            1, f'{{"hookSpecificOutput":{{"hookEventName":"{PERMISSION_REQUEST}","decision":{decision}}}}}\n'.encode()
        )
    return 2 if event in REFUSABLE_EVENTS or not event else 1


def _write(stream: int, text: bytes) -> bool:
    try:
        while text:
            text = text[posix.write(stream, text) :]
    except OSError:
        return False
    return True


def main() -> None:
    """Answer one hook and exit."""
    posix._exit(run(sys.argv[1:]))  # noqa: SLF001 - nothing needs cleaning up, and a normal exit takes longer


if __name__ == "__main__":
    main()
