"""Payloads that were taken out of their lines: accepted where a later line of the same ledger says so, and only there.

The header stays byte for byte; in the payload's place stands the hash that the header has of it.
"""

import re
from typing import Any, Final

from deedbook import canonical, events

from .report import Findings

_KIND: Final = re.compile(rb',"event_type":"([a-z0-9_.]{1,64})"')
_SAYS: Final = b',"event_type":"ledger.excised"'
_LENGTH: Final = len(events.excised("0" * 64))
EXCISED_LENGTH: Final = _LENGTH + 95
"""How many bytes of a line whose payload is gone stand behind its header."""
EXCISED: Final = object()
"""What a reader passes on in the place of a payload that is gone."""


class Excisions:
    """The excisions of one ledger: `take` a line whose payload is gone, `look` at the lines that may say why.

    *open* are those that no later line has named so far: by line number, each with its payload's hash.
    """

    def __init__(self) -> None:
        self.open: dict[int, bytes] = {}
        self.count = 0

    def take(self, number: int, line: bytes, cut: int, own: bytes, prev: bytes | tuple[bytes, ...]) -> bool:
        """Say whether all is right with a line but that its payload is taken out; *cut* is where its header ends."""
        kind = _KIND.search(line, 0, max(cut, 0))
        if not (
            is_excised(line, cut)
            and kind
            and not kind[1].decode().startswith(events.UNEXCISABLE)
            and line.startswith(own, cut + 18)
            and line.startswith(prev, cut - 65)
            and line.startswith(b'"payload_hash":"', cut - 169)
            and line.startswith(b'","prev_envelope_hash":"', cut - 89)
        ):
            return False
        self.open[number] = line[cut - 153 : cut - 89]
        self.count += 1
        return True

    def look(self, line: bytes, cut: int) -> None:
        """Take in what a sound line says, if it is one of those that name an excision."""
        if _SAYS not in line[:cut]:
            return
        try:
            said: Any = canonical.decode(line[cut + 94 : -1])
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


def is_excised(line: bytes, cut: int) -> bool:
    """Say whether in the place of a line's payload stands the hash that its header, which ends at *cut*, has of it."""
    at = cut + 94
    return (
        cut > 0
        and len(line) - cut == EXCISED_LENGTH
        and line.startswith(b'","payload":', cut + 82)
        and line.endswith(b"}")
        and line[at:-1] == events.excised(line[cut - 153 : cut - 89].decode("ascii", "replace"))
    )
