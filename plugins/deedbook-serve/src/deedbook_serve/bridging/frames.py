"""The bridge's protocol: a request is one head line and the input, an answer one head line and the output; pure."""

import re
from typing import Final, NamedTuple

from deedbook.format.errors import DomainError, Err, Ok, Result, fault

from .dialects import Reply

MAX_INPUT: Final = 16 * 1024 * 1024
"""The largest size of an input in bytes."""
MAX_HEAD: Final = 256
"""The largest size of the head line in bytes, with its newline."""
_HEAD: Final = re.compile(rb"deedbook-bridge 1 ([A-Za-z0-9_.-]{1,100}) ([A-Za-z0-9_.-]{1,100}) ([0-9]{1,9})\n")


class RequestHead(NamedTuple):
    """The first line of a request: the agent, the event, and the number of bytes that follow."""

    agent: str
    event: str
    size: int


def parse_head(line: bytes) -> Result[RequestHead]:
    """Return the head in the first line of a request."""
    match = _HEAD.fullmatch(line)
    if match is None:
        return Err(_head_error("expected: deedbook-bridge 1 AGENT EVENT BYTES"))
    head = RequestHead(match[1].decode(), match[2].decode(), int(match[3]))
    if head.size > MAX_INPUT:
        return Err(_head_error(f"{head.size} bytes; at most {MAX_INPUT} are taken"))
    return Ok(head)


def encode_reply(reply: Reply) -> bytes:
    """Return a reply in the bytes of the protocol."""
    return b"%d %d %d\n%b%b" % (reply.status, len(reply.out), len(reply.err), reply.out, reply.err)


def _head_error(why: str) -> DomainError:
    return fault("BRIDGE_INPUT", f"this is no request of a hook: {why}")
