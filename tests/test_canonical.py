"""Canonical JSON, case by case: what is accepted and how it is spelled, what is refused and where, and the laws."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import json
import math
import tracemalloc
import uuid
from typing import Any, NamedTuple

import attrs
import orjson
import pytest
import rfc8785
from cases import for_each

from deedbook.format import canonical
from deedbook.format.errors import IntakeError, NotJsonError

LIMIT = 2**53 - 1


def levels(count: int, wrap: str = "list") -> Any:
    """Return a value of *count* containers, one in the other."""
    value: Any = [] if wrap == "list" else {}
    for _ in range(count - 1):
        value = [value] if wrap == "list" else {"a": value}
    return value


def refused(value: Any) -> tuple[str, str | None]:
    """Return the message and the place with which *value* is refused."""
    with pytest.raises(IntakeError) as caught:
        canonical.encode(value)
    assert caught.value.error.code == "INTAKE_REFUSED"
    return caught.value.error.message, caught.value.error.place


# --- numbers ----------------------------------------------------------------------------------------------------------


@for_each(
    ("number", "spelled"),
    [
        (1.0, "1"),
        (100.0, "100"),
        (1e15, "1000000000000000"),
        (float(LIMIT), "9007199254740991"),
        (-float(LIMIT), "-9007199254740991"),
        (0.0, "0"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (-1.5e21, "-1.5e+21"),
        (1e22, "1e+22"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (1e-4, "0.0001"),
        (9.999999999999999e-5, "0.00009999999999999999"),
        (1e-5, "0.00001"),
        (1.5e-5, "0.000015"),
        (-1.25e-5, "-0.0000125"),
        (1e-6, "0.000001"),
        (9.5e-7, "9.5e-7"),
        (1e-7, "1e-7"),
        (-1e-7, "-1e-7"),
        (5e-324, "5e-324"),
        (2.2250738585072014e-308, "2.2250738585072014e-308"),
        (4.35, "4.35"),
        (0.1 + 0.2, "0.30000000000000004"),
        (123456789.125, "123456789.125"),
        (LIMIT, "9007199254740991"),
        (-LIMIT, "-9007199254740991"),
        (0, "0"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_number_is_spelled_as_ecmascript_does(number: float, spelled: str) -> None:
    assert canonical.encode(number) == spelled.encode()
    assert canonical.encode({"a": [number, "x"]}) == f'{{"a":[{spelled},"x"]}}'.encode()


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**63, 2**64, -(2**63) - 1, 10**30, 10**400])
def test_integer_beyond_the_safe_range_is_refused(number: int) -> None:
    assert refused([0, number]) == ("an integer beyond 2^53-1; send it as a string", "$[1]")


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 1e16, 1e17, 1.2e20, 999999999999999868928.0, -1e20])
def test_float_whose_spelling_is_an_unsafe_integer_is_refused(number: float) -> None:
    message, place = refused({"n": number})
    assert "is an integer beyond 2^53-1; send it as a string" in message
    assert place == "$.n"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_number_that_is_not_finite_is_refused_and_never_null(number: float) -> None:
    message, place = refused({"a": [1, number]})
    assert message.endswith("is not a JSON number")
    assert place == "$.a[1]"


# --- strings and keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ('"\\/', r'"\"\\/"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\0\x01\x1f\x7f", '"\\u0000\\u0001\\u001f\x7f"'),
        ("\u0085\u2028\u2029\ufeff\ufffe", '"\u0085\u2028\u2029\ufeff\ufffe"'),
        ("é e\u0301", '"é e\u0301"'),
        ("😀\U0010ffff", '"😀\U0010ffff"'),
    ],
)
def test_string_is_escaped_only_where_json_demands(text: str, spelled: str) -> None:
    assert canonical.encode(text) == spelled.encode()
    assert canonical.encode({text: 1}) == f"{{{spelled}:1}}".encode()


@for_each("high", ["\ue000", "\uf8ff", "\ufb33", "\uffff"])
@for_each("astral", ["\U00010000", "😂", "\U0010ffff", "\U00040000"])
def test_keys_are_ordered_by_utf16_code_unit(high: str, astral: str) -> None:
    raw = canonical.encode({high: 1, astral: 2, "z": [{high + "a": 3, astral: 0.000001}]})
    assert raw == f'{{"z":[{{"{astral}":0.000001,"{high}a":3}}],"{astral}":2,"{high}":1}}'.encode()
    assert raw == rfc8785.dumps(json.loads(raw))


def test_keys_are_ordered_at_every_level() -> None:
    assert canonical.encode({"b": {"d": 1, "": 2}, "a": [{"y": 0, "x": 0}], "A": 0, "é": 0}) == (
        '{"A":0,"a":[{"x":0,"y":0}],"b":{"":2,"d":1},"é":0}'.encode()
    )


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800"])
def test_lone_surrogate_is_refused(text: str) -> None:
    assert refused(["fine", {"a": text}]) == ("a string holds a lone surrogate", "$[1].a")
    assert refused({"fine": {text: 1}}) == ("a key holds a lone surrogate", "$.fine")


@pytest.mark.parametrize("key", [1, None, True, 1.5, b"a", (1,), uuid.UUID(int=1)])
def test_key_that_is_no_string_is_refused_and_never_converted(key: Any) -> None:
    message, place = refused([{"a": {key: 1}}])
    assert message == f"a key is {type(key).__name__}, not a string"
    assert place == "$[0].a"
    refused({"1": "a", key: "b"})


# --- types ------------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    ADA = "ada"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: int


@dataclasses.dataclass
class Data:
    a: int = 1


@attrs.frozen
class Frozen:
    a: int = 1


@for_each(
    "value",
    [
        dt.datetime(2025, 1, 1, tzinfo=dt.UTC), dt.date(2025, 1, 1), dt.time(1), uuid.UUID(int=1),
        Colour.RED, Name.ADA, Level.LOW, Text("a"), Pair(1), (1, 2), Data(), Frozen(), {1}, frozenset(), b"a",
        bytearray(b"a"), decimal.Decimal(1), 1j, object(), collections.OrderedDict(a=1), collections.defaultdict(int),
        range(3), iter([]), orjson.Fragment(b"1"), NotImplemented, int, len,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_value_that_json_has_not_is_refused_with_its_type(value: Any) -> None:
    assert refused({"a": [value]}) == (f"{type(value).__name__} is not a JSON type", "$.a[0]")
    refused(value)


@pytest.mark.parametrize("key", [Text("a"), Name.ADA])
def test_key_of_a_string_subclass_is_refused(key: str) -> None:
    refused({key: 1})


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["list", "dict"])
def test_depth_of_64_levels_is_accepted_and_65_refused(wrap: str) -> None:
    assert canonical.decode(canonical.encode(levels(64, wrap))) == levels(64, wrap)
    for count in (65, 66, 255, 5_000):
        assert refused(levels(count, wrap))[0] == "more than 64 levels"


def test_depth_counts_containers_not_what_is_in_them() -> None:
    value: Any = 1.0
    for _ in range(64):
        value = {"a": value}
    assert canonical.encode(value).endswith(b":1" + b"}" * 64)


def test_node_budget_is_100_000_values() -> None:
    canonical.encode([0] * 99_999)
    assert refused([0] * 100_000) == ("more than 100000 nodes", None)
    assert refused([[0] * 400] * 300) == ("more than 100000 nodes", None)


def test_shared_and_circular_values_are_refused_before_they_unfold() -> None:
    wide: Any = [0] * 1_000
    double: Any = []
    for _ in range(3):
        wide = [wide] * 1_000
    for _ in range(60):
        double = [double, double]
    circle: list[Any] = []
    circle.append({"again": circle})
    assert refused(wide)[0] == "more than 100000 nodes"
    assert refused(double)[0] == "more than 100000 nodes"
    assert refused(circle)[0] == "more than 64 levels"


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {text: 1}], ids=["values", "keys"])
def test_one_long_text_that_stands_in_many_places_is_refused_before_it_is_written_out(wrap: Any) -> None:
    shared = [wrap("a" * 1024 * 1024)] * 2_000
    with pytest.raises(IntakeError, match="at most 16777216"):
        canonical.admit(shared)
    tracemalloc.start()
    try:
        with pytest.raises(IntakeError):
            canonical.encode_payload({"result": shared})
        assert tracemalloc.get_traced_memory()[1] < canonical.MAX_BYTES
    finally:
        tracemalloc.stop()


def test_admit_refuses_more_than_16_mebibytes() -> None:
    fits = "a" * (canonical.MAX_BYTES - 2)
    assert len(canonical.admit(fits)) == canonical.MAX_BYTES
    with pytest.raises(IntakeError, match="at most 16777216"):
        canonical.admit(fits + "a")


def test_refusal_names_the_place_in_a_bounded_message() -> None:
    message, place = refused({"k" * 10_000_000: {"b": [{"c" * 10_000_000: math.nan}]}})
    assert place is not None
    assert place == "$.[a name of 10000000 characters].b[0].[a name of 10000000 characters]"
    assert len(message) + len(place) < 500


@pytest.mark.parametrize("value", [{"$sealed": 1}, [{"a": {"$sealed": "x", "b": 2}}], {"a": [[{"$sealed": None}]]}])
def test_admit_refuses_the_key_of_sealed_values(value: Any) -> None:
    with pytest.raises(IntakeError, match=r'"\$sealed" is the ledger\'s own'):
        canonical.admit(value)
    assert canonical.decode(canonical.encode(value)) == value


def test_admit_accepts_sealed_where_it_is_no_key() -> None:
    value = {"a": "$sealed", "$sealed ": '"$sealed"', "b": ['{"$sealed":1}']}
    assert canonical.decode(canonical.admit(value)) == value


# --- reading ----------------------------------------------------------------------------------------------------------


@for_each(
    "text",
    [
        "", " ", "{", "[1,]", "{'a':1}", '{"a":1}{}', "01", "+1", "1.", ".5", "0x1", "1_000", "nul", "True", "[1 2]",
        '"\t"', '"a\nb"', '"\\x41"', '"\\u12"', "// no\n1", "\ufeff1", "\x0c1", "1\0", "\u00a01", '"a', "\u0661",
        b"\xff", b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b"\xef\xbb\xbf1", "1".encode("utf-16"),
        "NaN", "[Infinity]", '{"a":-Infinity}', "1e400", "-1e400", "1e20", "9007199254740992", "-9007199254740993.0",
        '"\\ud800"', '{"\\udfff":1}', '{"$sealed":1}', '{"\\u0024sealed":{}}', '{"a":1,"a":1}', '{"a":1,"\\u0061":2}',
        '[{"x":{"b":1,"c":2,"b":3}}]', "[" * 65 + "]" * 65, "[" * 100_000, '{"a":' * 100_000, "-" * 1_000,
        "[" + "0," * 100_000 + "0]", "1" * 5_000, b'{"a":\0}',
    ],
    ids=lambda text: repr(text[:24]),
)  # fmt: skip
def test_parse_refuses_what_is_no_acceptable_document(text: str | bytes) -> None:
    with pytest.raises(IntakeError) as caught:
        canonical.parse(text)
    assert caught.value.error.code == "INTAKE_REFUSED"
    assert len(str(caught.value)) < 500


@for_each(
    ("text", "value"),
    [
        (' {"a" :\t[1 ,\r\n2]} ', {"a": [1, 2]}),
        ('"\\u00e9\\ud83d\\ude00\\u0000"', "é😀\0"),
        ("-0", 0),
        ("-0.0", 0),
        ("1E2", 100),
        ("9007199254740991", LIMIT),
        ("9007199254740991.0", LIMIT),
        ("1e-400", 0),
        ("1e21", 1e21),
        ("[" * 64 + "]" * 64, levels(64)),
        ('"' + "a" * 1_000_000 + '"', "a" * 1_000_000),
        (b'{"\xc3\xa9":null}', {"é": None}),
        ("true", True),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_parse_reads_json_however_it_is_spelled(text: str | bytes, value: Any) -> None:
    assert canonical.parse(text) == value
    assert canonical.admit(canonical.parse(text)) == canonical.encode(value)


def test_parse_names_the_key_that_stands_twice() -> None:
    with pytest.raises(IntakeError, match="key 'b' appears twice"):
        canonical.parse('[{"x":{"b":1,"c":2,"b":3,"c":4}}]')


def test_parse_refuses_more_than_16_mebibytes() -> None:
    with pytest.raises(IntakeError, match="at most 16777216"):
        canonical.parse(b'"' + b"a" * canonical.MAX_BYTES + b'"')


def test_parse_reads_big_integers_as_their_digits_where_declared() -> None:
    text = '{"id":9007199254740993,"n":-9007199254740992,"m":5,"s":[123456789012345678901234567890]}'
    assert canonical.parse(text, big_integers="string") == {
        "id": "9007199254740993",
        "n": "-9007199254740992",
        "m": 5,
        "s": ["123456789012345678901234567890"],
    }
    with pytest.raises(IntakeError, match="integer 9007199254740993 is beyond 2"):
        canonical.parse(text)
    with pytest.raises(IntakeError):
        canonical.parse("1e20", big_integers="string")


def test_parse_keeps_big_integers_where_somebody_else_decides_about_them() -> None:
    text = '{"id":9007199254740993,"n":-9007199254740992,"s":[123456789012345678901234567890]}'
    assert canonical.parse(text, big_integers="keep") == json.loads(text)
    longest = "9" * canonical.MAX_DIGITS
    assert canonical.parse(longest, big_integers="keep") == int(longest)
    assert canonical.without_big_integers(int(longest)) == longest
    for refused in (f"9{longest}", "-" + "9" * 5000, "1e20", '{"a":1,"a":1}', '{"$sealed":1}'):
        with pytest.raises(IntakeError):
            canonical.parse(refused, big_integers="keep")


def test_parse_says_apart_what_is_no_json_at_all() -> None:
    for text in ("", "{", "nothing", b'"\xff"', "\ufeff1"):
        with pytest.raises(NotJsonError):
            canonical.parse(text)
    for text in ('{"a":1,"a":1}', "NaN", "[" * 100_000, "1e400", "9" * 20):
        with pytest.raises(IntakeError) as caught:
            canonical.parse(text)
        assert not isinstance(caught.value, NotJsonError)


def test_payload_is_read_as_strictly_and_may_be_deeper_and_hold_sealed_values() -> None:
    deep = "[" * 70 + '{"$sealed":"x"}' + "]" * 70
    assert canonical.parse_payload(deep) == json.loads(deep)
    for refused in ('{"a":1,"a":1}', "NaN", '"\\ud800"', "9" * 20, "[" * 80 + "]" * 80, "{"):
        with pytest.raises(IntakeError):
            canonical.parse_payload(refused)


def test_big_integers_in_values_become_their_digits() -> None:
    value = {"id": 2**53, "n": -(2**53), "m": LIMIT, "list": [10**30, {"deep": 10**40}], "ok": True}
    before = json.dumps(value)
    assert canonical.without_big_integers(value) == {
        "id": "9007199254740992",
        "n": "-9007199254740992",
        "m": LIMIT,
        "list": ["1" + "0" * 30, {"deep": "1" + "0" * 40}],
        "ok": True,
    }
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    "value", [10**10_000, [1e17], {"a": {1}}, levels(65), [0] * 100_000], ids=lambda value: repr(type(value))
)
def test_big_integers_are_all_that_is_converted(value: Any) -> None:
    with pytest.raises(IntakeError):
        canonical.admit(canonical.without_big_integers(value))


# --- hashes -----------------------------------------------------------------------------------------------------------


def test_digest_is_sha256_in_lower_case_hex() -> None:
    assert canonical.digest(b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_bindings_are_found_sound_and_a_changed_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert canonical.check_bindings()
    monkeypatch.setattr(orjson, "dumps", lambda *_args, **_kwargs: b"{}")
    assert canonical.check_bindings()
    monkeypatch.setattr(canonical, "_dumps", lambda *_args, **_kwargs: b"{}")
    assert not canonical.check_bindings()
