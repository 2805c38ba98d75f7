"""Excised payloads: accepted only if a later line of the same ledger records the excision.

The header stays byte for byte; the payload is replaced by its hash.
"""

import re
from typing import Any, Final

from deedbook.format import canonical, events
from deedbook_audit.report import Findings

EXCISED: Final = object()
"""The value that stands for an excised payload."""

EXCISION: Final = "excised"
"""The check of a payload that was excised, and of the later line that must record it."""

_KIND: Final = re.compile(rb',"event_type":"([a-z0-9_.]{1,64})"')
_SAYS: Final = b',"event_type":"ledger.excised"'
_BEFORE: Final = b'","payload":'
_AFTER: Final = b"}\n"


class Excisions:
    """The excisions of one ledger: `accept` a line without its payload, `apply` the lines that may record it.

    A line comes as its header without ``envelope_hash``, and the rest after the mark. *open* holds the excised lines
    that no later line has named: by line number, each with its payload's hash.
    """

    def __init__(self) -> None:
        self.open: dict[int, bytes] = {}

    def accept(self, number: int, head: bytes, rest: bytes) -> bool:
        """Return whether the payload of a line with a correct header was excised; a later line has to record it."""
        kind = _KIND.search(head)
        if not (
            kind
            and not kind[1].decode().startswith(events.UNEXCISABLE)
            and head[-169:-153] == b'"payload_hash":"'
            and head[-89:-65] == b'","prev_envelope_hash":"'
            and rest[64:] == b"%b%b%b" % (_BEFORE, build_placeholder(head), _AFTER)
        ):
            return False
        self.open[number] = head[-153:-89]
        return True

    def apply(self, head: bytes, rest: bytes) -> None:
        """Apply a sound line, if it records an excision."""
        if _SAYS not in head:
            return
        try:
            payload: Any = canonical.decode(rest[64 + len(_BEFORE) : -len(_AFTER)])
            number, found = payload["seq"] + 1, payload["payload_hash"].encode()
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        if self.open.get(number) == found:
            del self.open[number]

    def report(self, findings: Findings) -> None:
        """Add a failure for each excision that no later line has recorded."""
        for number, digest in self.open.items():
            wanted = f"a later ledger.excised of event {number - 1} with payload_hash {digest.decode()}"
            findings.add(number, EXCISION, wanted, "none")


def build_placeholder(head: bytes) -> bytes:
    """Return the payload that replaces an excised one, from the hash in its header."""
    return events.excised_form(head[-153:-89].decode("ascii", "replace"))
