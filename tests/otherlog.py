"""A log of any program's, and what it sends to a witness: from RFC 9162 and C2SP's pages, without the kernel's code."""

from base64 import b64encode

import ledgers
import rfc9162


class OtherLog:
    """A log with a key of its own; *fork* makes it another history after the first three leaves."""

    def __init__(self, origin="example.com/log", *, seed=bytes(range(32)), fork="", name=None):
        self.origin, self.seed, self.name, self.fork = origin, seed, name or origin, fork

    @property
    def key(self):
        return ledgers.verifier_key(self.name, self.seed)

    def leaves(self, size):
        return [rfc9162.leaf(f"{n}{self.fork if n >= 3 else ''}".encode()) for n in range(size)]

    def text(self, size):
        return f"{self.origin}\n{size}\n{b64encode(rfc9162.root(self.leaves(size))).decode()}\n"

    def note(self, size):
        return ledgers.signed(self.text(size), self.name, self.seed)

    def proof(self, old, size):
        return rfc9162.consistency(old, self.leaves(size))

    def request(self, old, size, *, proof=None, note=None):
        lines = self.proof(old, size) if proof is None else proof
        text = "".join(f"{b64encode(each).decode()}\n" for each in lines)
        return f"old {old}\n{text}\n{note or self.note(size)}".encode()
