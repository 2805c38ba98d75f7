"""Who may own and write files that can run code or change decisions: root and this process's user, and nobody else.

A file is checked through its descriptor where it is opened (`OwnerCheck`), and a folder before anything in it is used.
So nobody but those two users can change a checked file afterwards. A list outside the workspace names the folders that
are trusted although others own or may write them. It is read only if a check fails, so that it costs nothing.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import attrs

from .errors import SourceError, fault
from .paths import shown_path, user_folder

TRUSTED_FILE: Final = "trusted-workspaces"
"""The file in the user's Deedbook folder that lists trusted folders, one absolute path a line."""
TRUSTED: Final = "DEEDBOOK_TRUSTED_WORKSPACES"
"""The environment variable that lists trusted folders, separated as in ``PATH``."""
UNTRUSTED: Final = "WORKSPACE_UNTRUSTED"
"""The code of the errors of this module."""
_ROOT: Final = 0
_NOBODY: Final = 65534
_MAX_LIST: Final = 64 * 1024
_ACL: Final = "system.posix_acl_access"
_MAPPED: Final = Path("/proc/self/uid_map")
_NO_OWNER: Final = Path("/proc/sys/kernel/overflowuid")


class UntrustedError(SourceError):
    """A file or folder that can run code or change decisions, which another user owns or may write."""


@attrs.frozen
class OwnerCheck:
    """Checks the files of the folder *root*: a workspace, or a state folder.

    *also* are other folders whose place in the user's list covers these files as well. *refused* has every error that
    was raised.
    """

    root: Path
    also: tuple[Path, ...] = ()
    refused: list[UntrustedError] = attrs.field(factory=list, init=False, repr=False)

    def __call__(self, found: os.stat_result, place: str, fd: int | str | Path) -> None:
        """Raise `UntrustedError` if others own or may write the file with the status *found*, at *place*.

        *fd* is its descriptor or path, to look for an access control list where its group may write.
        """
        why = find_fault(found, fd)
        if why and not self.trusted:
            raise self.error(place, found, why)

    def path(self, place: Path) -> None:
        """Check what is at *place*, which a link there may lead to; a missing file passes."""
        try:
            self(place.stat(), str(place), place)
        except FileNotFoundError:
            return

    def below(self, place: Path) -> None:
        """Check *place* and the folders between it and the root, from above."""
        for folder in (*reversed(list(_between(place, self.root))), place):
            self.path(folder)

    def above(self) -> None:
        """Check the folders above the root. Who can rename in them can put another folder in its place.

        A sticky folder such as ``/tmp`` passes: there, only the owner of a folder renames it.
        """
        for folder in Path(os.path.realpath(self.root)).parents:
            found = folder.stat()
            why = _find_fault_above(found, folder)
            if why and not self.trusted:
                raise self.error(str(folder), found, f"is above {self.root} and {why}")

    @cached_property
    def trusted(self) -> bool:
        """Whether the user's list names the root, or one of the other folders."""
        named = {os.path.realpath(each) for each in read_trusted(self.root)[0]}
        return any(os.path.realpath(each) in named for each in (self.root, *self.also))

    def error(self, place: str, found: os.stat_result, why: str) -> UntrustedError:
        """Return the error about the file at *place*: its owner and mode, what is wrong, and what to do."""
        unused = "".join(f"; {each}" for each in read_trusted(self.root)[1])
        about = f"owner {_user(found.st_uid)}, group {_group(found.st_gid)}, mode {stat.S_IMODE(found.st_mode):04o}"
        todo = f"correct owner and mode, or, if you trust all who can write there, {_advice(self.root)}"
        made = UntrustedError(fault(UNTRUSTED, f"{why} ({about}); {todo}{unused}", place=shown_path(place)))
        self.refused.append(made)
        return made


def find_fault(found: os.stat_result, fd: int | str | Path) -> str | None:
    """Return why others could change the file with the status *found*; ``None`` if they could not.

    A group may write if it is the private group of root or of this process's user, and no access control list names
    others: then the bits of the group are the list's mask. *fd* is a descriptor or a path.
    """
    if found.st_uid not in (_ROOT, os.geteuid()):
        return f"belongs neither to root nor to the user of this process, {_user(os.geteuid())}"
    if found.st_uid == _NOBODY and _is_unmapped(found.st_uid):
        return "belongs to the user that stands for all users outside this user namespace"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if found.st_mode & stat.S_IWGRP:
        if not _is_private(found.st_gid, os.geteuid()):
            return f"can be written by the group {_group(found.st_gid)}"
        if _has_list(fd):
            return "can be written by those whom its access control list names"
    return None


