"""Laws of canonical JSON, for values of every kind and for hostile ones."""

import json
from typing import Any

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import canonical
from deedbook.format.errors import IntakeError

LIMIT = 2**53 - 1
KEYS = st.text(st.sampled_from('ab\0"\\\n é\u2028\ud7ff\ue000\uffff\U00010000😀'), max_size=4)
NUMBERS = st.integers(-LIMIT, LIMIT) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not LIMIT < abs(number) < 1e21
)
SCALARS = st.none() | st.booleans() | NUMBERS | KEYS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)
HOSTILE = st.recursive(
    SCALARS
    | st.floats()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**53, -(2**53), 1e16, 1e20, 1e21, "\ud800", "$sealed"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS | st.sampled_from(["$sealed", "\udc00"]), inner, max_size=3)
        | inner.flatmap(lambda value: st.integers(60, 66).map(lambda count: _wrapped(value, count)))
    ),
    max_leaves=8,
)


def _wrapped(value: Any, count: int) -> Any:
    for _ in range(count):
        value = [value]
    return value


def outcome(do: Any, *args: Any) -> bytes | None:
    """Return what comes out, as canonical bytes; nothing where it is refused."""
    try:
        made = do(*args)
    except IntakeError:
        return None
    return made if isinstance(made, bytes) else canonical.encode(made)


@given(VALUES)
def test_law_encoding_what_was_decoded_gives_the_same_bytes(value: Any) -> None:
    raw = canonical.encode(value)
    assert canonical.encode(canonical.decode(raw)) == raw
    assert canonical.encode(canonical.parse(raw)) == raw
    assert canonical.decode(raw) == value


@given(VALUES)
def test_law_bytes_are_those_of_an_independent_implementation(value: Any) -> None:
    assert canonical.encode(value) == rfc8785.dumps(value)


@given(VALUES, st.randoms(use_true_random=False), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_law_spelling_and_order_of_keys_do_not_matter(value: Any, random: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(_shuffled(value, random), indent=indent, ensure_ascii=ascii_only)
    assert canonical.admit(canonical.parse(text)) == canonical.encode(value)


def _shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: _shuffled(value[key], random) for key in keys}
    return [_shuffled(item, random) for item in value] if isinstance(value, list) else value


@given(HOSTILE)
def test_law_parse_accepts_exactly_what_admit_accepts(value: Any) -> None:
    assert outcome(canonical.parse, json.dumps(value)) == outcome(canonical.admit, value)


@given(HOSTILE)
def test_law_big_integers_become_the_same_digits_in_values_and_in_text(value: Any) -> None:
    from_text = outcome(lambda: canonical.parse(json.dumps(value), big_integers="string"))
    assert outcome(lambda: canonical.admit(canonical.without_big_integers(value))) == from_text


@given(HOSTILE)
def test_law_every_refusal_is_an_intake_error_and_changes_nothing(value: Any) -> None:
    before = json.dumps(value)
    outcome(canonical.admit, value)
    assert json.dumps(value) == before


@given(VALUES)
def test_law_bytes_hold_no_control_character_and_so_no_line_break(value: Any) -> None:
    assert not any(byte < 0x20 for byte in canonical.encode(value))


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_law_parse_answers_any_text_with_a_value_or_an_intake_error(text: bytes | str) -> None:
    raw = outcome(canonical.parse, text)
    if raw is not None:
        assert canonical.encode(json.loads(text)) == raw


@given(st.lists(VALUES, min_size=2, max_size=2))
def test_law_equal_bytes_mean_equal_values(pair: list[Any]) -> None:
    left, right = map(canonical.encode, pair)
    assert (left == right) == (canonical.decode(left) == canonical.decode(right) and _typed(pair[0]) == _typed(pair[1]))


def _typed(value: Any) -> Any:
    """Return the value with booleans told apart from numbers, which Python holds to be equal."""
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return [_typed(item) for item in value] if isinstance(value, list) else (isinstance(value, bool), value)
