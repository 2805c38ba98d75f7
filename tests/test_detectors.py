"""The detectors: card numbers by digits and Luhn, tokens by shape, patterns of one's own, all in linear time."""

import re

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.canonical import encode
from deedbook.format.detectors import NAMES, Detectors, find_any, has_card

LENGTH = 250_000


def luhn(digits: str) -> bool:
    """Check a number as ISO/IEC 7812-1 describes it, the slow way."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


@for_each(
    "text",
    [
        "4111111111111111",
        "pay 1234567890123456 now",
        "x1234567890123456x",
        "card_4111111111111111",
        "4111111111111111_visa",
        "recall_4111111111111111",
        "card_call_4111111111111111",
        "call 4111111111111111",
        "call_1 4111111111111111",
        "call_4111 1111 1111 1111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111 1111-1111 1111",
        "3782 822463 10005",
        "4222 2222 2222 2",
        "6304 0000 0000 0000 000",
        "order 12 4111 1111 1111 1111 99",
        "2026-11-21 4111 1111 1111 1111",
    ],
)
def test_has_card_finds_numbers(text):
    assert has_card(text)


@for_each(
    "text",
    [
        "",
        "123456789012345",
        "12345678901234567",
        "378282246310005",
        "4111 1111 1111 1112",
        "4111  1111  1111  1111",
        "4111.1111.1111.1111",
        "2026-11-21T10:00:00.000Z",
        "call_1795440123456789",
        "call_4111111111111111",
        "toolu_4111111111111111",
        "fc_5555555555554444",
        "the result of call_4111111111111111.",
        "echo:call_4111111111111111_2",
        "call_4111111111111112",
        "echo:call_1795440123456789_2",
        "00112233445566778899aabbccddeeff",
        "1234567890123456" + "a" * 16,
        "b" * 10 + "1234567890123456" + "c" * 38,
    ],
)
def test_has_card_leaves_other_text(text):
    assert not has_card(text)


@given(st.lists(st.text("0123456789", min_size=1, max_size=7), min_size=2, max_size=8), st.data())
def test_has_card_is_luhn_over_whole_neighbouring_groups(groups, data):
    text = groups[0]
    for group in groups[1:]:
        text += data.draw(st.sampled_from(" -")) + group
    runs = ["".join(groups[a:b]) for a in range(len(groups)) for b in range(a + 2, len(groups) + 1)]
    expected = any(13 <= len(run) <= 19 and luhn(run) for run in runs)
    assert has_card(text) is expected


@given(st.from_regex("(call|toolu|fc)_[0-9]{16}", fullmatch=True))
def test_has_card_takes_no_id_of_a_call_for_a_number(call_id):
    assert not has_card(call_id)


@given(st.text("0123456789 x", max_size=60))
def test_has_card_finds_every_run_of_exactly_sixteen(text):
    if any(len(run) == 16 for run in re.findall("[0-9]+", text)):
        assert has_card(text)


@for_each(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a" * 22,
        "glpat-" + "x" * 20,
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "b" * 35,
        "sk-" + "proj" * 6,
        "key=sk-ant-api03-" + "c" * 20,
        "sk_live_" + "0" * 24,
        "xoxb-1234567890-abc",
        "hf_" + "Q" * 34,
        "npm_" + "z" * 36,
        "pypi-AgEIcHlwaS5vcmcCJGQ",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "postgres://ada:hunter2@db.example/x",
    ],
)
def test_secret_finds_tokens_within_text_and_within_payloads(token):
    detectors = Detectors({"secret"}, ())
    text = f"use {token} please"
    assert detectors.fires(text)
    assert detectors.suspects(encode({"a": text}))


@pytest.mark.parametrize(
    "text", ["risk-assessment-of-the-whole-project", "sk-learn", "https://example.org/a:b", "ghp_x"]
)
def test_secret_leaves_other_text(text):
    assert not Detectors({"secret"}, ()).fires(text)


def test_detectors_only_do_what_they_are_named_for():
    assert Detectors({"card"}, ()).fires("4111111111111111")
    assert not Detectors({"card"}, ()).fires("AKIAIOSFODNN7EXAMPLE")
    assert not Detectors({"secret"}, ()).fires("4111111111111111")
    assert {"card", "secret"} == NAMES


def test_patterns_are_found_anywhere_in_a_value():
    detectors = Detectors((), ("(?i)project x", "^only$"))
    assert detectors.fires("about PROJECT X now")
    assert detectors.fires("only")
    assert not detectors.fires("not only")


def test_patterns_see_values_and_not_their_json():
    detectors = Detectors({"card"}, ("^a\nb$",))
    assert detectors.suspects(b'{"text":"a\\nb"}')
    assert detectors.fires("a\nb")


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=12),
    st.sampled_from(["4111111111111111", "4111 1111 1111 1111"]),
)
def test_suspects_never_clears_a_payload_in_which_a_card_is(around, card):
    text = around + card + around
    if has_card(text):
        assert Detectors({"card"}, ()).suspects(encode({"text": text}))


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "(?<!a)b"])
def test_find_any_refuses_what_cannot_be_linear(pattern):
    with pytest.raises(ValueError, match="linear time"):
        find_any(pattern)


@for_each(
    "text",
    [
        "1" * LENGTH,
        "1 " * (LENGTH // 2),
        "11-" * (LENGTH // 3),
        "4111 1111 1111 1112 " * (LENGTH // 20),
        "eyJ" * (LENGTH // 3),
        "a://" * (LENGTH // 4),
        "-----BEGIN " * (LENGTH // 11),
        "xox-" * (LENGTH // 4),
    ],
    ids=lambda text: text[:12],
)
def test_detectors_pass_through_long_hostile_text(text):
    """A quadratic detector would take hours here."""
    detectors = Detectors({"card", "secret"}, ("(a+)+$", "(.*)*!"))
    assert not detectors.fires(text)
