"""What a coding agent's hook starts: it sends the hook's JSON to the runtime and gives the answer back.

A program of its own (``python -I -S client.py [--state DIR] [--limit SECONDS] AGENT EVENT``), started for every event,
so that it imports nothing but what a socket needs. Whatever goes wrong, an event that can stop something stops it: no
runtime, a late, broken or short answer, an input that is none. Nothing is decided here.
"""

import _signal  # type: ignore[import-not-found]  # the module `signal` costs more than all that is done here
import _socket
import posix
import sys

LARGEST = 16 * 1024 * 1024
LIMIT = 10.0
STATE = ".deedbook"
SOCKET = "bridge.sock"
REFUSED = (
    "PreToolUse", "UserPromptSubmit", "UserPromptExpansion", "PreCompact", "ConfigChange", "TaskCreated", "Elicitation",
    "ElicitationResult", "PreModelSwitch", "PermissionRequest", "permissionRequest", "BeforeTool", "BeforeAgent",
    "BeforeModel",
)  # fmt: skip
"""Events at which exit status 2 refuses something. At any other it does not, or makes an agent go on that stops."""
ASKED = "PermissionRequest"
"""The event at which some agents take a refusal in JSON alone."""


class _Late(BaseException):
    """The limit is over."""


def run(arguments: list[str]) -> int:
    """Do what the *arguments* say with standard input; return the exit status. Never raises."""
    limit, event = LIMIT, ""
    try:
        try:
            state, limit, agent, event = _arguments(arguments)
            _signal.signal(_signal.SIGALRM, _late)
            _signal.setitimer(_signal.ITIMER_REAL, limit)
            out, err, status = _ask(state, agent, event, _input())
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
        if _write(1, out) & _write(2, err):
            return status
        why = "the answer could not be passed on"
    except _Late:
        why = f"no answer within {limit:g} s"
    except BaseException as problem:  # noqa: BLE001 - whatever it is, nobody has allowed anything
        why = str(problem) or type(problem).__name__
    return _refuse(event, why)


def _arguments(arguments: list[str]) -> tuple[str, float, str, str]:
    state, limit, left = "", LIMIT, list(arguments)
    while left and left[0].startswith("--") and len(left) > 1:
        name, value = left.pop(0), left.pop(0)
        if name == "--state":
            state = value
        elif name == "--limit" and 0 < float(value) < 86400:
            limit = float(value)
        else:
            raise ValueError(f"unknown option {name} {value}")
    if len(left) != 2:
        raise ValueError("wrong usage: bridge [--state DIR] [--limit SECONDS] AGENT EVENT")
    for word in left:
        if (
            not word.replace("-", "").replace("_", "").replace(".", "").isalnum()
            or not word.isascii()
            or len(word) > 100
        ):
            raise ValueError("an agent and an event are named by letters, digits, - and _")
    return state, limit, left[0], left[1]


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
    told = bytes(raw[:head]).split(b" ")
    if len(told) != 3 or not all(each.isdigit() for each in told):
        raise ConnectionError("the runtime's answer is none")
    status, first, second = map(int, told)
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
    """Make the state folder the working directory, so that the socket's name is short; without one, look above."""
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
            owner = posix.stat(place).st_uid
        except OSError:
            if here in ("/", ""):
                raise FileNotFoundError(f"there is no {STATE} here or above; name the state folder") from None
            here = here[: here.rfind("/")] or "/"
            continue
        if owner not in (posix.getuid(), 0):
            raise PermissionError(f"{place} belongs to somebody else")
        posix.chdir(place)
        return


def _late(_number: int, _frame: object) -> None:
    raise _Late


def _refuse(event: str, why: str) -> int:
    """Say no in a form that every agent understands, or where nothing can be refused, say what is wrong."""
    text = "".join(c if c.isprintable() and c not in '"\\' else " " for c in why)[:500]
    _write(2, f"Deedbook: {text}\n".encode("utf-8", "replace"))
    if event == ASKED:
        decision = f'{{"behavior":"deny","message":"Deedbook: {text}"}}'
        _write(1, f'{{"hookSpecificOutput":{{"hookEventName":"{ASKED}","decision":{decision}}}}}'.encode())
    return 2 if event in REFUSED or not event else 1


def _write(stream: int, text: bytes) -> bool:
    try:
        while text:
            text = text[posix.write(stream, text) :]
    except OSError:
        return False
    return True


def main() -> None:
    """Answer one hook and end."""
    posix._exit(run(sys.argv[1:]))  # noqa: SLF001 - nothing is left to be done, and tidying up takes longer


if __name__ == "__main__":
    main()
