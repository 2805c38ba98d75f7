"""Hooks in processes of their own: scripts, and plugins with ``isolation: worker``.

Even if such a process hangs, floods, dies or answers twice, the caller has an answer within the limit or none, which
denies. All processes that it started are killed.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import attrs
import orjson

from deedbook.contract import Decision, Failed, Host
from deedbook.contract.lifecycle import NoAnswer
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, IntakeError, fault, recordable
from deedbook.format.terminal import plain, short
from deedbook.programs import scripts
from deedbook.programs.exchange import build_question, dumps, parse, parse_decision, parse_frame

from .host import LIMIT, LineProgram, ProgramRunner, WorkspaceHost

BEGIN: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from deedbook.plugins.hookhost import main; main()"
)
"""The code that starts a plugin's process: modules are found where the kernel finds them, and nowhere else."""
STARTING: Final = 30.0
"""Seconds for a plugin's process to start and to construct the hook, in addition to the time of its answers."""
MOST: Final = 32 * LIMIT
_SCRIPT: Final = 4 * LIMIT
_TOLD: Final = 200
"""How many characters of a failing script's standard error are reported."""


def isolate_hook(entry: Mapping[str, Any], plugins: Mapping[str, Any], host: Host) -> Callable[..., Decision]:
    """Return what asks such a hook; nothing is started yet. Raises `BindingError`."""
    workers = host.workers if isinstance(host, WorkspaceHost) else None
    if not isinstance(host, WorkspaceHost) or workers is None:
        raise BindingError(fault("NOT_AVAILABLE", "processes cannot be started here", place=entry["place"]))
    if "script" in entry:
        try:
            return MaskingHook(ScriptHook(entry, host, workers), host)
        except DeedbookError as problem:
            raise BindingError(*(attrs.evolve(each, place=entry["place"]) for each in problem.errors)) from None
        except Failed as problem:
            raise BindingError(fault("BINDING_INVALID", f"script: {problem}", place=entry["place"])) from None
    return MaskingHook(PluginHook(entry, plugins["/".join(entry["plugin"])], host, workers), host)


class MaskingHook:
    """Masks the values of secrets in a process's answers, because reasons are shown to models and printed."""

    def __init__(self, ask: "ScriptHook | PluginHook", host: WorkspaceHost) -> None:
        self._ask, self._host = ask, host

    def __call__(self, *subject: Any) -> Decision:
        """Ask; raises `NoAnswer`."""
        try:
            found = self._ask(*subject)
        except NoAnswer as problem:
            raise NoAnswer(self._host.mask_object({"why": recordable(str(problem), MOST)})["why"]) from None
        try:
            masked = self._host.mask_object({"reason": found.reason, "signals": dict(found.signals)})
        except IntakeError as problem:
            raise NoAnswer(f"answered what cannot be recorded: {problem}") from None
        return attrs.evolve(found, **masked)


def _program_path(program: str, root: str) -> str:
    """Return the path of a program that is a file of the workspace at *root*; other programs are found on PATH."""
    return str(Path(root).absolute() / program) if "/" in program else program


