"""The command line as its users have it: whole processes of a Deedbook that is installed from wheels.

Each command runs beside a Python of the same environment that imports the libraries which the command cannot do
without, and does no more. The quick form uses the installation that runs the benchmarks.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.measures import Line, Skip, Value
from benchmarks.processes import Program, in_turns
from benchmarks.rounds import Plan

_ROOT: Final = Path(__file__).parents[1]
_ROUNDS: Final = 25
_SESSIONS: Final = 10
_CALL: Final = ("call", "echo", "--args", '{"text": "hello"}')
_RECORDS: Final = "click, orjson, attrs, ruamel.yaml"
"""What a command needs that reads a workspace's YAML and a ledger."""
_IMPORTS: Final[Mapping[str, str]] = {
    "call": _RECORDS,
    "--help": "click",
    "sessions": _RECORDS,
    "verify": f"{_RECORDS}, fastjsonschema",
}
"""The libraries that each command cannot do without."""
_TITLES: Final[Mapping[str, str]] = {
    "call": "`deedbook call echo`, warm",
    "--help": "`deedbook --help`",
    "sessions": f"`deedbook sessions`, {_SESSIONS} sessions",
    "verify": "`deedbook verify`, a ledger of 5 events",
}
_HOOK: Final = {"event_type": "PreToolUse", "handler": {"hook": "allow"}, "match": {"abilities": ["echo"]}}
_SETTINGS: Final[dict[str, Any]] = {
    "schema_version": "v1",
    "abilities": {"echo": {"summary": "Echo a text back.", "handler": {"tool": "echo"}}},
    "policies": {"baseline": {"kind": "rules", "rules": [{"match": {"abilities": ["echo"]}, "then": "allow"}]}},
    "hooks": {"first": _HOOK},
}


def run(plan: Plan) -> Iterator[Line]:
    """Measure four commands, each beside its imports and beside an empty Python; elapsed time and CPU time."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as name:
        folder = Path(name)
        try:
            binaries = Path(sys.executable).parent if plan.quick else _installed(folder / "venv")
        except subprocess.CalledProcessError as problem:
            why = (problem.stderr or "").strip().splitlines()[-1:] or [str(problem)]
            yield Skip(f"commands: skipped, this checkout cannot be installed with venv and pip: {why[0]}")
            return
        programs = _programs(folder, binaries, plan.size(_SESSIONS, 1))
        elapsed, cpu = in_turns(programs, plan.size(_ROUNDS, 1))
    yield Value("an empty Python: elapsed", elapsed.micros("empty").times(1e-3), "ms")
    yield Value("an empty Python: CPU", cpu.micros("empty").times(1e-3), "ms")
    for name, title in _TITLES.items():
        imports = _IMPORTS[name]
        yield Value(f"{title}: elapsed", elapsed.micros(name).times(1e-3), "ms")
        yield Value(f"{title}: CPU", cpu.micros(name).times(1e-3), "ms")
        yield Value(f"{title}: to `import {imports}`, elapsed", elapsed.ratio(name, imports))
        yield Value(f"{title}: to `import {imports}`, CPU", cpu.ratio(name, imports))
        yield Value(f"{title}: to an empty Python, CPU", cpu.ratio(name, "empty"))


def _installed(venv: Path) -> Path:
    """Install this checkout and its plugins from wheels into a new environment; return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True, text=True)
    plugins = sorted(str(path.parent) for path in (_ROOT / "plugins").glob("*/pyproject.toml"))
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", str(_ROOT), *plugins]
    subprocess.run([str(venv / "bin/python"), *install], check=True, capture_output=True, text=True)
    return venv / "bin"


def _programs(folder: Path, binaries: Path, sessions: int) -> dict[str, Program]:
    """Return every program to be run, in workspaces that have been used before."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_", "DEEDBOOK"))}
    env |= {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "cache"), "LANG": "C.UTF-8"}
    deedbook, python = str(binaries / "deedbook"), str(binaries / "python")
    called, read = _workspace(folder / "called"), _workspace(folder / "read")
    for root in (called, *[read] * sessions):
        subprocess.run([deedbook, *_CALL], check=True, capture_output=True, cwd=root, env=env)
    if binaries.parent == folder / "venv":
        _check_warm(deedbook, called, env)
    ledger = str(next(read.glob(".deedbook/sessions/*/.events.jsonl")))
    commands = {"call": _CALL, "--help": ("--help",), "sessions": ("sessions",), "verify": ("verify", ledger)}
    programs = {
        name: Program((deedbook, *arguments), cwd=called if name == "call" else read, env=env)
        for name, arguments in commands.items()
    }
    imports = {
        each: Program((python, "-c", f"import {each}"), cwd=read, env=env) for each in dict.fromkeys(_IMPORTS.values())
    }
    return {"empty": Program((python, "-c", "pass"), cwd=read, env=env), **imports, **programs}


def _check_warm(deedbook: str, root: Path, env: Mapping[str, str]) -> None:
    """Make sure that a call finds the charter that an earlier one has compiled."""
    env = {**env, "PYTHONPROFILEIMPORTTIME": "1"}
    ran = subprocess.run([deedbook, *_CALL], check=True, capture_output=True, text=True, cwd=root, env=env)
    if "deedbook.charter.compiler" in ran.stderr:
        raise RuntimeError("`deedbook call` compiled its workspace again: it is not warm")


def _workspace(root: Path) -> Path:
    (root / ".system").mkdir(parents=True)
    (root / ".system" / "deedbook.yaml").write_bytes(orjson.dumps(_SETTINGS))
    return root
