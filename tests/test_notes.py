"""Signed notes: the published vectors come out byte for byte, and what is not in the form is refused."""

import base64
import copy
import hashlib
import pickle

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import SignatureError
from deedbook.format.notes import MAX_SIGNATURES, MAX_TEXT, Note, SigningKey, VerifierKey, is_name, sign

# golang.org/x/mod/sumdb/note, its documentation
PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
LINE = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
NOTE = f"{TEXT}\n{LINE}"
# c2sp.org/signed-note, its example
SPEC_PUBLIC = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SPEC_NOTE = (
    "This is an example message.\n\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=200).map(lambda s: f"{s}\n")


# --- the published vectors --------------------------------------------------------------------------------------------


def test_published_private_key_gives_the_published_public_key_and_signature():
    key = SigningKey.parse(PRIVATE)
    assert str(key.public) == PUBLIC
    assert str(sign(TEXT, [key])) == NOTE
    assert key.reveal() == PRIVATE


@pytest.mark.parametrize(("note", "public"), [(NOTE, PUBLIC), (SPEC_NOTE, SPEC_PUBLIC)], ids=["go", "c2sp"])
def test_published_note_is_signed_by_its_key_and_by_no_other(note, public):
    assert Note.parse(note).is_signed_by(VerifierKey.parse(public))
    other = SigningKey.generate(VerifierKey.parse(public).name).public
    assert not Note.parse(note).is_signed_by(other)
    assert str(Note.parse(note)) == note


def test_form_is_what_other_code_computes_from_the_specification():
    """The key's id and the line are built here from SHA-256, Base64 and RFC 8032 alone."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    seed, name, text = bytes(range(32)), "ada@example.com", "a\n\nb\n"
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    identity = hashlib.sha256(name.encode() + b"\x0a\x01" + public).digest()[:4]
    key = SigningKey(name, seed)
    digits = base64.b64encode(b"\x01" + public).decode()
    assert str(key.public) == f"{name}+{identity.hex()}+{digits}"
    line = base64.b64encode(identity + private.sign(text.encode())).decode()
    assert str(sign(text, [key])) == f"{text}\n— {name} {line}\n"


# --- laws -------------------------------------------------------------------------------------------------------------


@given(
    text=texts, names=st.lists(st.sampled_from(["ada", "bob", "eve.example/x"]), min_size=1, max_size=3, unique=True)
)
def test_what_was_signed_is_read_again_and_verifies_with_every_key(text, names):
    keys = [SigningKey.generate(name) for name in names]
    note = Note.parse(str(sign(text, keys)))
    assert note.text == text
    assert all(note.is_signed_by(key.public) for key in keys)


@given(text=texts, at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_changed_text_is_not_signed(text, at, bit):
    key = SigningKey.parse(PRIVATE)
    note = sign(text, [key])
    raw = bytearray(text.encode())
    raw[at % len(raw)] ^= 1 << bit
    assert not Note(raw.decode("utf-8", "replace"), note.signatures).is_signed_by(key.public)


@given(st.text(max_size=60))
def test_any_text_is_a_note_or_a_signature_error(text):
    try:
        note = Note.parse(text)
    except SignatureError as problem:
        said = problem.error.code
    else:
        said = str(note)
    assert said in (text, "NOTE_INVALID")


def test_one_wrong_signature_in_a_keys_name_speaks_against_all():
    key = SigningKey.parse(PRIVATE)
    good = sign(TEXT, [key])
    wrong = sign("other\n", [key]).signatures
    assert not Note(TEXT, good.signatures + wrong).is_signed_by(key.public)


def test_signatures_of_unknown_keys_and_kinds_are_read_over():
    other = f"— witness {base64.b64encode(b'abcd' + b'x' * 120).decode()}\n"
    assert Note.parse(NOTE + other).is_signed_by(VerifierKey.parse(PUBLIC))


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    "note",
    [
        "", "\n", TEXT, LINE, f"{TEXT}\n", NOTE[:-1], NOTE.replace("— ", "- "), NOTE.replace("\n\n", "\n"),
        NOTE.replace(" x08", "  x08"), NOTE.replace("x08g", "x08*"), NOTE.replace("JnAM=", "JnAM"),
        NOTE.replace("JnAM=", "JnAN="), f"{NOTE}\r\n", NOTE.replace("— Peter", "— Pe+ter"), f"{NOTE}\n",
        NOTE.replace("is the", "is\tthe"), NOTE.replace("is the", "is\x00the"), NOTE + "\ud800",
        f"{TEXT}\n— PeterNeumann AAAA\n", NOTE + LINE * MAX_SIGNATURES, "a" * MAX_TEXT + NOTE,
    ],
)  # fmt: skip
def test_note_of_another_form_is_refused(note):
    with pytest.raises(SignatureError) as problem:
        Note.parse(note)
    assert problem.value.error.code == "NOTE_INVALID"


@for_each(
    "key",
    [
        "", "PeterNeumann", PUBLIC[:-1], f"{PUBLIC}\n", f" {PUBLIC}", PUBLIC.replace("c74f20a3", "c74f20a4"),
        PUBLIC.replace("c74f20a3", "C74F20A3"), PUBLIC.replace("PeterNeumann", "Peter Neumann"), PUBLIC + "=",
        PUBLIC.replace("PeterNeumann", ""), PUBLIC.replace("+ARpc", "+AhRc"), PUBLIC.replace("10TW", "10TX"),
        PUBLIC.replace("PeterNeumann", "Peter\u00a0Neumann"), PRIVATE,
    ],
)  # fmt: skip
def test_public_key_of_another_form_is_refused(key):
    with pytest.raises(SignatureError) as problem:
        VerifierKey.parse(key)
    assert problem.value.error.code == "KEY_INVALID"


@pytest.mark.parametrize(
    "key", ["", PUBLIC, PRIVATE[:-1], f"{PRIVATE}\n", PRIVATE.replace("c74f20a3", "c74f20a4"), PRIVATE.lower()]
)
def test_private_key_of_another_form_is_refused_without_a_word_of_it(key):
    with pytest.raises(SignatureError) as problem:
        SigningKey.parse(key)
    assert "AYEKFALVFGyN" not in str(problem.value)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\n", "\u2003", "a\u200b"])
def test_name_with_space_plus_or_nothing_is_no_name(name):
    assert not is_name(name)
    with pytest.raises(SignatureError):
        SigningKey.generate(name)


def test_text_without_a_newline_at_its_end_is_not_signed():
    with pytest.raises(SignatureError):
        sign("no newline", [SigningKey.parse(PRIVATE)])


def test_private_key_does_not_print_and_is_not_copied():
    key = SigningKey.parse(PRIVATE)
    assert repr(key) == str(key) == "<private key PeterNeumann>"
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copying(key)
