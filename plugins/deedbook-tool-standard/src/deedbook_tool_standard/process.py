"""``tool: process``: one program, called with arguments that YAML spells out, without a shell."""

import json
import sysconfig
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object

from .command import command, command_faults, stdin_faults, stdin_of
from .outputs import FORMS, Mask, beginning, diagnostic
from .shapes import SECRET, strict
from .templates import misfits, parse

SECONDS = 60.0
BYTES = 1024 * 1024
_ARGUMENT: Object = {"type": "string", "maxLength": 8192}
_SETTINGS = strict(
    {
        "argv": {
            "description": "The program and its arguments, one each; a list within is a group that may be left out",
            "type": ["array", "string"],
            "minItems": 1,
            "items": {"anyOf": [_ARGUMENT, {"type": "array", "minItems": 1, "items": _ARGUMENT}]},
        },
        "stdin": {"description": 'One placeholder, such as "{text}"'},
        "cwd": {"type": "string", "minLength": 1},
        "env": {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": {"anyOf": [{"type": "string"}, SECRET]},
        },
        "limits": strict(
            {
                "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
                "bytes": {"type": "integer", "minimum": 1, "maximum": 16 * 1024 * 1024},
            },
            optional=frozenset({"seconds", "bytes"}),
        ),
        "output": {"enum": ["text", "json", "lines"]},
        "statuses": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "integer", "minimum": 0, "maximum": 255},
        },
        "dashes": {"enum": ["allow", "refuse"]},
        "programs": {
            "description": "Where the program is: system, or pip for those that pip installed beside Deedbook",
            "enum": ["system", "pip"],
        },
    },
    optional=frozenset({"stdin", "cwd", "env", "limits", "output", "statuses", "dashes", "programs"}),
)


_SYSTEM: str = "/usr/local/bin:/usr/bin:/bin"
"""The PATH of every program that sets none."""


def pip_path() -> str:
    """Return a PATH that begins with the folder of the programs that pip installed beside Deedbook."""
    return f"{sysconfig.get_path('scripts')}:{_SYSTEM}"


def check(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an ability of this tool."""
    settings, schema = declared.settings, declared.schema_in
    if declared.effects is None:
        yield "", "say what the program does to the world: effects: read, write or irreversible"
    if schema is None:
        yield "", "schema_in is missing: it declares the arguments that the placeholders stand for"
        return
    if settings.get("programs") == "pip" and "PATH" in settings.get("env", {}):
        yield "/with/programs", "programs: pip sets PATH, and so does env; leave one of them out"
    for pointer, why in (*command_faults(settings, schema), *stdin_faults(settings, schema)):
        yield f"/with{pointer}", why
    try:
        yield from (("/with/cwd", why) for why in misfits(parse(settings.get("cwd", "")), schema))
    except ValueError as problem:
        yield "/with/cwd", str(problem)


class Process:
    """Run one program: what it takes is the ability's ``schema_in``, what it gives depends on ``output``.

    ``text`` gives ``{status, stdout, stderr}``, ``lines`` ``{status, lines, stderr}``, ``json`` the parsed document.
    """

    spec = HandlerSpec(settings=_SETTINGS, gives={}, effects="read", interruptible=True, check=check)

    def __init__(self, settings: Object, host: Host) -> None:
        self._run = host.run
        self._command = command(settings)
        self._program = self._command.program
        self._stdin = stdin_of(settings)
        self._cwd = parse(settings.get("cwd", ""))
        env = settings.get("env", {})
        self._env = {name: value for name, value in env.items() if isinstance(value, str)}
        if settings.get("programs") == "pip":
            self._env["PATH"] = pip_path()
        secrets = {name: value["secret"] for name, value in env.items() if not isinstance(value, str)}
        self._secrets = {name: host.secret(secret) for name, secret in secrets.items()}
        self._mask = Mask([(secrets[name], secret) for name, secret in self._secrets.items()])
        self._limits = MappingProxyType({"seconds": SECONDS, "bytes": BYTES, **settings.get("limits", {})})
        self._output: str = settings.get("output", "text")
        self._statuses = frozenset(settings.get("statuses", (0,)))

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Run; ``PROCESS_FAILED``, ``ARGUMENT_REFUSED``, ``OUTPUT_REFUSED``, and what the host says."""
        seconds = min(ctx.remaining(), self._limits["seconds"])
        if seconds <= 0:
            raise Failed("TOOL_TIMEOUT", "the call was cancelled or its time is up; nothing was started")
        ran = self._run(
            self._command.fill(args),
            stdin=self._input(args),
            env={**self._env, **{name: secret.reveal() for name, secret in self._secrets.items()}},
            cwd=self._cwd.fill(args) or "",
            seconds=seconds,
            limit=int(self._limits["bytes"]),
        )
        out, err = self._mask(ran.out), self._mask(ran.err)
        if ran.status not in self._statuses:
            raise Failed("PROCESS_FAILED", self._failure(ran.status, err))
        made = FORMS[self._output](out, f"the output of {self._program}")
        if self._output == "json":
            return made
        name = "stdout" if self._output == "text" else "lines"
        return {"status": ran.status, name: made, "stderr": diagnostic(err)}

    def command_line(self, args: Object, /) -> tuple[list[str], str]:
        """Return the program with its arguments, and its folder."""
        return self._command.fill(args), self._cwd.fill(args) or ""

    def _input(self, args: Object) -> bytes:
        value: Any = self._stdin.value(args) if self._stdin else None
        if value is None:
            return b""
        return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()

    def _failure(self, status: int, err: bytes) -> str:
        said = beginning(err)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"{self._program} {how}" + (f": {said}" if said else "")
