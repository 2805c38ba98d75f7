"""Listening sockets that only their owner can use, and the user at the other end of a connection."""

import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from deedbook.format.errors import DeedbookError, FileRefused, fault
from deedbook.format.files import Folder

from .addresses import address

BACKLOG: Final = 256
_FIRST: Final = 3
"""The first descriptor that a service manager passes (sd_listen_fds(3))."""
_COUNT: Final = re.compile("[0-9]{1,4}")
_UCRED: Final = "3i"
_XUCRED: Final = "IIh"
"""The beginning of ``struct xucred`` of macOS and the BSDs: version, user id, number of groups."""


def listen(folder: Folder, name: str) -> socket.socket:
    """Return a socket that listens at *name* in *folder* (0600); it replaces a stale socket.

    The caller has made sure that no process listens there. Raises `FileRefused` if another kind of file has the name,
    or if others may write in *folder* and could replace the socket; and `OSError`.
    """
    with folder.hold() as fd:
        if os.fstat(fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = "others may write in it, and could answer in place of the runtime; say: chmod go-w"
            raise FileRefused(fault("PATH_REFUSED", why, place=folder.path))
        _remove_stale(folder, fd, name)
        created = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(OSError):
                os.fchmod(created.fileno(), 0o600)  # on Linux the socket's file gets these permissions
            before = os.umask(0o177)
            try:
                with address(fd, name) as at:
                    created.bind(at)
            finally:
                os.umask(before)
            created.listen(BACKLOG)
        except BaseException:
            created.close()
            raise
    return created


def take_inherited(environment: Mapping[str, str]) -> dict[str, socket.socket]:
    """Return the listening sockets that a service manager opened for this process, by their file names.

    This lets other users in: they reach a socket in a folder of the manager's, with its own permissions.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return {}
    found = {}
    count = environment.get("LISTEN_FDS", "0")
    if not _COUNT.fullmatch(count):
        raise DeedbookError(fault("USAGE", f"LISTEN_FDS is {count[:40]!r}, and no number of sockets"))
    for fd in range(_FIRST, _FIRST + int(count)):
        os.set_inheritable(fd, False)
        created = socket.socket(fileno=fd)
        found[os.path.basename(str(created.getsockname()))] = created  # noqa: PTH119 - a name, not a file to open
    return found


def notify(environment: Mapping[str, str], message: bytes) -> None:
    """Send a message to the service manager, if it asked for messages (sd_notify(3))."""
    place = environment.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.sendto(message, f"\0{place[1:]}" if place.startswith("@") else place)


def get_peer_uid(connection: socket.socket) -> int:
    """Return the user id of the process that connected, at the time of connecting; raises `OSError`."""
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_UCRED))
        return int(struct.unpack(_UCRED, raw)[1])
    raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED
    return int(struct.unpack_from(_XUCRED, raw)[1])


def _remove_stale(folder: Folder, fd: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        why = "is there and is no socket; look at it, and move it out of the way"
        raise FileRefused(fault("PATH_REFUSED", why, place=f"{folder.path}/{name}"))
    folder.remove(name)
