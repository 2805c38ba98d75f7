"""Keep the process of the attacks off the network."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX
from typing import Any, Final

_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
_REFUSED: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind", "socket.getaddrinfo"})


def cut_network() -> bool:
    """Move this process into a network namespace without interfaces; return whether the system allows it.

    Processes that it starts are also there. Call it before any thread is started.
    """
    if sys.platform != "linux":
        return False
    try:
        unshare = ctypes.CDLL(None, use_errno=True).unshare
    except (OSError, AttributeError):
        return False
    if unshare(_NEW_NETWORK) == 0:  # root may do this as it is
        return True
    user, group = os.geteuid(), os.getegid()
    if unshare(_NEW_USER | _NEW_NETWORK) != 0:
        return False
    own = Path("/proc/self")
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in maps.items():
        with suppress(OSError):  # the user id is then unmapped; the network is cut off all the same
            (own / name).write_text(text, encoding="ascii")
    return True


def block_sockets() -> None:
    """Let Python code in this process reach no address outside this machine's own sockets; it cannot be undone."""
    sys.addaudithook(_refuse)


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if event not in _REFUSED or getattr(given[0], "family", None) == AF_UNIX:
        return
    raise PermissionError(f"{event}: the attacks of `deedbook doctor --guarantees` have no network")
