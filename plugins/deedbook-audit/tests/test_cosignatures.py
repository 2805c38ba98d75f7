"""Cosignatures: the published example, C2SP's message byte for byte; what is no cosignature counts for nothing."""

import hashlib
from base64 import b64decode, b64encode

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import SignatureError
from deedbook.format.notes import Note, Signature, SigningKey, VerifierKey, WitnessKey, sign
from deedbook_audit.transparency.cosignatures import MAX_TIME, WitnessSigner, cosigned_at

SEED = bytes(range(32))
TEXT = "example.com/log\n3\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
LOG = SigningKey("example.com/log", bytes(32))
WITNESS = WitnessSigner("witness.example.com/w1", SEED)


def cosigned(time, *, text=TEXT, key=WITNESS):
    note = sign(TEXT, [LOG])
    return Note(note.text, (*note.signatures, key.cosign(text, time)))


def test_form_is_what_other_code_computes_from_the_specification():
    """Key id, line and message are built here from SHA-256, Base64 and RFC 8032 alone."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(SEED)
    public, name, time = private.public_key().public_bytes_raw(), "witness.example.com/w1", 1679315147
    identity = hashlib.sha256(name.encode() + b"\n\x04" + public).digest()[:4]
    signature = private.sign(b"cosignature/v1\ntime 1679315147\n" + TEXT.encode())
    line = b64encode(identity + time.to_bytes(8, "big") + signature).decode()
    assert str(WITNESS.cosign(TEXT, time)) == f"— {name} {line}"
    assert str(WITNESS.public) == f"{name}+{identity.hex()}+{b64encode(bytes([4]) + public).decode()}"


def test_line_of_the_published_example_is_taken_apart():
    """c2sp.org/tlog-cosignature, its example: the time behind the key's id."""
    line = "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    (found,) = Note.parse(f"{TEXT}\n— witness.example.com/w1 {line}\n").signatures
    assert (found.id, len(found.value)) == ("8d66cf3f", 72)
    assert int.from_bytes(found.value[:8], "big") == 1679315147
    assert b64decode(line)[4:] == found.value


@given(st.integers(0, MAX_TIME))
def test_witness_is_believed_about_when_it_saw_a_checkpoint(time):
    note = Note.parse(str(cosigned(time)))
    assert cosigned_at(WITNESS.public, note) == time
    assert note.is_signed_by(LOG.public)


def test_newest_of_several_times_counts():
    first, second = cosigned(5), WITNESS.cosign(TEXT, 9)
    assert cosigned_at(WITNESS.public, Note(first.text, (*first.signatures, second))) == 9


@for_each(
    "note",
    [
        sign(TEXT, [LOG]),
        cosigned(5, text=TEXT.replace("\n3\n", "\n4\n")),
        cosigned(5, key=WitnessSigner("witness.example.com/w1", bytes(32))),
        cosigned(5, key=WitnessSigner("other", SEED)),
        Note(TEXT, ()),
        Note(TEXT, (Signature(WITNESS.public.name, WITNESS.public.id, bytes(72)),)),
        Note(TEXT, (Signature(WITNESS.public.name, WITNESS.public.id, WITNESS.sign(TEXT.encode())),)),
        Note(TEXT, (Signature(WITNESS.public.name, WITNESS.public.id, b"\xff" * 72),)),
        Note(TEXT, (WITNESS.cosign(TEXT, 5), Signature(WITNESS.public.name, WITNESS.public.id, bytes(72)))),
    ],
    ids=["none", "other text", "other key", "other name", "no line", "zeros", "no time", "far time", "one bad of two"],
)
def test_witness_did_not_see_what_it_did_not_sign(note):
    assert cosigned_at(WITNESS.public, note) is None


def test_key_reads_as_it_is_written_and_a_plain_key_becomes_one():
    assert WitnessKey.parse(str(WITNESS.public)) == WITNESS.public
    assert WitnessSigner.parse(WITNESS.reveal()).public == WITNESS.public
    plain = SigningKey("witness.example.com/w1", SEED).public
    assert WitnessKey.parse(str(plain)) == WITNESS.public
    assert plain.id != WITNESS.public.id


def test_key_of_a_witness_is_no_key_of_a_log():
    with pytest.raises(SignatureError, match="its algorithm is 4; expected 1"):
        VerifierKey.parse(str(WITNESS.public))
    with pytest.raises(SignatureError, match="its algorithm is 1; expected 4"):
        WitnessSigner.parse(SigningKey("w", SEED).reveal())


@pytest.mark.parametrize("text", ["", "w", f"{WITNESS.public}x", str(WITNESS.public).replace("w1+", "w2+")])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(SignatureError):
        WitnessKey.parse(text)
