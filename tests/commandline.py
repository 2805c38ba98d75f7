"""The command ``deedbook`` as its users meet it: in processes of its own, in a real workspace."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

import attrs
import forked
import importlib_metadata
import pytest

from deedbook.cli import program as cli
from deedbook.contract import Event
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins import commands
from deedbook_audit.verify import verify_file
from deedbook_author.starter import STARTER
from deedbook_testing.offered import InstalledDistribution

COMMAND = str(Path(sys.executable).with_name("deedbook"))
ROOT = Path(__file__).parents[1]
SCHEMAS = Schemas.load(data_folder("schemas"))
SECONDS = 60
FORGOTTEN = re.compile(rf"NO_COLOR|TERM|DEEDBOOK_TRACEBACK|{forked.SHARED}|LC_.*|PYTHON(?!PATH$).*")
"""What whoever runs the tests may have set, and what is tested here by itself."""


@attrs.frozen
class Ran:
    """One finished process: its exit status, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote, which is one JSON document and nothing else."""
        return json.loads(self.out)

    def fits(self, schema: str) -> Any:
        """Return the JSON answer, which fits the kernel's own *schema*."""
        violations = SCHEMAS.validator(schema).violations(self.json)
        assert not violations, violations
        return self.json

    @property
    def session(self) -> str:
        """The id of the session that the command says it had."""
        return next(line.split()[1] for line in self.err.splitlines() if line.startswith("session "))


def environment(**more: str | None) -> dict[str, str]:
    """Return what the command sees of this process's environment, changed by *more* (``None`` takes away)."""
    kept = {name: value for name, value in os.environ.items() if not FORGOTTEN.fullmatch(name)}
    changed = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **more}
    return {name: value for name, value in {**kept, **changed}.items() if value is not None}


@contextmanager
def known_distributions() -> Iterator[None]:
    """Read the metadata of what is installed once for all commands of this process, as long as nothing is added."""
    folders = tuple((place, _changed(place)) for place in sys.path)
    distributions, files = _read_metadata(folders)
    with pytest.MonkeyPatch.context() as patch:
        if importlib_metadata.distributions is DISTRIBUTIONS:
            patch.setattr(importlib_metadata, "distributions", lambda: iter(distributions))
            patch.setattr(commands, "_entry_point_files", lambda: iter(files))
        yield


DISTRIBUTIONS = importlib_metadata.distributions
ENTRY_POINT_FILES = commands._entry_point_files


def _changed(place: str) -> int | None:
    """Return when a folder of the path has changed; ``None`` for what is no folder."""
    return os.stat(place or ".").st_mtime_ns if os.path.isdir(place or ".") else None


@cache
def _read_metadata(
    _folders: tuple[tuple[str, int | None], ...],
) -> tuple[tuple[InstalledDistribution, ...], tuple[tuple[str, str], ...]]:
    return tuple(map(InstalledDistribution, DISTRIBUTIONS())), tuple(ENTRY_POINT_FILES())


