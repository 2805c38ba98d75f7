"""``tool: sandbox``: one program with copies of files and without network; only its output comes back."""

import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import relpath
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook_tool_standard.command import command, command_faults, stdin_faults, stdin_of
from deedbook_tool_standard.outputs import FORMS, beginning, diagnostic
from deedbook_tool_standard.shapes import strict
from deedbook_tool_standard.templates import misfits, parse

from .bubblewrap import Bubblewrap

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
_MOST_FILES: Final = 20_000
_GRACE: Final = 10.0
"""Seconds that the launcher gets to report, beyond the program's own."""
_SIZE: Final = struct.Struct("!Q")
_START: Final = "import sys; sys.path.append(sys.argv.pop(1)); from deedbook_tool_sandbox.launcher import main; main()"
"""Starts the launcher as a module, so that Python need not compile it each time."""
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
    },
    optional=frozenset(
        {"code", "data", "stdin", "env", "environment", "outputs", "limits", "output", "statuses", "dashes", "sandbox"}
    ),
)


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
        self._env = {**_ENVIRONMENT, **settings.get("env", {})}
        self._outputs: Sequence[str] = settings.get("outputs", ())
        self._limits = {**DEFAULTS, **settings.get("limits", {})}
        self._output: str = settings.get("output", "text")
        self._statuses = frozenset(settings.get("statuses", (0,)))
        self._degraded: bool = settings.get("sandbox") == "degraded"
        self._bubblewrap = Bubblewrap.find(settings.get("environment"), degraded=self._degraded)
        self._env["PATH"] = f"{self._bubblewrap.programs}:{self._env['PATH']}"

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Run; ``PROCESS_FAILED``, ``SANDBOX_LIMIT``, ``SANDBOX_REFUSED``, and what `deedbook.contract.Host` raises."""
        seconds = min(ctx.remaining(), self._limits["seconds"])
        if seconds <= 0:
            raise Failed("TOOL_TIMEOUT", "the call was cancelled or its time is up; nothing was started")
        argv = self._command.fill(args)
        ran = self._host.run(
            [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parents[1]), *self._arguments(seconds)],
            stdin=self._request(argv, args),
            seconds=seconds + _GRACE,
            limit=(len(self._outputs) + 2) * self._limits["bytes"] + MIB,
        )
        if ran.status:
            raise Failed("SANDBOX_REFUSED", f"the sandbox could not be made: {beginning(ran.err)}")
        return self._result(Report(ran.out), seconds)

    def _arguments(self, seconds: float) -> list[str]:
        limits = self._limits
        sizes = {name: limits[f"{name}_mb"] * MIB for name in ("memory", "workspace", "tmp", "data")}
        given = {
            **self._bubblewrap.arguments(),
            **sizes,
            "seconds": seconds,
            "bytes": limits["bytes"],
            "cpus": limits["cpus"],
            "processes": limits["processes"],
            "outputs": len(self._outputs),
            "groups": "/sys/fs/cgroup",
            "degraded": "yes" if self._degraded else "no",
        }
        return [f"{name}={value}" for name, value in given.items()] + [f"read={each}" for each in self._bubblewrap.read]

    def _request(self, argv: Sequence[str], args: Object) -> bytes:
        """Return what `inside` reads: the program, its environment, its settings, the outputs, the files, its input."""
        limits = self._limits
        settings = {"processes": limits["processes"], "bytes": limits["bytes"]}
        files, contents = self._files(args)
        lists = [argv, _pairs(self._env), _pairs(settings), self._outputs, files]
        value: Any = self._stdin.value(args) if self._stdin else None
        return b"".join([*map(fields, lists), *contents, b"" if value is None else str(value).encode()])

    def _files(self, args: Object) -> tuple[list[str], list[bytes]]:
        names: list[str] = []
        contents: list[bytes] = []
        for folder, target in (("code", "/workspace"), ("data", "/data")):
            source = self._folders[folder].fill(args) or ""
            left = int(self._limits["workspace_mb" if folder == "code" else "data_mb"]) * MIB
            for path in _walk(self._host, source) if source else ():
                with self._host.open(path) as file:
                    data = file.read(left + 1)
                left -= len(data)
                if left < 0 or len(contents) >= _MOST_FILES:
                    raise Failed("ARGUMENT_REFUSED", f"{source}: the files do not fit into {target}")
                names += [f"{target}/{relpath(path, source)}", str(len(data))]
                contents.append(data)
        return names, contents

    def _result(self, report: "Report", seconds: float) -> Json:
        program = self._command.program
        if report.ended in _WHY:
            code, why = _WHY[report.ended]
            raise Failed(code, f"{program} {why.format(**{**self._limits, 'seconds': seconds})}")
        if not report.begun:
            raise Failed("SANDBOX_REFUSED", f"the sandbox could not be made: {beginning(report.err)}")
        if report.status not in self._statuses:
            raise Failed("PROCESS_FAILED", f"{program} {report.describe_end()}")
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


class Report:
    """What the launcher said about one run."""

    def __init__(self, raw: bytes) -> None:
        parts = []
        while raw:
            (size,) = _SIZE.unpack_from(raw)
            parts.append(raw[_SIZE.size : _SIZE.size + size])
            raw = raw[_SIZE.size + size :]
        head, self.out, self.err, *outputs = parts
        fields = dict(field.split("=", 1) for field in head.decode().split("\0"))
        self.ended, self.begun, self.status = fields["ended"], fields["begun"] == "yes", int(fields["status"])
        self.limits = {name[6:]: value for name, value in fields.items() if name.startswith("limit.")}
        self.outputs = [each[1:] if each[:1] == b"+" else None for each in outputs]

    def describe_end(self) -> str:
        """Return how the program ended, and the beginning of what it said."""
        status = self.status
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        said = beginning(self.err) or beginning(self.out)
        return f"{how}: {said}" if said else how


def _walk(host: Host, folder: str) -> Iterator[str]:
    for entry in host.scan(folder):
        if entry.folder:
            yield from _walk(host, entry.path)
        else:
            yield entry.path


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def fields(values: Sequence[str]) -> bytes:
    """Return *values* as `inside` reads them: a size, then the values separated by NUL."""
    data = "\0".join(values).encode()
    return _SIZE.pack(len(data)) + data