class ScriptHook:
    """A script that answers: one process for each question, or one process that answers line by line."""

    def __init__(self, entry: Mapping[str, Any], host: WorkspaceHost, workers: ProgramRunner) -> None:
        script = entry["script"]
        self._event, self._settings = entry["event"], entry["settings"]
        self._limit = entry["timeout_ms"] / 1000
        self._argv, self._files = script["argv"], script["files"]
        self._started = [_program_path(self._argv[0], host.folder.path), *self._argv[1:]]
        self._env = dict(_environment(script["env"], host))
        self._folder, self._workers, self._host = host.folder, workers, host
        self._kept: LineProgram | None = None
        if script["protocol"] == "lines":
            self._kept = workers.keep(self._started, env=self._env, cwd=host.folder.path, limit=_SCRIPT)

    def __call__(self, *subject: Any) -> Decision:
        """Ask; raises `NoAnswer`."""
        asked = {**build_question(self._event, subject), "settings": self._settings}
        try:
            self._check()
            document = self._once(dumps(asked)) if self._kept is None else self._line(self._kept, asked)
        except Failed as problem:
            raise NoAnswer(f"{problem.code}: {problem}") from None
        return parse_decision(self._event, document, subject)

    def _once(self, asked: bytes) -> Any:
        ran = self._workers.run(
            self._started, stdin=asked + b"\n", env=self._env, cwd=self._folder.path, seconds=self._limit, limit=_SCRIPT
        )
        if ran.status:
            why = f"ended with status {ran.status}; whatever it printed is no answer"
            raise NoAnswer(why + self._complaint(ran.err))
        return parse(ran.out)

    def _line(self, kept: LineProgram, asked: dict[str, Any]) -> Any:
        """Ask a kept program.

        Its answer must repeat the question's id, so that an older answer is not mistaken for it.
        """
        name = token_hex(8)
        message = parse(kept.ask(dumps({"id": name, **asked}), self._limit))
        if type(message) is not dict or message.pop("id", None) != name:
            raise NoAnswer("answered without the id of the question")
        return message

    def _complaint(self, err: bytes) -> str:
        """Return the beginning of its standard error, masked first, since a truncated secret is not recognised."""
        try:
            text = self._host.mask_object({"err": recordable(err.decode("utf-8", "backslashreplace"), MOST)})["err"]
        except IntakeError:
            return ""
        line = short(plain(" ".join(text.split())), _TOLD)
        return f"; it said: {line}" if line else ""

    def _check(self) -> None:
        """Raise `NoAnswer` if the script was changed since the charter was compiled: it has not been reviewed."""
        for path in scripts.files(self._argv, self._folder):
            if path not in self._files:
                raise NoAnswer(f"{path} is newer than the charter; review it, then run: deedbook lock")
        for path, known in self._files.items():
            found = None
            with suppress(DeedbookError, OSError):
                found = canonical.digest(self._folder.read(path, limit=LIMIT))
            if found != known:
                raise NoAnswer(f"{path} is not what the charter pins; review it, then run: deedbook lock")


class PluginHook:
    """A plugin's hook in a process of its own, which stays alive."""

    def __init__(
        self, entry: Mapping[str, Any], plugin: Mapping[str, Any], host: WorkspaceHost, workers: ProgramRunner
    ) -> None:
        self._event, self._limit = entry["event"], entry["timeout_ms"] / 1000
        path = orjson.dumps([each for each in sys.path if Path(each).is_absolute()]).decode()
        self._worker = workers.keep([sys.executable, "-I", "-c", BEGIN, path], limit=MOST)
        self._told = {
            "name": entry["plugin"][1],
            "event": entry["event"],
            "settings": entry["settings"],
            **{name: plugin[name] for name in ("distribution", "version", "digest")},
            **host.terms(set(_strings(entry["settings"]))),
        }
        if self._event == "UserPromptSubmit":
            self._told["routes"] = host.route_data()

    def __call__(self, *subject: Any) -> Decision:
        """Ask; raises `NoAnswer`."""
        asked = {"question": build_question(self._event, subject)}
        message = self._ask(asked, self._limit)
        if "need" in message:
            self._ask({"setup": self._told}, STARTING)
            message = self._ask(asked, self._limit)
        found = message.get("decision")
        if type(found) is not dict:
            raise NoAnswer("its process gave no decision")
        return Decision(found["outcome"], found["reason"], found["args"], found["signals"])

    def _ask(self, line: dict[str, Any], seconds: float) -> dict[str, Any]:
        name = token_hex(8)
        try:
            raw = self._worker.ask(dumps({"id": name, **line}), seconds)
        except Failed as problem:
            raise NoAnswer(f"{problem.code}: {problem}") from None
        message = parse_frame(raw)
        if type(message) is not dict or message.get("id") != name:
            raise NoAnswer("its process answered another question")
        if "error" in message:
            raise NoAnswer(message["error"])
        return message


def _environment(declared: Mapping[str, Any], host: WorkspaceHost) -> Iterator[tuple[str, str]]:
    for name, value in declared.items():
        yield name, value if isinstance(value, str) else host.secret(value["secret"]).reveal()


def _strings(value: Any) -> Iterator[str]:
    """Yield every text in the settings: a plugin names its secrets there."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)
