"""The Merkle tree of a ledger, extended with the new lines of its file; each line is read once.

Leaf n holds the envelope hash of line n. `verify` checks the lines; here each only has to follow from the previous one.
"""

import os
from typing import Final, NamedTuple

from deedbook.format.checkpoints import Frontier
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import first_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.tail import find_tail, lines_from_end
from deedbook.ledger.journal import DATASYNC
from deedbook_audit.transparency.merkle import leaf_hash

_MARK: Final = b',"envelope_hash":"'
_DIGITS: Final = 64


class Link(NamedTuple):
    """The hashes of a line that its tree needs: the previous line's, and its own."""

    prev: bytes
    own: bytes


def parse_link(raw: bytes, place: str) -> Link:
    """Return the hashes of a line; raises `LedgerError` (``LEDGER_UNSOUND``)."""
    header, mark, rest = raw.partition(_MARK)
    if not mark or not raw.endswith(b"}\n"):
        raise LedgerError(fault("LEDGER_UNSOUND", "not a line of format 1.1; verify the file", place=place))
    return Link(header[-_DIGITS - 1 : -1], rest[:_DIGITS])


class LedgerTree:
    """The read part of a ledger: its *tree*, the hash *head* of its last line, and that line's *end* in the file."""

    __slots__ = ("end", "head", "tree")

    def __init__(self, tree: Frontier, head: str, end: int) -> None:
        self.tree, self.head, self.end = tree, head, end

    def add(self, raw: bytes, place: str) -> None:
        """Add one line, which has to follow from the previous one; raises `LedgerError` (``LEDGER_UNSOUND``)."""
        found = parse_link(raw, place)
        if found.prev.decode("latin-1") != self.head:
            why = f"event {self.tree.size} does not follow from the one before; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
        try:
            leaf = bytes.fromhex(found.own.decode())
        except ValueError:
            raise LedgerError(fault("LEDGER_UNSOUND", "a hash that is none; verify the file", place=place)) from None
        self.tree.push(leaf_hash(leaf))
        self.head, self.end = found.own.decode(), self.end + len(raw)


class SessionTree(LedgerTree):
    """The ledger of one session, followed from its first line or from a leaf of the log."""

    __slots__ = ("covered", "session")

    def __init__(self, session: str, tree: Frontier | None = None, head: str = "", end: int = 0) -> None:
        super().__init__(tree or Frontier(), head or first_hash(session), end)
        self.session = session
        self.covered = self.tree.size
        """The number of its lines covered by a checkpoint that this process knows."""

    @classmethod
    def resume(cls, state: Folder, session: str, tree: Frontier, head: str) -> "SessionTree":
        """Follow *session* from where its *tree* ended with the hash *head*; earlier lines are not read.

        Raises `LedgerError` (``LEDGER_UNSOUND``) if its file has fewer lines, or another line there.
        """
        place = _get_path(state, session)
        try:
            with state.open(f"sessions/{session}/{LEDGER_FILE}") as file:
                return cls(session, tree, head, _find_end(file.fileno(), tree.size, head, place))
        except FileNotFoundError:
            why = f"its file is gone; a checkpoint covers {tree.size} lines of it"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place)) from None

    def advance(self, state: Folder, end: int | None = None, *, durable: bool = False) -> None:
        """Read the new lines, up to the byte *end* or the last whole line, and sync the file unless it is *durable*.

        Raises `LedgerError` (``LEDGER_UNSOUND``) if the file was cut or changed.
        """
        place = _get_path(state, self.session)
        with state.open(f"sessions/{self.session}/{LEDGER_FILE}") as file:
            end = find_tail(file.fileno(), place=place).end if end is None else end
            if end < self.end or os.fstat(file.fileno()).st_size < end:
                raise LedgerError(fault("LEDGER_UNSOUND", "it was cut since it was read; verify it", place=place))
            file.seek(self.end)
            while self.end < end:
                self.add(file.readline(), place)
            if not durable:
                DATASYNC(file.fileno())


def _get_path(state: Folder, session: str) -> str:
    return f"{state.path}/sessions/{session}/{LEDGER_FILE}"


def _find_end(fd: int, size: int, head: str, place: str) -> int:
    """Return the end of line *size*, from 1, with the hash *head*; reads only the lines behind it."""
    tail = find_tail(fd, place=place)
    behind = split_line(tail.last, place=place).seq + 1 - size if tail.end else -1
    for count, (offset, raw) in enumerate(lines_from_end(fd, tail.end, place=place) if behind >= 0 else ()):
        if count == behind:
            if parse_link(raw, place).own.decode("latin-1") == head:
                return offset + len(raw)
            break
    why = f"a checkpoint covers its first {size} lines, and line {size} is gone or another one now; verify it"
    raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
