"""``tool: sandbox``: one program with copies of files and without network; only its output comes back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import (
    AbilityDeclaration,
    Ctx,
    Failed,
    FolderEntry,
    HandlerSpec,
    Host,
    Json,
    Object,
    RunningProgram,
)
from deedbook_tool_standard.command import command, command_faults, stdin_faults, stdin_of
from deedbook_tool_standard.outputs import FORMS, beginning, diagnostic
from deedbook_tool_standard.shapes import strict
from deedbook_tool_standard.templates import misfits, parse

from .bubblewrap import Bubblewrap
from .executor_protocol import LIMITS, LauncherOrder
from .launchers import SIZE, Launchers, Report
from .remote import Executor

MIB: Final = 1 << 20
DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "seconds": 60.0,
        "bytes": MIB,
        "memory_mb": 512,
        "cpus": 2,
        "processes": 128,
        "workspace_mb": 512,
        "tmp_mb": 256,
        "data_mb": 64,
    }
)
"""The limits of a program unless the ability sets others."""
_ENVIRONMENT: Final = MappingProxyType({"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"})  # noqa: S108 - the sandbox's own
_NO_COMPILED: Final = MappingProxyType({"PYTHONPYCACHEPREFIX": "/tmp/.pycache"})  # noqa: S108 - the sandbox's own
"""Keeps Python from the compiled files of an environment, which its digest leaves out."""
_MOST_FILES: Final = 20_000
_GRACE: Final = 10.0
"""Seconds that the launcher gets to report, beyond the program's own."""
_WHY: Final = MappingProxyType(
    {
        "time": ("TOOL_TIMEOUT", "did not end within {seconds:g} s; it was killed, with all its processes"),
        "output": ("OUTPUT_TOO_LARGE", "wrote more than {bytes} bytes; it was killed, with all its processes"),
        "memory": ("SANDBOX_LIMIT", "used more than {memory_mb} MiB of memory; it was killed"),
    }
)
_NAME: Final = r"[.]?[A-Za-z0-9_-][A-Za-z0-9._-]*"
_FOLDER: Object = {"type": "string", "minLength": 1, "description": "A folder below the roots; may have placeholders"}
_WHOLE: Object = {"type": "integer", "minimum": 1}
_SOCKET: Object = {"type": "string", "pattern": "^/", "maxLength": 107}
_SETTINGS = strict(
    {
        "argv": {
            "description": "The program and its arguments, one each",
            "type": ["array", "string"],
            "minItems": 1,
            "items": {"anyOf": [{"type": "string", "maxLength": 8192}, {"type": "array", "minItems": 1}]},
        },
        "code": {**_FOLDER, "description": "The folder whose files are copied to /workspace, which is writable"},
        "data": {**_FOLDER, "description": "The folder whose files are copied to /data, which is read-only"},
        "stdin": {"description": 'One placeholder, such as "{text}"'},
        "env": {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": {"type": "string"},
        },
        "environment": strict(
            {
                "path": {
                    "description": "A folder with bin/, readable to every user",
                    "type": "string",
                    "pattern": "^/",
                },
                "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            },
            optional=frozenset({"digest"}),
        ),
        "outputs": {
            "description": "Files below /workspace whose content is part of the result",
            "type": "array",
            "uniqueItems": True,
            "maxItems": 16,
            "items": {"type": "string", "pattern": f"^{_NAME}(/{_NAME})*$", "maxLength": 512},
        },
        "limits": strict(
            {
                "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
                "bytes": {**_WHOLE, "maximum": 4 * MIB},
                **{name: _WHOLE for name in DEFAULTS if name not in ("seconds", "bytes")},
            },
            optional=frozenset(DEFAULTS),
        ),
        "output": {"enum": ["text", "json", "lines"]},
        "statuses": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 255}},
        "dashes": {"enum": ["allow", "refuse"]},
        "sandbox": {"enum": ["required", "degraded"]},
        "executor": {
            "description": "The socket of the executor that runs the program, if it is not run here",
            "anyOf": [
                _SOCKET,
                strict({"path": _SOCKET, "user": {"type": "integer", "minimum": 0}}, optional=frozenset({"user"})),
            ],
        },
    },
    optional=frozenset(
        {
            "code", "data", "stdin", "env", "environment", "outputs", "limits", "output", "statuses", "dashes",
            "sandbox", "executor",
        }
    ),
)  # fmt: skip


