"""What each choice in YAML costs, beside a plain governed call: the figures of docs/costs.md.

Nothing here has a target: the table is for users who choose.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import importlib_metadata
import orjson

from benchmarks.abilities import InstalledDistribution
from benchmarks.measures import Line, Value, missing
from benchmarks.rounds import CPU, WALL, Clock, Plan, Work
from benchmarks.workspaces import _OFFERED, ARGS
from deedbook import open_kernel
from deedbook.format.errors import Err
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.sessions.session import Session
from deedbook_testing.lab import OfferedDistribution

_CLOCKS: Final[Mapping[Clock, str]] = {CPU: "CPU", WALL: "elapsed"}
_CONDITION: Final = "a rule with when"
_ONCE: Final = """read -r line; printf '{"decision":"allow"}'"""
_LINES: Final = """\
import json
for line in open(0):
    print(json.dumps({"id": json.loads(line)["id"], "decision": "allow"}), flush=True)
"""
_ECHO: Final = {"summary": "Echo a text back.", "handler": {"tool": "echo"}, "effects": "none", "timeout_ms": 60000}
_TEXT: Final = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "maxLength": 999}}}
_RULE: Final = {"match": {"abilities": ["echo", "run", "both"]}, "then": "allow", "reason": "every principal may"}
_PLAIN: Final[dict[str, Any]] = {
    "schema_version": "v1",
    "profile": "bench",
    "profiles": {"bench": {"durability": "os"}},
    "abilities": {"echo": _ECHO},
    "policies": {"baseline": {"kind": "rules", "rules": [_RULE], "default": "deny"}},
    "hooks": {"first": {"event_type": "PreToolUse", "handler": {"hook": "allow"}, "match": {"abilities": ["echo"]}}},
}
_PROCESS: Final = {
    "summary": "Run the program that does nothing.",
    "handler": {"tool": "process"},
    "effects": "read",
    "with": {"argv": ["true"]},
    "schema_in": {"type": "object", "additionalProperties": False},
    "schema_out": True,
}
_SEQUENCE: Final = {
    "summary": "Echo twice.",
    "handler": {"tool": "sequence"},
    "effects": "read",
    "uses": ["echo"],
    "with": {
        "steps": [
            {"id": "one", "ability": "echo", "args": {"text": {"from": "/args/text"}}},
            {"id": "two", "ability": "echo", "args": {"text": {"from": "/args/text"}}},
        ],
        "result": {"text": {"from": "/steps/two/text"}},
    },
    "schema_in": {**_TEXT, "additionalProperties": False},
    "schema_out": {"type": "object", "required": ["text"]},
}

_POINTS: Final = [
    ("deedbook.tools", "echo", "deedbook_tool_standard.echo:Echo"),
    ("deedbook.hooks", "allow", "deedbook_hook_standard.guards:Allow"),
    ("deedbook.policy_kinds", "rules", "deedbook_policy_standard.rules:Rules"),
]
"""What a start needs. A distribution whose code has a digest counts as a wheel, one without as installed in place."""


def run(plan: Plan) -> Iterator[Line]:
    """Measure calls that differ from the plain one in one choice, and then starts."""
    computing = _computing()
    if find_spec("cel_expr_python") is None:
        del computing[_CONDITION]
        yield missing(_CONDITION, "cel-expr-python")
    yield from _compared(plan, computing, CPU)
    yield from _compared(plan, _waiting(), WALL)
    yield from _starts(plan)


def _compared(plan: Plan, choices: dict[str, tuple[Any, ...]], clock: Clock) -> Iterator[Line]:
    with ExitStack() as held:
        works = {name: held.enter_context(_call(*choice)) for name, choice in choices.items()}
        times = plan.take_turns(works, clock=clock, rounds=41, batch_ns=4_000_000)
    yield Value(f"a plain governed call: {_CLOCKS[clock]}", times.micros("plain"), "µs")
    for name in works:
        if name != "plain":
            yield Value(f"{name}: to a plain call, {_CLOCKS[clock]}", times.ratio(name, "plain"))


def _computing() -> dict[str, tuple[Any, ...]]:
    """Return the choices that cost computing alone: the thread's CPU time tells what they take."""
    others = [{"match": {"abilities": [f"other{number}"]}, "then": "allow"} for number in range(499)]
    asks = [{**_RULE, "match": {"abilities": ["echo"], "args": {"/text": f"m{number}"}}} for number in range(9)]
    observer = _hook(event_type="PostToolUse", handler={"hook": "observe"})
    return {
        "plain": (_with(),),
        "no hook and no policy": ({**_with(), "hooks": {}, "policies": {}},),
        "observe": ({**_with(), "enforcement": "observe"},),
        "boundary, reading": (_with(profiles={"bench": {"durability": "boundary"}}),),
        "one more hook, inline": (_with(hooks={"more": _hook()}),),
        "ten more hooks, inline": (_with(hooks={f"more{number}": _hook() for number in range(10)}),),
        "a hook at PostToolUse": (_with(hooks={"more": observer}),),
        "10 rules, one can match": (_rules([*others[:9], _RULE]),),
        "500 rules, one can match": (_rules([*others, _RULE]),),
        "10 rules, all can match": (_rules([*asks, _RULE]),),
        _CONDITION: (_rules([{**_RULE, "when": "args.text != 'secret'"}]),),
        "narrowing in YAML": (_with(abilities={"echo": {**_ECHO, "schema_in": _TEXT, "schema_out": _TEXT}}),),
        "a sequence of two, from plain code": (_with(abilities={"both": _SEQUENCE}), "both"),
        "denied by the policy": (_rules([{**_RULE, "then": "deny"}]),),
    }


