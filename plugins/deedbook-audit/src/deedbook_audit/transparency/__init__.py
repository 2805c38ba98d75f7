"""Formats of a transparency log: proofs, cosignatures, changes of keys, requests to witnesses; all of them pure."""
