"""The bridge's own wire: one line that says who asks what, then the input; one line, then what is printed; pure."""

import re
from typing import Final, NamedTuple

from deedbook.format.errors import DomainError, Err, Ok, Result, fault

from .dialects import Reply

LARGEST: Final = 16 * 1024 * 1024
"""Bytes that an input may have."""
LONGEST: Final = 256
"""Bytes that the first line may have, with its newline."""
_HEAD: Final = re.compile(rb"deedbook-bridge 1 ([A-Za-z0-9_.-]{1,100}) ([A-Za-z0-9_.-]{1,100}) ([0-9]{1,9})\n")


class Asked(NamedTuple):
    """What the first line of a request says: whose hook, for which event, and how many bytes follow."""

    agent: str
    event: str
    size: int


def asked(line: bytes) -> Result[Asked]:
    """Read the first line of a request."""
    found = _HEAD.fullmatch(line)
    if found is None:
        return Err(_wrong("expected: deedbook-bridge 1 AGENT EVENT BYTES"))
    said = Asked(found[1].decode(), found[2].decode(), int(found[3]))
    if said.size > LARGEST:
        return Err(_wrong(f"{said.size} bytes; at most {LARGEST} are taken"))
    return Ok(said)


def answered(reply: Reply) -> bytes:
    """Return an answer as it goes over the wire."""
    return b"%d %d %d\n%b%b" % (reply.status, len(reply.out), len(reply.err), reply.out, reply.err)


def _wrong(why: str) -> DomainError:
    return fault("BRIDGE_INPUT", f"this is no request of a hook: {why}")