def _waiting() -> dict[str, tuple[Any, ...]]:
    """Return the choices that make a caller wait: for the disk, another thread, another process."""
    return {
        "plain": (_with(),),
        "boundary, writing": (_with(profiles={"bench": {"durability": "boundary"}}, effects="write"),),
        "always": (_with(profiles={"bench": {"durability": "always"}}),),
        "sealing an argument": ({**_with(), "seal": ["tool.*/args/text"]},),
        "one more hook, thread": (_with(hooks={"more": _hook(isolation="thread")}),),
        "one more hook, worker": (_with(hooks={"more": _hook(isolation="worker")}),),
        "one more hook, script lines": (_with(hooks={"more": _script("lines", "python3", "scripts/lines.py")}),),
        "one more hook, script once": (_with(hooks={"more": _script("once", "sh", "scripts/once.sh")}),),
        "parked for a person": (_rules([{**_RULE, "then": "ask"}]),),
        "a program": (_with(abilities={"run": _PROCESS}), "run", {}),
    }


def _with(effects: str = "none", **more: Mapping[str, Any]) -> dict[str, Any]:
    settings = deepcopy(_PLAIN)
    settings["abilities"]["echo"]["effects"] = effects
    for section, entries in more.items():
        settings[section] = {**settings[section], **entries}
    return settings


def _rules(rules: list[dict[str, Any]]) -> dict[str, Any]:
    return _with(policies={"baseline": {"kind": "rules", "rules": rules, "default": "deny"}})


def _hook(**more: Any) -> dict[str, Any]:
    own = {"event_type": "PreToolUse", "handler": {"hook": "allow"}, "match": {"abilities": ["echo"]}}
    return {**own, "timeout_ms": 60000, **more}


def _script(protocol: str, *argv: str) -> dict[str, Any]:
    return _hook(handler={"script": list(argv)}, protocol=protocol)


@contextmanager
def _call(settings: dict[str, Any], ability: str = "echo", args: Any = ARGS) -> Iterator[Work]:
    """Begin a session in a new workspace with these *settings*, and return one call in it."""
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        root = _workspace(Path(folder), settings)
        with open_kernel(root, catalogue=_catalogue()) as kernel, kernel.session("call") as made:
            _check(made, ability, args)
            yield lambda: made.call(ability, args)


def _check(made: Session, ability: str, args: Any) -> None:
    """See to it that the call does what it is meant to; the first one also starts what is kept."""
    said = made.call(ability, args)
    assert not isinstance(said, Err) or said.error.code in ("NEEDS_HUMAN", "GATE_DENIED"), said


def _workspace(root: Path, settings: dict[str, Any]) -> Path:
    """Write *settings*, policies in files of their own, and the two scripts."""
    system = root / ".system"
    for name, policy in settings.pop("policies").items():
        place = system / "policies" / f"{name}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(orjson.dumps({"schema_version": "v1", "id": name, "match": {"kind": "tool"}, **policy}))
    system.mkdir(parents=True, exist_ok=True)
    (system / "deedbook.yaml").write_bytes(orjson.dumps(settings))
    (root / "scripts").mkdir()
    (root / "scripts" / "lines.py").write_text(_LINES)
    (root / "scripts" / "once.sh").write_text(_ONCE)
    return root


def _catalogue() -> Catalogue:
    return discover([_OFFERED, *importlib_metadata.distributions()])


# --- starts -----------------------------------------------------------------------------------------------------------


def _starts(plan: Plan) -> Iterator[Line]:
    """Measure a start that finds nothing changed beside one that has to read and compile the workspace."""
    places = {"wheels": discover([InstalledDistribution("benchmarks", _POINTS)])}
    places["in place"] = discover([OfferedDistribution("benchmarks", _POINTS)])
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        roots = {name: _workspace(Path(folder) / name, _with()) for name in places}
        works = {name: _start(roots[name], places[name]) for name in places}
        times = plan.take_turns(works, clock=WALL)
    yield Value("a start with plugins from wheels: elapsed", times.micros("wheels").times(1e-3), "ms")
    yield Value("a start with plugins in place: to one with wheels, elapsed", times.ratio("in place", "wheels"))


def _start(root: Path, catalogue: Catalogue) -> Work:
    return lambda: open_kernel(root, catalogue=catalogue).close()
