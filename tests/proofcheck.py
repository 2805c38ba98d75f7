"""Checking a proof a second time: from docs/ledger-format.md, C2SP's pages and RFC 9162, without the kernel's code."""

import json
import re
from base64 import b64decode
from hashlib import sha256

import rfc9162
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from ledgers import canonical


class ProofError(Exception):
    """What does not hold."""


def held(truth, why):
    if not truth:
        raise ProofError(why)


def key_of(line, algorithm):
    """Take a verifier key apart: name, id, public key."""
    name, identity, digits = re.fullmatch(r"([^+]+)\+([0-9a-f]{8})\+(.*)", line).groups()
    raw = b64decode(digits, validate=True)
    held(raw[0] == algorithm and len(raw) == 33, "algorithm")
    held(sha256(name.encode() + b"\n" + raw).hexdigest()[:8] == identity, "key id")
    return name, identity, Ed25519PublicKey.from_public_bytes(raw[1:])


def signatures(note):
    text, blank, below = note.rpartition("\n\n")
    held(blank and below.endswith("\n"), "note")
    found = []
    for line in below[:-1].split("\n"):
        name, digits = re.fullmatch("— ([^ ]+) (.+)", line).groups()
        raw = b64decode(digits, validate=True)
        found.append((name, raw[:4].hex(), raw[4:]))
    return f"{text}\n", found


def signed(note, line):
    """Say whether the key in *line* signed the note."""
    name, identity, key = key_of(line, 1)
    text, found = signatures(note)
    mine = [value for one, other, value in found if (one, other) == (name, identity)]
    try:
        for value in mine:
            key.verify(value, text.encode())
    except InvalidSignature:
        return False
    return bool(mine)


def cosigned(note, line):
    """Return when the witness with the key in *line* cosigned, or ``None``."""
    name, identity, key = key_of(line, 4)
    text, found = signatures(note)
    for one, other, value in found:
        if (one, other) == (name, identity):
            time = int.from_bytes(value[:8], "big")
            key.verify(value[8:], f"cosignature/v1\ntime {time}\n{text}".encode())
            return time
    return None


def checkpoint(note):
    text, _ = signatures(note)
    origin, size, root, end = text.split("\n")
    held(end == "" and re.fullmatch("0|[1-9][0-9]*", size), "checkpoint")
    return origin, int(size), b64decode(root, validate=True)


def believed(proof, key):
    """Return the keys that may have signed: the proof's own, or what follows from *key*."""
    stated = []
    for note in proof["keys"]:
        text, _ = signatures(note)
        title, origin, new, before, end = text.split("\n")
        held((title, origin, end) == ("deedbook log key v1", proof["origin"], ""), "statement")
        held(signed(note, new), "a key that did not sign for itself")
        stated.append((new, before, note))
    if key is None:
        return [new for new, _, _ in stated]
    known = [key]
    known += [new for new, before, note in stated if before in known and signed(note, before) and not known.append(new)]
    known += [before for new, before, _ in reversed(stated) if new in known and before != "-"]
    return known


def check(proof, key=None):
    """Check a proof; raises for what proves nothing."""
    keys = believed(proof, key)
    notes = [proof["note"]] if proof["kind"] == "inclusion" else [proof["old"], proof["new"]]
    for note in notes:
        held(checkpoint(note)[0] == proof["origin"], "origin")
        held(any(signed(note, each) for each in keys), "signature")
    path = [bytes.fromhex(each) for each in proof["path"]]
    if proof["kind"] == "consistency":
        (_, old, old_root), (_, new, new_root) = map(checkpoint, notes)
        held(rfc9162.is_consistent(old, old_root, new, new_root, path), "consistency")
        return
    _, size, root = checkpoint(proof["note"])
    leaf = proof["leaf"]
    data = canonical({name: leaf[name] for name in ("head", "root", "session_id", "size")})
    held(rfc9162.includes(root, size, leaf["index"], rfc9162.leaf(data), path), "leaf")
    if "event" in proof:
        event(proof["event"], leaf)


def event(told, leaf):
    line = told["line"].encode()
    header, _, rest = line.partition(b',"envelope_hash":"')
    own, payload = rest[:64].decode(), rest[64 + len(b'","payload":') : -1]
    said = json.loads(line)
    held(sha256(header).hexdigest() == own == said["envelope_hash"], "envelope_hash")
    gone = payload == b'{"$excised":"' + said["payload_hash"].encode() + b'"}'
    held(gone or sha256(payload).hexdigest() == said["payload_hash"], "payload_hash")
    held((said["seq"], said["session_id"]) == (told["seq"], leaf["session_id"]), "seq")
    path = [bytes.fromhex(each) for each in told["path"]]
    hashed = rfc9162.leaf(bytes.fromhex(own))
    held(rfc9162.includes(bytes.fromhex(leaf["root"]), leaf["size"], told["seq"], hashed, path), "event")


def proves(proof, key=None):
    try:
        check(proof, key)
    except (ProofError, ValueError, KeyError, TypeError, AttributeError, InvalidSignature, IndexError):
        return False
    return True