class Place:
    """A workspace on disk, and the command in it. *path* is where the command is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env: dict[str, str | None] = {}

    def run(self, *args: str | bytes, stdin: bytes = b"", status: int | None = None, **env: str | None) -> Ran:
        """Call ``deedbook *args``; *status*, where it is given, is the exit status that it must have.

        In a process of its own, which begins where the imports are done.
        """
        given = environment(**{**self.env, **env})
        if not forked.can_fork(given):
            return self.process(*args, stdin=stdin, status=status, **env)
        argv = [COMMAND, *map(os.fsdecode, args)]
        return _checked(status, *forked.run(argv, cwd=self.path, env=given, stdin=stdin, seconds=SECONDS))

    def process(self, *args: str | bytes, stdin: bytes = b"", status: int | None = None, **env: str | None) -> Ran:
        """Do the same with the installed command from the start, where that is what is tried."""
        ended = subprocess.run(
            [COMMAND, *args],
            cwd=self.path,
            env=environment(**{**self.env, **env}),
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return _checked(status, ended.returncode, ended.stdout, ended.stderr)

    def here(self, *args: str, status: int | None = None) -> Ran:
        """Call ``deedbook *args`` in this process, which is quicker, where the process itself is not what is tried.

        In a process of its own where plugins were installed for this workspace only.
        """
        if self.env:
            return self.run(*args, status=status)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="\n") for _ in range(2))
        argv, sys.argv = sys.argv, ["deedbook", *args]
        try:
            with redirect_stdout(out), redirect_stderr(err), known_distributions(), chdir(self.path):
                ended = cli._status(cli.GlobalOptions())
        except SystemExit as end:
            ended = int(end.code or 0)
        finally:
            sys.argv = argv
        ran = Ran(ended, _written(out), _written(err))
        assert status is None or ran.status == status, ran
        return ran

    def start(self, *args: str, **popen: Any) -> "subprocess.Popen[bytes]":
        """Begin ``deedbook *args`` and return the process."""
        return self._start(COMMAND, args, popen)

    def start_fork(self, *args: str, **popen: Any) -> "subprocess.Popen[bytes]":
        """Do the same where the imports are done; for a process that is not killed, see `forked.commands`."""
        fork = forked.can_fork(environment(**self.env))
        return self._start(str(forked.commands() / "deedbook") if fork else COMMAND, args, popen)

    def _start(self, command: str, args: Iterable[str], popen: dict[str, Any]) -> "subprocess.Popen[bytes]":
        piped = {name: popen.pop(name, subprocess.PIPE) for name in ("stdout", "stderr")}
        env = environment(**self.env)
        popen.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([command, *args], cwd=self.path, env=env, **piped, **popen)

    def request(self) -> str:
        """Return the id of the newest request for an approval."""
        return str(self.here("approvals", "list", "--all", "--json", status=0).json["approvals"][-1]["approval"])

    # --- files --------------------------------------------------------------------------------------------------------

    def write(self, path: str, text: str) -> Path:
        """Write a file below the workspace; *text* may be indented as a whole."""
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text), encoding="utf-8")
        return place

    def system(self, path: str, text: str) -> Path:
        """Write a file below ``.system``."""
        return self.write(f".system/{path}", text)

    def configure(self, old: str, new: str) -> None:
        """Change what stands in ``deedbook.yaml``."""
        place = self.path / ".system/deedbook.yaml"
        text = place.read_text(encoding="utf-8")
        assert old in text
        place.write_text(text.replace(old, new), encoding="utf-8")

    def offer(self, group: str, name: str, source: str, *, distribution: str = "offered") -> None:
        """Install a distribution of one module with one plugin, whose class is ``Plugin``, for this workspace only."""
        target = self.path.parent / "site-packages"
        module = f"{distribution}_{name}".replace("-", "_").replace(".", "_")
        files = {
            f"{module}.py": dedent(source),
            f"{module}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n",
            f"{module}-1.0.dist-info/entry_points.txt": f"[deedbook.{group}]\n{name} = {module}:Plugin\n",
        }
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text)
        record = "".join(f"{path},sha256={_record(text)},{len(text)}\n" for path, text in files.items())
        (target / f"{module}-1.0.dist-info/RECORD").write_text(f"{record}{module}-1.0.dist-info/RECORD,,\n")
        before = self.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        if str(target) not in (before or "").split(os.pathsep):
            self.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(target), before]))

    # --- ledgers ------------------------------------------------------------------------------------------------------

    def sessions(self) -> list[str]:
        """Return the ids of all sessions."""
        return sorted(place.parent.name for place in self.path.glob(".deedbook/sessions/*/.events.jsonl"))

    def ledger(self, session: str | None = None) -> Path:
        """Return where the ledger of *session* is; without one, of the only session."""
        if session is None:
            (session,) = self.sessions()
        return self.path / ".deedbook/sessions" / session / ".events.jsonl"

    def events(self, session: str | None = None) -> list[Event]:
        """Return the events of a session whose ledger is sound."""
        report = verify_file(self.ledger(session), schemas=SCHEMAS)
        assert report.sound, list(report.lines())
        return list(read(self.ledger(session)))

    def types(self, session: str | None = None) -> list[str]:
        """Return the types of a session's events."""
        return [event.type for event in self.events(session)]

    def payloads(self, event_type: str, session: str | None = None) -> list[Mapping[str, Any]]:
        """Return the payloads of a session's events of one type."""
        return [event.payload for event in self.events(session) if event.type == event_type]


def _checked(wanted: int | None, status: int, out: bytes, err: bytes) -> Ran:
    ran = Ran(status, out.decode(), err.decode())
    assert "Traceback" not in ran.err + ran.out, ran.err
    assert wanted is None or ran.status == wanted, ran
    return ran


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def _record(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")


def starter(path: Path) -> Place:
    """Return a copy of the starter in *path*."""
    shutil.copytree(STARTER, path / ".system")
    return Place(path)


def until(holds: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Return what *holds* gives as soon as it is true; fail after *seconds*."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


def ended(process: "subprocess.Popen[bytes]") -> Ran:
    """Wait for *process* and return how it ended."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        raise
    ran = Ran(process.returncode, (out or b"").decode(), (err or b"").decode())
    assert "Traceback" not in ran.err + ran.out, ran.err
    return ran


def run_of(place: Place) -> list[Event]:
    """Return the events of the only run of *place*."""
    (found,) = (events for events in map(place.events, place.sessions()) if events[0].payload["purpose"] == "run")
    return found


def begun(place: Place, event_type: str) -> Iterator[Event]:
    """Yield the events of *event_type* that sessions being written hold already."""
    for path in place.path.glob(".deedbook/sessions/*/.events.jsonl"):
        yield from (event for event in read(path) if event.type == event_type)


# --- a model that says what it is told to -----------------------------------------------------------------------------


def play(place: Place, entries: Iterable[Mapping[str, Any]], *, usual: bool = True) -> None:
    """Add the profile ``played``, whose model plays *entries*; the lead and the planner say the *usual* before."""
    before = [
        say("lead", {"intent": "greet", "constraints": []}),
        say("planner", {"steps": [{"id": "s1", "description": "greet"}], "risks": [], "needs_advisor": False}),
    ]
    place.write("played.jsonl", "".join(json.dumps(entry) + "\n" for entry in [*(before if usual else []), *entries]))
    place.configure(
        "profiles:\n",
        "profiles:\n  played:\n    flow: review\n"
        "    models: {standard: {provider: transcript, with: {path: played.jsonl}}}\n",
    )


def say(role: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry in which *role* answers with *message*."""
    return {"role": role, "response": {"text": json.dumps({**message, "schema_version": "v1"})}}


def ask(role: str, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry in which *role* asks for a tool."""
    call = {"id": "t1", "name": tool, "args": args}
    return {"role": role, "response": {"text": "", "tool_calls": [call], "finish_reason": "tool_use"}}


def report(output: str) -> dict[str, Any]:
    """Return an entry in which the worker reports *output*."""
    return say("worker", {"output": output, "steps_completed": ["s1"], "tool_calls_made": []})


def verdict(word: str, feedback: str = "as it should be") -> dict[str, Any]:
    """Return an entry in which the reviewer decides."""
    return say("reviewer", {"verdict": word, "feedback": feedback})
