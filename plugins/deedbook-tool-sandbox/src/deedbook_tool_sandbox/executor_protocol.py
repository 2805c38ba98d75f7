"""How the tool and an executor talk: over a Unix socket, one connection for each launcher.

Each side begins with one message, which is a size and JSON: the tool says what the launcher has to be started with
(`LauncherOrder`), and the executor answers whether it started it (`encode_answer`). After that, the connection carries
what a launcher reads and writes. See unix(7) for ``SO_PEERCRED``.
"""

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from deedbook.contract import Failed, Object
from deedbook_tool_standard.outputs import document

from .launchers import SIZE

MOST: Final = 65_536
"""Bytes of a message."""
LIMITS: Final = ("bytes", "memory_mb", "cpus", "processes", "workspace_mb", "tmp_mb", "data_mb")
"""The limits of a program that a launcher is started with: whole numbers."""
_CREDENTIALS: Final = struct.Struct("3i")
_MEMBERS: Final = frozenset({"limits", "environment", "degraded", "schema_version"})


class BadMessage(Exception):  # noqa: N818 - a message, not a fault
    """The other side sent something else than a message; the text says what."""


@attrs.frozen
class LauncherOrder:
    """What a launcher is started with: *limits*, the setting *environment* if there is one, and *degraded*."""

    limits: Mapping[str, int]
    environment: Object | None
    degraded: bool

    def encode(self) -> bytes:
        """Return the message."""
        return encode_message(
            {
                "limits": {name: self.limits[name] for name in LIMITS},
                "environment": self.environment,
                "degraded": self.degraded,
                "schema_version": "v1",
            }
        )

    @classmethod
    def receive(cls, connection: socket.socket) -> Self:
        """Read the message; raises `BadMessage` and `OSError`."""
        value = receive_message(connection)
        if value.keys() != _MEMBERS or value["schema_version"] != "v1":
            raise BadMessage("it is no order of a launcher")
        limits, environment = value["limits"], value["environment"]
        if not isinstance(limits, dict) or limits.keys() != {*LIMITS} or not all(map(_is_count, limits.values())):
            raise BadMessage(f"the limits are not positive whole numbers: {', '.join(LIMITS)}")
        if environment is not None and not _is_environment(environment):
            raise BadMessage("the environment is no {path, digest}")
        if not isinstance(value["degraded"], bool):
            raise BadMessage("degraded is neither true nor false")
        return cls(limits, environment, value["degraded"])


def encode_answer(code: str | None = None, why: str = "") -> bytes:
    """Return the executor's answer: the launcher was started, or was refused with *code*."""
    return encode_message({"refused": code and [code, why[:2000]], "schema_version": "v1"})


def receive_answer(connection: socket.socket) -> tuple[str, str] | None:
    """Read the executor's answer and return the refusal, if it is one; raises `BadMessage` and `OSError`."""
    match receive_message(connection):
        case {"refused": None, "schema_version": "v1"}:
            return None
        case {"refused": [str() as code, str() as why], "schema_version": "v1"}:
            return code, why
    raise BadMessage("it is no answer of an executor")


def encode_message(value: Object) -> bytes:
    """Return a message: its size and JSON."""
    data = json.dumps(value).encode()
    return SIZE.pack(len(data)) + data


def receive_message(connection: socket.socket) -> dict[str, Any]:
    """Read a message, within the connection's time; raises `BadMessage` and `OSError`."""
    (size,) = SIZE.unpack(_receive(connection, SIZE.size))
    if size > MOST:
        raise BadMessage(f"it has more than {MOST} bytes")
    try:
        value = document(_receive(connection, size), "it")
    except Failed as problem:
        raise BadMessage(str(problem)) from None
    if not isinstance(value, dict):
        raise BadMessage("it is no object")
    return value


def get_peer(connection: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _receive(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = connection.recv(size - len(found))
        if not data:
            raise BadMessage("the connection ended")
        found += data
    return bytes(found)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40


def _is_environment(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"path"} <= value.keys() <= {"path", "digest"}
        and all(isinstance(each, str) and "\0" not in each for each in value.values())
        and value["path"].startswith("/")
    )
