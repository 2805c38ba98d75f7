"""A served workspace for tests: real processes of ``deedbook serve``, abilities to be used, and raw connections."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from commandline import SCHEMAS, SECONDS, Place, until

from deedbook_audit.verify import verify_file
from deedbook_serve.client import Runtime
from deedbook_serve.serving.addresses import connect

COUNT = """
    import time
    from pathlib import Path

    from deedbook import HandlerSpec


    class Plugin:
        spec = HandlerSpec(
            takes={"type": "object", "additionalProperties": False, "properties": {
                "line": {"type": "string"}, "until": {"type": "string"}, "times": {"type": "integer"}}},
            gives={"type": "object", "properties": {"line": {"type": "string"}}},
            effects="write",
        )

        def __init__(self, settings, host):
            pass

        def __call__(self, args, ctx):
            with open("effects.txt", "a") as file:
                file.write(args.get("line", "") + "\\n")
            while "until" in args and not Path(args["until"]).exists():
                time.sleep(0.01)
            return {"line": args.get("line", "") * args.get("times", 1)}
"""
"""A tool whose every call leaves a line in ``effects.txt``, and then waits until a file is there."""
GUARDS = """
    from deedbook import Decision, GateSpec, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def pre_tool_use(self, call):
            hint = {"ability_guard": {"looked_at": call.ability}}
            return Decision("deny" if "rm " in str(call.args) else "allow", "no rm here", signals=hint)
"""
NARROWS = """
    from deedbook import GateSpec, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def post_tool_use(self, call, result):
            return {"text": "narrowed"}
"""
PREFLIGHT = """
    from deedbook import Decision, GateSpec, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def pre_ability_create(self, call):
            hint = {"ability_preflight": {"looked_at": call.ability}}
            return Decision("deny" if "never" in str(call.args) else "allow", "not this one", signals=hint)
"""
HINTS = """
    from deedbook import Decision, GateSpec, hookimpl


    class Plugin:
        spec = GateSpec(reads=frozenset({"prompts.context"}))

        def __init__(self, settings, host):
            pass

        @hookimpl
        def user_prompt_submit(self, prompt, principal, session, now, facts):
            if "forbidden" in prompt:
                return Decision("deny", "no such prompts")
            hint = {"ability": facts["prompts.context"].get("ability", "echo")}
            return Decision("allow", signals={"routing_hint": hint, "normalized_intent": "greet"})
"""
SETTINGS = """\
    schema_version: v1
    agents:
      desk: {expose: {abilities: [echo, guarded]}}
    seal: [tool.result/result]
    abilities:
      echo: {summary: Echo., handler: {tool: echo}}
      count: {summary: Leave a line., handler: {tool: count}}
      guarded: {summary: Echo., handler: {tool: echo}, hooks: {pre_call: [guards]}}
      chore: {summary: Leave a line., handler: {tool: count}, hooks: {pre_create: [preflight], pre_call: [guards]}}
      gated: {summary: Echo., handler: {tool: echo}, tags: [approval-gate]}
      narrowed: {summary: Echo., handler: {tool: echo}, hooks: {post_call: [narrows]}}
    hooks:
      guards: {event_type: PreToolUse, handler: {hook: guards}}
      preflight: {event_type: PreAbilityCreate, handler: {hook: preflight}}
      narrows: {event_type: PostToolUse, handler: {hook: narrows}}
      hints: {event_type: PromptSubmit, handler: {hook: hints}}
    default: {write: allow}
"""


def workspace(path: Path) -> Place:
    """Make a workspace with abilities to be used."""
    place = Place(path)
    place.system("deedbook.yaml", SETTINGS)
    place.offer("tools", "count", COUNT)
    for name, source in (("guards", GUARDS), ("narrows", NARROWS), ("preflight", PREFLIGHT), ("hints", HINTS)):
        place.offer("hooks", name, source)
    return place


STACKS = {"PYTHONFAULTHANDLER": "1"}
"""Lets a process say where its threads stand when it is aborted."""


def start(place: Place, *args: str) -> "subprocess.Popen[bytes]":
    """Begin ``deedbook serve``, and return it when it answers."""
    place.env.update(STACKS)
    process = place.start("serve", *args, start_new_session=True)
    assert process.stderr is not None
    while b"serving" not in (line := process.stderr.readline()):
        if not line:
            process.communicate(timeout=SECONDS)
            raise AssertionError(f"it ended with {process.returncode}")
    return process


def stop(process: "subprocess.Popen[bytes]", number: int = signal.SIGTERM, seconds: float = SECONDS) -> int:
    """End a server; return its exit status. One that does not end says where it stands, and is killed."""
    process.send_signal(number)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it did not end within {seconds:g} s:\n{abort(process)}") from None
    return process.returncode


def abort(process: "subprocess.Popen[bytes]") -> str:
    """Kill a process, and its group where it leads one; return where its threads stood, if it says so (`STACKS`)."""
    process.send_signal(signal.SIGABRT)
    try:
        _, err = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        err = b"it does not hear SIGABRT"
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=10)
    return (err or b"").decode(errors="replace")


@contextmanager
def ending(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill *process* unless it has ended by itself."""
    try:
        yield
    finally:
        if process.poll() is None:
            abort(process)


@contextmanager
def served(place: Place, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Serve a workspace; afterwards the server has ended well, and every ledger is sound."""
    process = start(place, *args)
    try:
        yield process
    except BaseException:
        abort(process)
        raise
    if process.poll() is None:
        assert stop(process) == 0
    sound(place)


def sound(place: Place) -> None:
    """Check every session's ledger."""
    for session in place.sessions():
        report = verify_file(place.ledger(session), schemas=SCHEMAS)
        assert report.sound, list(report.lines())


def runtime(place: Place) -> Runtime:
    """Connect to the server of a workspace."""
    return Runtime(place.path, seconds=60)


class Wire:
    """A raw connection, for what no client of ours would send. Every answer fits its schema."""

    def __init__(self, place: Place, *, seconds: float = 60) -> None:
        self.socket = connect(place.path / ".deedbook/runtime.sock", seconds)
        self.file = self.socket.makefile("rb")

    def send(self, raw: bytes) -> None:
        """Write bytes."""
        self.socket.sendall(raw)

    def answer(self) -> Any:
        """Return the next answer; ``None`` at the end."""
        line = self.file.readline()
        if not line:
            return None
        said = json.loads(line)
        violations = SCHEMAS.validator("runtime_response_v2").violations(said)
        assert not violations, (said, violations)
        return said

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request, and return the answer."""
        self.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode() + b"\n")
        return self.answer()

    def close(self) -> None:
        """End the connection."""
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def effects(place: Place) -> list[str]:
    """Return the lines that `count` has left, each the effect of one call."""
    file = place.path / "effects.txt"
    return file.read_text().splitlines() if file.exists() else []


def wait_for_effect(place: Place, line: str) -> None:
    """Return when a call of `count` has left *line*."""
    until(lambda: line in effects(place))
