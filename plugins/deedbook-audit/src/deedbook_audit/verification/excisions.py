"""Payloads that were taken out of their lines: accepted where a later line of the same ledger says so, and only there.

The header stays byte for byte; in the payload's place stands the hash that the header has of it.
"""

import re
from typing import Any, Final

from deedbook.format import canonical, events
from deedbook.format.report import Findings

EXCISED: Final = object()
"""What a reader passes on in the place of a payload that is gone."""

_KIND: Final = re.compile(rb',"event_type":"([a-z0-9_.]{1,64})"')
_SAYS: Final = b',"event_type":"ledger.excised"'
_BEFORE: Final = b'","payload":'
_AFTER: Final = b"}\n"


class Excisions:
    """The excisions of one ledger: `take` a line whose payload is gone, `look` at the lines that may say why.

    A line comes as its header without ``envelope_hash``, and the rest behind the mark. *open* are those that no later
    line has named so far: by line number, each with its payload's hash.
    """

    def __init__(self) -> None:
        self.open: dict[int, bytes] = {}

    def take(self, number: int, head: bytes, rest: bytes) -> bool:
        """Say whether the payload of a line, whose own hash is right, is taken out; a later line has to say so."""
        kind = _KIND.search(head)
        if not (
            kind
            and not kind[1].decode().startswith(events.UNEXCISABLE)
            and head[-169:-153] == b'"payload_hash":"'
            and head[-89:-65] == b'","prev_envelope_hash":"'
            and rest[64:] == b"%b%b%b" % (_BEFORE, stands_for(head), _AFTER)
        ):
            return False
        self.open[number] = head[-153:-89]
        return True

    def look(self, head: bytes, rest: bytes) -> None:
        """Take in what a sound line says, if it is one of those that name an excision."""
        if _SAYS not in head:
            return
        try:
            said: Any = canonical.decode(rest[64 + len(_BEFORE) : -len(_AFTER)])
            number, found = said["seq"] + 1, said["payload_hash"].encode()
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        if self.open.get(number) == found:
            del self.open[number]

    def report(self, findings: Findings) -> None:
        """Add a failure for each that no later line has named."""
        for number, digest in self.open.items():
            wanted = f"a later ledger.excised of event {number - 1} with payload_hash {digest.decode()}"
            findings.add(number, "excised", wanted, "none")


def stands_for(head: bytes) -> bytes:
    """Return the payload that stands for the one that a header has the hash of, once that is gone."""
    return events.excised(head[-153:-89].decode("ascii", "replace"))
