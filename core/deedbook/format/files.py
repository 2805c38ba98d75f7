"""Files below a root folder that is held by descriptor: no link is followed, and no file is left half written.

A path is resolved one component at a time, each relative to the descriptor of its parent, so that the checked file is
the opened one, even if other processes rename folders or create links at the same time. Only regular files with a
single name are opened: a hard link may lead to a file outside, a FIFO may block, a device may do anything.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self, TypeAlias

from .errors import DeedbookError, FileRefused, fault
from .paths import DRAFT, path_fault, shown_path

LOCK_SECONDS: Final = 10.0
"""How long `Folder.replace` waits for another writer of the same folder."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_ATTEMPTS: Final = 64
_CHUNK: Final = 65536
_PRIVATE: Final = 0o700
_REASONS: Final = {
    errno.ELOOP: "is a link; symbolic links are not followed",
    errno.ENOTDIR: "leads through a link or a file where a folder is expected",
    errno.EISDIR: "is a folder; expected a regular file",
    errno.ENXIO: "is a socket or a device; expected a regular file",
    errno.ENODEV: "is a device; expected a regular file",
    errno.EOPNOTSUPP: "is a socket; expected a regular file",
    errno.ENAMETOOLONG: "has a name that is longer than the file system allows",
}


Check: TypeAlias = Callable[[os.stat_result, str, int], None]
"""Gets the status of an opened file or folder, its path for messages, and its descriptor; raises to refuse it."""


class Conflict(DeedbookError):  # noqa: N818 - named like its error code
    """The file is not what the writer expected (``WRITE_CONFLICT``); nothing was written."""


class DirectoryEntry(NamedTuple):
    """One entry of a folder: its name, whether it is a folder, its size in bytes (0 for a folder)."""

    name: str
    folder: bool
    size: int


