"""Listening sockets in a held folder, only for its owner; and which user is at the other end of a connection."""

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
"""The first descriptor that a service manager hands over (sd_listen_fds(3))."""
_COUNT: Final = re.compile("[0-9]{1,4}")
_UCRED: Final = "3i"
_XUCRED: Final = "IIh"
"""The beginning of ``struct xucred`` of macOS and the BSDs: version, user id, number of groups."""


def listen(folder: Folder, name: str) -> socket.socket:
    """Return a socket that listens at *name* in *folder* (0600), in the place of one that nobody listens at any more.

    The caller knows that nobody does. Raises `FileRefused` if something else has the name, or if others may write in
    *folder*, who could put a socket of theirs in its place; and `OSError`.
    """
    with folder.hold() as fd:
        if os.fstat(fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = "others may write in it, and could answer in place of the runtime; say: chmod go-w"
            raise FileRefused(fault("PATH_REFUSED", why, place=folder.path))
        _clear(folder, fd, name)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(OSError):
                os.fchmod(made.fileno(), 0o600)  # on Linux the name is made with these permissions
            before = os.umask(0o177)
            try:
                with address(fd, name) as at:
                    made.bind(at)
            finally:
                os.umask(before)
            made.listen(BACKLOG)
        except BaseException:
            made.close()
            raise
    return made


def handed_over(environment: Mapping[str, str]) -> dict[str, socket.socket]:
    """Return the listening sockets that a service manager opened for this process, by their file names.

    So other users can be let in: they reach a socket in a folder of the manager's, with permissions of its own.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return {}
    found = {}
    count = environment.get("LISTEN_FDS", "0")
    if not _COUNT.fullmatch(count):
        raise DeedbookError(fault("USAGE", f"LISTEN_FDS is {count[:40]!r}, and no number of sockets"))
    for fd in range(_FIRST, _FIRST + int(count)):
        os.set_inheritable(fd, False)
        made = socket.socket(fileno=fd)
        found[os.path.basename(str(made.getsockname()))] = made  # noqa: PTH119 - a name, not a file to be opened
    return found


def notify(environment: Mapping[str, str], said: bytes) -> None:
    """Tell the service manager something, if there is one that wants to know (sd_notify(3))."""
    place = environment.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            speaking.sendto(said, f"\0{place[1:]}" if place.startswith("@") else place)


def peer(connection: socket.socket) -> int:
    """Return the user id of the process that connected, as it was then; raises `OSError`."""
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_UCRED))
        return int(struct.unpack(_UCRED, raw)[1])
    raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED
    return int(struct.unpack_from(_XUCRED, raw)[1])


def _clear(folder: Folder, fd: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        why = "is there and is no socket; look at it, and move it out of the way"
        raise FileRefused(fault("PATH_REFUSED", why, place=f"{folder.path}/{name}"))
    folder.remove(name)
