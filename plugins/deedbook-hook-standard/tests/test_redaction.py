"""Card numbers leave the prompt, however they are spelled; other numbers stay; hostile prompts cost linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import ALLOW, Principal
from deedbook_hook_standard.redaction import MARK, passes_luhn, redact

CARDS = {
    "4222222222222": 13,
    "30569309025904": 14,
    "378282246310005": 15,
    "4111111111111111": 16,
    "5555555555554444": 16,
    "67591234567890008": 17,
    "633110999990000000": 18,
    "6304000000000000000": 19,
}
"""Numbers that pass Luhn, with how many digits they have; none belongs to anybody."""


def check_digit(digits):
    """Return the last digit that makes *digits* pass, by trying."""
    return next(last for last in "0123456789" if passes_luhn(digits + last))


PRINTED = {
    13: [4, 3, 3, 3],
    14: [4, 6, 4],
    15: [4, 6, 5],
    16: [4, 4, 4, 4],
    17: [4, 4, 4, 5],
    18: [6, 6, 6],
    19: [4, 4, 4, 4, 3],
}


def grouped(digits, sizes, separator):
    parts, at = [], 0
    for size in sizes:
        parts.append(digits[at : at + size])
        at += size
    return separator.join([*parts, digits[at:]] if digits[at:] else parts)


# --- Luhn -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", CARDS)
def test_luhn_passes_known_test_numbers(digits):
    assert len(digits) == CARDS[digits]
    assert passes_luhn(digits)


@given(st.text("0123456789", min_size=12, max_size=18))
def test_luhn_passes_exactly_one_check_digit(digits):
    assert sum(passes_luhn(digits + last) for last in "0123456789") == 1


@given(st.text("0123456789", min_size=12, max_size=18), st.data())
def test_luhn_finds_every_single_wrong_digit(digits, data):
    card = digits + check_digit(digits)
    at = data.draw(st.integers(0, len(card) - 1))
    other = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != card[at]]))
    assert not passes_luhn(card[:at] + other + card[at + 1 :])


# --- what goes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1234567890123456",
        "4111111111111111",
        "0000000000000000",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111 1111-1111 1111",
        "4111 - 1111 - 1111 - 1111",
        "4111  1111  1111  1111",
        "411111 1111111111",
        "3782 822463 10005",
        "3056-930902-5904",
        "4222 222 222 222",
        "6304 0000 0000 0000 000",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "4111\u00a01111\u00a01111\u00a01111",
        "4111\u20111111\u20131111\u22121111",
        "4111\u200b1111\u200b1111\u200b1111",
        "4111\t1111\t1111\t1111",
        "\uff14\uff11\uff11\uff11 1111 1111 1111",
        "\u0664\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661",
    ],
)
def test_redact_takes_out_cards_and_runs_of_sixteen(text):
    assert redact(text) == MARK
    assert redact(f"pay with {text}, please") == f"pay with {MARK}, please"
    assert redact(f"x{text}y") == f"x{MARK}y"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("43 4111 1111 1111 1111", f"43 {MARK}"),
        ("valid 12-26 4111 1111 1111 1111 12-26", f"valid 12-26 {MARK} 12-26"),
        ("4111 1111 1111 1111 5555 5555 5555 4444", MARK),
        ("4111 1111 1111 1111, 5555 5555 5555 4444", f"{MARK}, {MARK}"),
        ("1234567890123456 1234567890123456", f"{MARK} {MARK}"),
        ("12 1234567890123456 34", f"12 {MARK} 34"),
        ("4111 1111\n1111 1111", "4111 1111\n1111 1111"),
        ("4111.1111.1111.1111", "4111.1111.1111.1111"),
        ("4111    1111    1111    1111", "4111    1111    1111    1111"),
    ],
)
def test_redact_finds_cards_in_longer_chains_and_keeps_to_them(text, left):
    assert redact(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no digits",
        "4111 1111 1111 1112",
        "4111-1111-1111-1112",
        "4222222222222",
        "378282246310005",
        "123456789012345",
        "12345678901234567",
        "67591234567890008",
        "6304000000000000000",
        "12345678901234567890123456789012",
        "555-0199 and 2026-01-01",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "3 4 5 12 13 99 1000 1001",
        "-",
        " - " * 20,
    ],
)
def test_redact_leaves_other_numbers_alone(text):
    assert redact(text) == text


@given(st.sampled_from(sorted(CARDS)), st.data())
def test_redact_takes_out_every_grouping_of_a_card(card, data):
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=12).filter(lambda parts: sum(parts) < len(card)))
    separator = data.draw(st.sampled_from([" ", "-", " - ", "\u2013", "  "]))
    assert redact(f"a {grouped(card, sizes, separator)}.") == f"a {MARK}."


@given(st.sampled_from(sorted(CARDS)), st.text("0123456789 -", max_size=9), st.text("0123456789 -", max_size=9))
def test_redact_takes_out_a_printed_card_whatever_numbers_stand_beside_it(card, before, after):
    spelled = grouped(card, PRINTED[len(card)], " ")
    left = redact(f"{before} {spelled} {after}")
    assert MARK in left
    assert spelled not in left
    assert len(re.findall(r"\d", left)) <= len(re.findall(r"\d", before + after))


@given(st.text("0123456789", min_size=1, max_size=40))
def test_redact_touches_an_unbroken_run_only_if_it_has_sixteen_digits(digits):
    assert redact(f"n{digits}") == (f"n{MARK}" if len(digits) == 16 else f"n{digits}")


PIECES = st.sampled_from(
    ["1", "41", "411", "1111", "4111", "0005", "123456", " ", "-", " - ", "x", "\n", "4111111111111111"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_redact_leaves_nothing_that_it_would_take_out(text):
    left = redact(text)
    assert redact(left) == left
    assert not re.search(r"(?<!\d)\d{16}(?!\d)", left)


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_redact_takes_nothing_but_digits_and_what_separates_them(text):
    kept = redact(text).split(MARK)
    at = 0
    for index, part in enumerate(kept):
        found = text.find(part, at) if index < len(kept) - 1 or index == 0 else text.rfind(part)
        gone = text[at:found]
        assert found >= at
        assert index == 0 or re.fullmatch(r"[\d\s\-\u2010-\u2015\u200b-\u200d]+", gone)
        at = found + len(part)


@pytest.mark.parametrize(
    "piece",
    ["1", "1 ", "1- ", "123 ", "1234 ", "4111111111111111 ", "1234567890123 ", "999999-", "1    ", "-"],
)
def test_redact_of_a_long_text_ends_soon(piece):
    """Each of these would run for minutes if the work were quadratic."""
    left = redact(piece * (250_000 // len(piece)))
    assert not re.search(r"(?<!\d)\d{16}(?!\d)", left)


# --- the hook ---------------------------------------------------------------------------------------------------------


def submit(hook, prompt):
    return hook.user_prompt_submit(prompt, Principal("local", "cli"), "s", "2026-01-01T00:00:00.000Z", {})


def test_redact_pii_allows_a_prompt_without_cards_as_it_is(bind):
    assert submit(bind("redact-pii"), "Say hello to Ada") is ALLOW


def test_redact_pii_transforms_the_prompt_and_does_not_repeat_the_card(bind):
    decision = submit(bind("redact-pii"), "pay 4111 1111 1111 1111 now")
    assert decision.outcome == "transform"
    assert decision.args == {"prompt": f"pay {MARK} now"}
    assert decision.reason
    assert not re.search(r"\d", decision.reason)
    assert decision.signals == {}