class Folder:
    """A directory held by descriptor; every path given to it is relative to it and stays beneath it.

    Paths have components separated by ``/``; empty ones, ``.``, ``..``, control characters and more than
    `paths.MAX_PATH` bytes are refused. So are links, and files that are not regular or have several names
    (`FileRefused`, ``PATH_REFUSED``). A missing file raises `FileNotFoundError`; other failures stay `OSError`.

    A `Check` judges the folder, and every folder and file that is opened below it, through its descriptor.
    """

    __slots__ = ("_check", "_fd", "path")

    def __init__(self, fd: int, path: str, check: Check | None = None) -> None:
        self._fd = fd
        self.path = path
        self._check = check

    @classmethod
    def at(cls, path: str | Path, *, create: bool = False, check: Check | None = None) -> "Folder":
        """Open *path* as a root, which itself may be reached through links; with *create* make it (0700, synced)."""
        shown = str(path)
        try:
            if create:
                _make_root(Path(path))
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if check:
                _run_check(check, fd, shown, os.fstat(fd))
            return cls(fd, shown, check)
        except (NotADirectoryError, FileExistsError):
            raise _refusal(shown, "is no folder; name a folder") from None
        except ValueError:
            raise _refusal(shown, "holds a NUL byte; name a folder") from None

    def sub(self, path: str, *, create: bool = False) -> "Folder":
        """Open the folder *path* as a root of its own; with *create* make what is missing (0700, synced)."""
        with self._translate_errors(path):
            fd = self._descend(_parts(path), create=_PRIVATE if create else None)
            return Folder(fd, f"{self.path}/{path}", self._check)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""
        with self._translate_errors(path), self._above(path) as (folder, name):
            return os.fdopen(_open_file(folder, name, os.O_RDONLY, self._place(path), self._check), "rb")

    def read(self, path: str, *, limit: int) -> bytes:
        """Return a whole file of at most *limit* bytes; a longer one is `FileRefused` (``INTAKE_REFUSED``)."""
        with self._translate_errors(path), self.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            raw = file.read(size + 1) if size <= limit else b""  # read(n) allocates n bytes, however short the file is
            raw += file.read(limit + 1 - len(raw)) if len(raw) > size else b""
        if size > limit or len(raw) > limit:
            why = f"more than {limit} bytes; at most {limit} are read"
            raise FileRefused(fault("INTAKE_REFUSED", why, place=self._place(path)))
        return raw

    def digests(self, path: str, names: Iterable[str]) -> list[str]:
        """Return the SHA-256 of each of the files *names* in the folder *path*, in that order."""
        with self._translate_errors(path), self._hold(_parts(path) if path else ()) as folder:
            above = f"{self.path}/{path}" if path else self.path
            return [_digest(folder, name, f"{above}/{name}", self._check) for name in names]

    def append(self, path: str, *, create: bool, sync: bool = True) -> int:
        """Return a descriptor for reading and for writing at the end; the caller closes it.

        With *create* the file must not exist yet (`FileExistsError`); it is created with mode 0600 and, with *sync*,
        its folder is synced.
        """
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if create else 0)
        with self._translate_errors(path), self._above(path) as (folder, name):
            fd = _open_file(folder, name, flags, self._place(path), self._check)
            try:
                if create and sync:
                    os.fsync(folder)
            except BaseException:
                os.close(fd)
                raise
            return fd

    def replace(
        self, path: str, data: bytes | Iterable[bytes], *, expected: str | None = None, mode: int = 0o600,
        synced: bool = True,
    ) -> str:  # fmt: skip
        """Put *data* in the place of a whole file and return its SHA-256: afterwards it is old or new, never between.

        *expected* is the SHA-256 of the present content in hex, ``""`` for a file that must not exist, ``None`` for
        any content. Other content on disk raises `Conflict`; of several writers with one expectation, one wins. (The
        folder's lock stops every writer that uses this class, not an editor.)
        A new file gets *mode* (less the umask), and missing folders above it the same, passable; an old one keeps its
        permissions. What can be made again need not be *synced*.
        """
        place, create = self._place(path), None if expected else mode | (mode & 0o444) >> 2
        try:
            with (
                self._translate_errors(path),
                self._above(path, create=create) as (folder, name),
                _hold_lock(folder, place),
            ):
                return _put(folder, name, data, mode, _expect(folder, name, expected, place), synced=synced)
        except FileNotFoundError:
            if expected:
                raise _conflict(place, "", expected) from None
            raise

    def scan(self, path: str = "") -> list[DirectoryEntry]:
        """List a folder, sorted by name, without links, special files, and invalid names."""
        with (
            self._translate_errors(path),
            self._hold(_parts(path) if path else ()) as folder,
            os.scandir(folder) as entries,
        ):
            return sorted(found for entry in entries if (found := _directory_entry(entry)))

    def kinds(self, path: str = "") -> list[tuple[str, str]]:
        """Return every name in a folder, sorted, each with its kind: ``/`` a folder, ``@`` a link, ``-`` the rest."""
        with (
            self._translate_errors(path),
            self._hold(_parts(path) if path else ()) as folder,
            os.scandir(folder) as entries,
        ):
            return sorted((entry.name, _kind(entry)) for entry in entries)

    def exists(self, path: str) -> bool:
        """Return whether anything has that name, including a link; a path through a link is refused."""
        with suppress(FileNotFoundError), self._translate_errors(path), self._above(path) as (folder, name):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return True
        return False

    def make(self, path: str) -> None:
        """Create a folder and missing parents (0700), each synced into its parent; an existing one is accepted."""
        with self._translate_errors(path), self._hold(_parts(path), create=_PRIVATE):
            pass

    def remove(self, path: str, *, expected: str | None = None, sync: bool = True) -> None:
        """Remove a file, or a link itself, and, with *sync*, sync its folder.

        With *expected*, the SHA-256 of the present content, a file with other content raises `Conflict`, and a link is
        refused.
        """
        place = self._place(path)
        try:
            with self._translate_errors(path), self._above(path) as (folder, name), ExitStack() as held:
                if expected is not None:
                    held.enter_context(_hold_lock(folder, place))
                    _expect(folder, name, expected, place)
                os.unlink(name, dir_fd=folder)
                if sync:
                    os.fsync(folder)
        except FileNotFoundError:
            if expected:
                raise _conflict(place, "", expected) from None
            raise

    @contextmanager
    def hold(self, path: str = "") -> Iterator[int]:
        """Hold a folder (``""``: this one) by a descriptor of its own, as a program's working folder."""
        with self._translate_errors(path):
            fd = self._descend(_parts(path) if path else ())
        try:
            yield fd
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Make the names in this folder durable."""
        with self._translate_errors("."):
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __del__ = close

    # --- the walk -----------------------------------------------------------------------------------------------------

    def _descend(self, parts: tuple[str, ...], *, create: int | None = None) -> int:
        """Return a new descriptor of the folder at *parts*; with *create* as mode, create missing folders."""
        fd = root = self._fd
        for depth, part in enumerate(parts or (".",), 1):
            try:
                deeper = _enter(fd, part, create)
            finally:
                if fd != root:
                    os.close(fd)
            fd = deeper
            if self._check and parts:  # the root was checked when it was opened
                _run_check(self._check, fd, f"{self.path}/{'/'.join(parts[:depth])}", os.fstat(fd))
        return fd

    @contextmanager
    def _hold(self, parts: tuple[str, ...], *, create: int | None = None) -> Iterator[int]:
        fd = self._descend(parts, create=create)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _above(self, path: str, *, create: int | None = None) -> Iterator[tuple[int, str]]:
        """Hold the parent folder of *path*; yield its descriptor and the last component."""
        *above, name = _parts(path)
        with self._hold(tuple(above), create=create) as folder:
            yield folder, name

    def _place(self, path: str) -> str:
        return f"{self.path}/{shown_path(path)}"

    @contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        """Turn the system's errors about links and special files into `FileRefused`, with the whole path."""
        try:
            yield
        except OSError as problem:
            reason = _REASONS.get(problem.errno or 0)
            if reason:
                raise _refusal(self._place(path), reason) from None
            raise OSError(problem.errno, problem.strerror, self._place(path)) from None