def read_trusted(root: Path) -> tuple[list[Path], list[str]]:
    """Return the folders that the user lists as trusted, and a sentence for each list that is not used.

    A list counts only if nobody but root and this process's user can write it, and if it is outside *root*.
    """
    places, unused = list[Path](), list[str]()
    variable = os.environ.get(TRUSTED, "")
    if variable and os.getuid() != os.geteuid():
        unused.append(f"{TRUSTED} is not used, since this process has the rights of another user than its caller")
    elif variable:
        places += _absolute(variable.split(os.pathsep), TRUSTED, unused)
    file = user_folder(os.environ) / TRUSTED_FILE
    try:
        text = _read_list(file, root)
    except FileNotFoundError:
        return places, unused
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        return places, [*unused, f"{file} is not used: {why}"]
    lines = (line.strip() for line in text.splitlines())
    return [*places, *_absolute((each for each in lines if each and each[0] != "#"), str(file), unused)], unused


def _read_list(file: Path, root: Path) -> str:
    """Return the text of the user's list; raises `OSError`, and `ValueError` if others could have written it."""
    if Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise ValueError("it is inside the workspace")
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(fd)
        why = find_fault(found, fd) if stat.S_ISREG(found.st_mode) else "it is no file"
        for folder in dict.fromkeys((*file.parents, *Path(os.path.realpath(file)).parents)):
            why = why or _find_fault_above(folder.stat(), folder)
        if why:
            raise ValueError(why)
        return os.read(fd, _MAX_LIST).decode()
    finally:
        os.close(fd)


def _absolute(named: Iterable[str], where: str, unused: list[str]) -> list[Path]:
    """Return the absolute paths of *named*; add a sentence to *unused* for each other one."""
    given = [each for each in named if each]
    unused += [f"{each!r} in {where} is not used: it is no absolute path" for each in given if not each.startswith("/")]
    return [Path(each) for each in given if each.startswith("/")]


def _find_fault_above(found: os.stat_result, folder: Path) -> str | None:
    """Return why others could replace what is in *folder*; ``None`` if they could not."""
    if found.st_uid not in (_ROOT, os.geteuid()) and not _is_unmapped(found.st_uid):
        return f"belongs neither to root nor to the user of this process, {_user(os.geteuid())}"
    if found.st_mode & stat.S_ISVTX or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    if found.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    private = _is_private(found.st_gid, os.geteuid()) and not _has_list(folder)
    return None if private else f"can be written by the group {_group(found.st_gid)}"


def _is_unmapped(user: int) -> bool:
    """Return whether *user* stands for the users outside a user namespace; ``/`` belongs to them in most of these."""
    try:
        whole = _MAPPED.read_text().split() == ["0", "0", "4294967295"]
        return not whole and user == int(_NO_OWNER.read_text())
    except (OSError, ValueError):  # no user namespaces here
        return False


@cache
def _is_private(group: int, user: int) -> bool:
    """Return whether *group* is the private group of root or *user*: of the same name, and without other members.

    Systems with private groups give them the user's name. Another group may have members that no list shows.
    """
    import grp
    import pwd

    try:
        found = grp.getgrgid(group)
        owner = pwd.getpwnam(found.gr_name)
        members = {pwd.getpwnam(name).pw_uid for name in found.gr_mem}
    except KeyError:
        return False
    members |= {each.pw_uid for each in pwd.getpwall() if each.pw_gid == group}
    return owner.pw_uid in (_ROOT, user) and owner.pw_gid == group and members <= {_ROOT, user}


def _has_list(place: int | str | Path) -> bool:
    """Return whether the file has an access control list, as far as this system can tell."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(place, _ACL)
    except OSError as problem:  # it has none, or its file system knows none
        return problem.errno not in (errno.ENODATA, errno.EOPNOTSUPP)
    return True


def _between(place: Path, root: Path) -> Iterator[Path]:
    """Yield the folders above *place* that are below *root*, the lowest first."""
    for folder in place.parents:
        if folder == root or not folder.is_relative_to(root):
            return
        yield folder


def _advice(root: Path) -> str:
    file = user_folder(os.environ) / TRUSTED_FILE
    return f"add the line {root} to {file}, or set {TRUSTED}={root}"


def _user(number: int) -> str:
    import pwd

    try:
        return f"{number} ({pwd.getpwuid(number).pw_name})"
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    import grp

    try:
        return f"{number} ({grp.getgrgid(number).gr_name})"
    except KeyError:
        return str(number)
