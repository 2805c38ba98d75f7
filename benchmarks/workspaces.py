"""Real workspaces in temporary folders, with what the benchmarks govern: `echo`, hooks, a policy, schemas."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import importlib_metadata
import orjson

from deedbook import Call, GateSpec, Host, Json, Object, hookimpl, open_kernel
from deedbook.charter.settings import CheckpointSettings
from deedbook.plugins.plugins import discover
from deedbook.sessions.session import Session
from deedbook_log.checkpoints.operations import LogOperations
from deedbook_testing.lab import OfferedDistribution

ARGS: Final = {"text": "The quarterly report is ready for review; two figures are still missing."}
"""The arguments of `echo`, which never change."""


class Observe:
    """A hook that looks at results and leaves them as they are."""

    spec = GateSpec(settings={"type": "object", "additionalProperties": False}, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:
        """Bind; there is nothing to set."""

    @hookimpl
    def post_tool_use(self, call: Call, result: Json) -> Json:
        """Return the result."""
        return result


_OFFERED: Final = OfferedDistribution("benchmarks", [("deedbook.hooks", "observe", f"{__name__}:Observe")])


@contextmanager
def session(
    *,
    durability: str = "os",
    effects: str = "none",
    guards: int = 1,
    strangers: int = 0,
    observers: int = 0,
    policy: bool = True,
    log: bool = False,
) -> Iterator[Session]:
    """Begin a session in a new workspace: `echo`, with the schemas of its plugin, and a *policy* of the kind ``rules``.

    *guards* is the number of hooks that allow the call before it, *observers* of those that look at its result, and
    *strangers* of those that are about another ability. With *log* the workspace has a log with a key, and checkpoints
    are as frequent as they are by themselves.
    """
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        system = Path(folder) / ".system"
        (system / "hooks").mkdir(parents=True)
        _settings(system, durability, effects, policy=policy, key=f"{folder}/log.key" if log else "")
        _hooks(system, guards, strangers, observers)
        with open_kernel(folder, catalogue=discover([_OFFERED, *importlib_metadata.distributions()])) as kernel:
            if log:
                LogOperations(
                    kernel.state,
                    kernel.ledger,
                    CheckpointSettings.read(
                        kernel.active_charter.charter.document.get("checkpoints", {}), kernel.site.root
                    ),
                ).rotate_key(lost=False)
            with kernel.session("call") as made:
                yield made


def ledger_file(made: Session) -> Path:
    """Return where the session's ledger is."""
    return Path(made.ledger._folder.path) / ".events.jsonl"


def _settings(system: Path, durability: str, effects: str, *, policy: bool, key: str) -> None:
    rule = {"match": {"abilities": ["echo"]}, "then": "allow", "reason": "every principal may use it"}
    echo = {"summary": "Echo a text back.", "handler": {"tool": "echo"}, "effects": effects, "timeout_ms": 5000}
    settings: dict[str, Any] = {
        "schema_version": "v1",
        "profile": "bench",
        "profiles": {"bench": {"durability": durability}},
        "abilities": {"echo": echo},
        "default": {"write": "allow"},
    }
    if key:
        settings["checkpoints"] = {"key": key}
    if policy:
        settings["policies"] = {"baseline": {"kind": "rules", "rules": [rule], "default": "deny"}}
    _yaml(system / "deedbook.yaml", settings)


def _hooks(system: Path, guards: int, strangers: int, observers: int) -> None:
    for number in range(guards):
        _hook(system, f"guard-{number}", "PreToolUse", "allow", "echo")
    for number in range(strangers):
        _hook(system, f"stranger-{number}", "PreToolUse", "allow", "another")
    for number in range(observers):
        _hook(system, f"observer-{number}", "PostToolUse", "observe", "echo")


def _hook(system: Path, name: str, event: str, handler: str, ability: str) -> None:
    body = {"id": name, "event_type": event, "handler": {"hook": handler}, "match": {"abilities": [ability]}}
    _yaml(system / "hooks" / f"{name}.yaml", {"schema_version": "v1", **body})


def _yaml(path: Path, document: Any) -> None:
    """Write *document* as JSON, which is YAML."""
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