def _parts(path: str) -> tuple[str, ...]:
    """Split a valid path; raise `FileRefused` for an invalid one."""
    if reason := path_fault(path):
        raise _refusal(shown_path(path), reason)
    return tuple(path.split("/"))


def _refusal(place: str, reason: str) -> FileRefused:
    return FileRefused(fault("PATH_REFUSED", reason, place=place))


# --- opening ----------------------------------------------------------------------------------------------------------


def _enter(folder: int, name: str, create: int | None) -> int:
    if create is not None:
        with suppress(FileExistsError):
            os.mkdir(name, create, dir_fd=folder)
            os.fsync(folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _run_check(check: Check, fd: int, place: str, found: os.stat_result) -> None:
    """Check the open file or folder at *place*; close it if it is refused."""
    try:
        check(found, place, fd)
    except BaseException:
        os.close(fd)
        raise


def _open_file(folder: int, name: str, flags: int, place: str, check: Check | None = None) -> int:
    """Open *name* and check the opened file, since the name may change its meaning in between."""
    for _ in range(_ATTEMPTS):
        fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            if check:
                _run_check(check, fd, place, found)
            return fd
        os.close(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            break
        # replaced between open and fstat: the name now belongs to another file
    raise _refusal(place, _file_fault(found))


def _file_fault(found: os.stat_result) -> str:
    if stat.S_ISREG(found.st_mode):
        return f"has {found.st_nlink} names (hard links); expected one, since another may lie outside"
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a FIFO" if stat.S_ISFIFO(found.st_mode) else "a device"
    return f"is {kind}; expected a regular file"


def _digest(folder: int, name: str, place: str, check: Check | None) -> str:
    fd = _open_file(folder, name, os.O_RDONLY, place, check)
    try:
        total = sha256(os.read(fd, _CHUNK))
        while more := os.read(fd, _CHUNK):
            total.update(more)
        return total.hexdigest()
    finally:
        os.close(fd)


def _kind(entry: os.DirEntry[str]) -> str:
    return "/" if entry.is_dir(follow_symlinks=False) else "@" if entry.is_symlink() else "-"


def _directory_entry(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    with suppress(FileNotFoundError):
        seen = entry.stat(follow_symlinks=False)
        folder = stat.S_ISDIR(seen.st_mode)
        if (folder or (stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1)) and not path_fault(entry.name):
            return DirectoryEntry(entry.name, folder, 0 if folder else seen.st_size)
    return None


def _make_root(path: Path) -> None:
    if path.is_dir():
        return
    _make_root(path.parent)
    with suppress(FileExistsError):
        path.mkdir(_PRIVATE)
    with Folder.at(path.parent) as parent:
        parent.sync()


# --- replacing --------------------------------------------------------------------------------------------------------


def _conflict(place: str, found: str, expected: str) -> Conflict:
    is_there = f"holds {found}" if found else "does not exist"
    why = f"{is_there}; expected {expected or 'no such file'}. Read it again and decide again"
    return Conflict(fault("WRITE_CONFLICT", why, place=place))


@contextmanager
def _hold_lock(folder: int, place: str) -> Iterator[None]:
    """Hold the folder's lock, which ends with its holder; wait for at most `LOCK_SECONDS`."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not _try_lock(folder):
        if time.monotonic() > deadline:
            why = f"another writer has held this folder for {LOCK_SECONDS:g} s; try again when it is done"
            raise Conflict(fault("WRITE_CONFLICT", why, retryable=True, place=place))
        time.sleep(0.002)
    try:
        yield
    finally:
        flock(folder, LOCK_UN)


def _try_lock(folder: int) -> bool:
    with suppress(BlockingIOError):
        flock(folder, LOCK_EX | LOCK_NB)
        return True
    return False


def _expect(folder: int, name: str, expected: str | None, place: str) -> int | None:
    """Check that the content is the expected one; return its permissions, ``None`` if there is no file."""
    try:
        fd = _open_file(folder, name, os.O_RDONLY, place)
    except FileNotFoundError:
        if expected:
            raise _conflict(place, "", expected) from None
        return None
    with os.fdopen(fd, "rb") as file:
        if expected is not None and (found := file_digest(file, "sha256").hexdigest()) != expected:
            raise _conflict(place, found, expected)
        return stat.S_IMODE(os.fstat(fd).st_mode) & 0o777


def _put(folder: int, name: str, data: bytes | Iterable[bytes], mode: int, keep: int | None, *, synced: bool) -> str:
    """Write the draft, make it durable if required, and rename it in one step."""
    with suppress(FileNotFoundError):
        os.unlink(DRAFT, dir_fd=folder)
    fd = os.open(DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, keep or mode, dir_fd=folder)
    try:
        found = _write_whole(fd, (data,) if isinstance(data, bytes) else data, keep, synced=synced)
        os.rename(DRAFT, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(DRAFT, dir_fd=folder)
        raise
    if synced:
        os.fsync(folder)
    return found


def _write_whole(fd: int, data: Iterable[bytes], keep: int | None, *, synced: bool) -> str:
    total = sha256()
    try:
        if keep is not None:
            os.fchmod(fd, keep)
        for part in data:
            total.update(part)
            rest = memoryview(part)
            while rest:
                if not (done := os.write(fd, rest)):
                    raise OSError(errno.EIO, "the file takes no more bytes")
                rest = rest[done:]
        if synced:
            os.fsync(fd)
        return total.hexdigest()
    finally:
        os.close(fd)
