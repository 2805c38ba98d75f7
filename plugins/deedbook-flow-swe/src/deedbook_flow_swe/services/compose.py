"""The services of a pipeline as a Compose file: runner, agents, executor.

See https://github.com/compose-spec/compose-spec.

The runner alone has the workspace, the keys and a way out to the models. Each agent has its inbox and nothing else. The
executor has the limits that the tool ``sandbox`` gives a program. Its socket stands in a folder that it shares with the
runner, and it serves the runner's user alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook.format.ownership import TRUSTED

from .places import INBOX

EXECUTOR: Final = "executor"
RUNNER: Final = "pipeline-runner"
_SOCKETS: Final = "/run/executor"
"""Where the runner and the executor see the socket of the executor."""
_WORKSPACE: Final = "/workspace"
"""Where the runner sees the workspace; it names it, so that no folder of a repository is taken for it.

It is trusted whoever owns the mount: this file lies in it, and decides already what the services run.
"""
_NOBODY: Final = 65534
_USER: Final = f"{_NOBODY}:{_NOBODY}"
_RUNNER: Final = "${DEEDBOOK_UID:-0}"
"""The user of the runner: the owner of the workspace. The agents have the same one, since they write into inboxes."""
_RUNNER_AND_GROUP: Final = f"{_RUNNER}:${{DEEDBOOK_GID:-0}}"
_FOLDER_OF_SOCKET: Final[Mapping[str, Any]] = {
    "driver": "local",
    "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": f"size=1m,uid={_NOBODY},gid={_NOBODY},mode=0755"},
}
"""A volume in which the executor may make its socket; a new volume belongs to root otherwise."""
_LASTING: Final[Mapping[str, Any]] = {"restart": "unless-stopped"}
_CONFINED: Final[Mapping[str, Any]] = {
    "user": _USER,
    "read_only": True,
    "network_mode": "none",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
"""No network, no files but those that are mounted, no rights."""


@attrs.frozen(kw_only=True)
class Layout:
    """What the services are made from: the pipeline's *agents*, its *data* folder, and *variables* with secrets."""

    agents: Sequence[str]
    data: str
    variables: Iterable[str] = ()


def build_compose(layout: Layout) -> dict[str, Any]:
    """Return the Compose file as JSON."""
    services = {RUNNER: _runner(layout)}
    services |= {agent: _agent(layout, agent) for agent in layout.agents}
    services[EXECUTOR] = _executor()
    return {
        "name": "deedbook",
        "services": services,
        "networks": {"models": {"driver": "bridge"}},
        "volumes": {EXECUTOR: dict(_FOLDER_OF_SOCKET)},
    }


def _inbox(layout: Layout, name: str) -> str:
    folder = f"{layout.data}/{INBOX}/{name}".removeprefix("./")
    return f"./{folder}:/inbox/{name}"


def _runner(layout: Layout) -> dict[str, Any]:
    return {
        "build": ".",
        "user": _RUNNER_AND_GROUP,
        "working_dir": _WORKSPACE,
        "command": ["deedbook", "-C", _WORKSPACE, "swe", "run", "--all", "--every", "${DEEDBOOK_POLL_SECONDS:-10}"],
        **_LASTING,
        "stop_grace_period": "1m",
        "environment": {TRUSTED: _WORKSPACE, **{name: f"${{{name}:-}}" for name in sorted(layout.variables)}},
        "volumes": [f".:{_WORKSPACE}", f"{EXECUTOR}:{_SOCKETS}"],
        "networks": ["models"],
        "depends_on": [*layout.agents, EXECUTOR],
        "security_opt": ["no-new-privileges:true"],
    }


def _agent(layout: Layout, agent: str) -> dict[str, Any]:
    return {
        "build": ".",
        "command": ["deedbook", "swe", "agent", agent, "--inbox", "/inbox"],
        **_LASTING,
        "volumes": [_inbox(layout, agent)],
        **_CONFINED,
        "user": _RUNNER_AND_GROUP,
    }


def _executor() -> dict[str, Any]:
    return {
        "build": ".",
        "command": ["python3", "-m", "deedbook_tool_sandbox.executor", f"{_SOCKETS}/socket", "--peer", _RUNNER],
        **_LASTING,
        "volumes": [f"{EXECUTOR}:{_SOCKETS}"],
        "tmpfs": ["/tmp:size=256m", "/workspace:size=512m,uid=65534,gid=65534"],  # noqa: S108 - the container's own
        "cpus": 2.0,
        "mem_limit": "512m",
        "pids_limit": 128,
        **_CONFINED,
    }