def check(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an ability of this tool."""
    settings, schema = declared.settings, declared.schema_in
    if schema is None:
        yield "", "schema_in is missing: it declares the arguments that the placeholders stand for"
        return
    for pointer, why in (*command_faults(settings, schema), *stdin_faults(settings, schema)):
        yield f"/with{pointer}", why
    for name in ("code", "data"):
        try:
            yield from ((f"/with/{name}", why) for why in misfits(parse(settings.get(name, "")), schema))
        except ValueError as problem:
            yield f"/with/{name}", str(problem)


class Sandbox:
    """Run one program in a sandbox. The result has its ``status``, its output, ``outputs`` and the ``limits`` in force.

    The files are copied in through the host, so that a call reads no file that it may not read. Nothing is written
    outside the sandbox.
    """

    spec = HandlerSpec(settings=_SETTINGS, gives={}, effects="none", interruptible=True, check=check, files="sandbox")

    def __init__(self, settings: Object, host: Host) -> None:
        self._host = host
        self._command = command(settings)
        self._stdin = stdin_of(settings)
        self._folders = {name: parse(settings.get(name, "")) for name in ("code", "data")}
        self._outputs: Sequence[str] = settings.get("outputs", ())
        self._limits = {**DEFAULTS, **settings.get("limits", {})}
        self._output: str = settings.get("output", "text")
        self._statuses = frozenset(settings.get("statuses", (0,)))
        self._env = {
            **_ENVIRONMENT,
            **(_NO_COMPILED if "digest" in settings.get("environment", {}) else {}),
            **settings.get("env", {}),
        }
        self._key, self._arguments, self._start = self._choose_launcher(settings)

    def _choose_launcher(self, settings: Object) -> tuple[str, list[str], Callable[[Sequence[str]], RunningProgram]]:
        """Return a key for the launchers of this ability, their arguments, and what starts one."""
        degraded, environment = settings.get("sandbox") == "degraded", settings.get("environment")
        if "executor" not in settings:
            arguments = launcher_arguments(
                Bubblewrap.find(environment, degraded=degraded), self._limits, degraded=degraded
            )
            return "\0".join(["deedbook-tool-sandbox", *arguments]), arguments, self._host.keep
        executor = Executor.parse(settings["executor"])
        order = LauncherOrder({name: self._limits[name] for name in LIMITS}, environment, degraded)
        key = f"deedbook-tool-sandbox\0{executor}\0{order}"
        return key, [], lambda _: executor.start(order)

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Run; ``PROCESS_FAILED``, ``SANDBOX_LIMIT``, ``SANDBOX_REFUSED``, and what `deedbook.contract.Host` raises."""
        seconds = min(ctx.remaining(), self._limits["seconds"])
        if seconds <= 0:
            raise Failed("TOOL_TIMEOUT", "the call was cancelled or its time is up; nothing was started")
        report = self._host.share(self._key, lambda: Launchers(self._arguments)).ask(
            self._start,
            self._request(self._command.fill(args), args, seconds),
            seconds + _GRACE,
            (len(self._outputs) + 2) * self._limits["bytes"] + MIB,
        )
        return self._result(report, seconds)

    def command_line(self, args: Object, /) -> tuple[list[str], str]:
        """Return the program with its arguments, as paths below the folder that becomes ``/workspace``."""
        argv = self._command.fill(args)
        return [each.removeprefix("/workspace/") for each in argv], self._folders["code"].fill(args) or ""

    def _request(self, argv: Sequence[str], args: Object, seconds: float) -> bytes:
        """Return what the launcher reads: the program, its environment, its time, the outputs, the files, its input."""
        files, contents = self._files(args)
        value: Any = self._stdin.value(args) if self._stdin else None
        return encode_request(
            argv, self._env, seconds, self._outputs, files, contents, "" if value is None else str(value)
        )

    def _files(self, args: Object) -> tuple[list[str], list[bytes]]:
        names: list[str] = []
        contents: list[bytes] = []
        for folder, target in (("code", "/workspace"), ("data", "/data")):
            source = self._folders[folder].fill(args) or ""
            left = int(self._limits["workspace_mb" if folder == "code" else "data_mb"]) * MIB
            for entry, name in _walk(self._host, source) if source else ():
                with self._host.open(entry.path) as file:
                    data = file.read(min(left, entry.size) + 1)  # so many bytes are reserved
                    if len(data) > entry.size:
                        data += file.read(left)
                left -= len(data)
                if left < 0 or len(contents) >= _MOST_FILES:
                    raise Failed("ARGUMENT_REFUSED", f"{source}: the files do not fit into {target}")
                names += [f"{target}/{name}", str(len(data))]
                contents.append(data)
        return names, contents

    def _result(self, report: "Report", seconds: float) -> Json:
        program = self._command.program
        if report.ended in _WHY:
            code, why = _WHY[report.ended]
            raise Failed(code, f"{program} {why.format(**{**self._limits, 'seconds': seconds})}")
        if not report.begun:  # also where the launcher refused
            raise Failed("SANDBOX_REFUSED", f"the sandbox could not be made: {beginning(report.err)}")
        if report.status not in self._statuses:
            raise Failed("PROCESS_FAILED", f"{program} {_describe_end(report)}")
        made = FORMS[self._output](report.out, f"the output of {program}")
        outputs = {
            name: FORMS["text"](data, name)
            for name, data in zip(self._outputs, report.outputs, strict=False)
            if data is not None
        }
        name = {"text": "stdout", "json": "value", "lines": "lines"}[self._output]
        return {
            "status": report.status,
            name: made,
            "stderr": diagnostic(report.err),
            "outputs": outputs,
            "limits": report.limits,
        }


def launcher_arguments(found: Bubblewrap, limits: Mapping[str, Any], *, degraded: bool) -> list[str]:
    """Return the arguments of the launcher: all that is the same for each call of an ability."""
    sizes = {name: limits[f"{name}_mb"] * MIB for name in ("memory", "workspace", "tmp", "data")}
    given = {
        **found.arguments(),
        **sizes,
        **{name: limits[name] for name in ("bytes", "cpus", "processes")},
        "groups": "/sys/fs/cgroup",
        "degraded": "yes" if degraded else "no",
    }
    return [f"{name}={value}" for name, value in given.items()] + [f"read={each}" for each in found.read]


def _walk(host: Host, folder: str, above: str = "") -> Iterator[tuple[FolderEntry, str]]:
    """Yield the files below *folder*, each with its path from there."""
    for entry in host.scan(folder):
        name = above + entry.path.rpartition("/")[2]
        if entry.folder:
            yield from _walk(host, entry.path, f"{name}/")
        else:
            yield entry, name


def _describe_end(report: Report) -> str:
    """Return how a program ended, and the beginning of what it wrote."""
    status = report.status
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    said = beginning(report.err) or beginning(report.out)
    return f"{how}: {said}" if said else how


def encode_request(
    argv: Sequence[str],
    env: Mapping[str, str],
    seconds: float,
    outputs: Sequence[str],
    files: Sequence[str],
    contents: Sequence[bytes],
    stdin: str,
) -> bytes:
    """Return a request to the launcher; *files* are paths and sizes in turn, *contents* in the same order."""
    lists = (argv, [f"{name}={value}" for name, value in env.items()], [str(seconds)], outputs, files)
    given = stdin.encode()
    return b"".join([*map(_fields, lists), *contents, SIZE.pack(len(given)), given])


def _fields(values: Sequence[str]) -> bytes:
    """Return *values* as the launcher reads them: a size, then the values separated by NUL."""
    data = "\0".join(values).encode()
    return SIZE.pack(len(data)) + data
