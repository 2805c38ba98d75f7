"""Sealed values: rules, the sealer over whole payloads, what it keeps beside the ledger, and opening it again."""

import base64
import json
import os
import urllib.parse
from hashlib import sha256

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.canonical import MAX_BYTES, PAYLOAD_DEPTH, decode, encode, encode_payload
from deedbook.format.errors import FileRefused, IntakeError, LedgerError, SourceError
from deedbook.format.files import Folder
from deedbook.format.sealed import MAX_BLOBS, MAX_INLINE, Rules, Sealer, is_sealed, open_value, open_values

CARD = "4111 1111 1111 1111"
TOKEN = 'hunter2&="quoted" über/geheim'

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.just(CARD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def sealer(*rules: object, **secrets: str) -> Sealer:
    return Sealer(Rules.parse(list(rules)), secrets)


@pytest.fixture
def beside(tmp_path):
    """Keep blobs beside a ledger as the ledger does, and return its folder."""
    with Folder.at(tmp_path) as folder:
        folder.make("sealed")

        def keep(blobs):
            for blob in blobs:
                (tmp_path / "sealed" / blob.digest).write_bytes(blob.data)
            return folder

        yield keep


# --- rules ------------------------------------------------------------------------------------------------------------


def test_rules_read_places_detectors_and_patterns():
    rules = Rules.parse(["user.message/text", "tool.*/args/a~1b/~0c", {"detect": "card"}, {"pattern": "x+"}])
    assert rules.places == (("user.message", ("text",)), ("tool.*", ("args", "a/b", "~c")))
    assert rules.detectors == {"card"}
    assert rules.patterns == ("x+",)


@for_each(
    ("item", "why"),
    [
        ("user.message", "names no value"),
        ("/text", "names no value"),
        ("User.Message/text", "names no value"),
        ({"detect": "cards"}, "is no rule"),
        ({"detect": "card", "more": 1}, "is no rule"),
        ({"pattern": "(?=a)"}, "linear time"),
        ({"pattern": 3}, "is no rule"),
        ({}, "is no rule"),
        (None, "is no rule"),
    ],
)
def test_rules_refuse_what_they_do_not_know_with_its_index(item, why):
    with pytest.raises(SourceError, match=why) as caught:
        Rules.parse(["user.message/text", item], place="deedbook.yaml: seal")
    assert caught.value.error.code == "SOURCE_INVALID"
    assert caught.value.error.place == "deedbook.yaml: seal[1]"


def test_rules_report_all_faults_at_once():
    with pytest.raises(SourceError) as caught:
        Rules.parse(["x", {"detect": "y"}, "user.message/text", 5])
    assert [error.place for error in caught.value.errors] == ["seal[0]", "seal[1]", "seal[3]"]


def test_sealer_is_active_only_if_there_is_something_to_do():
    assert not Sealer().active
    assert not sealer(empty="").active
    assert sealer("user.message/text").active
    assert sealer({"detect": "card"}).active
    assert sealer({"pattern": "x"}).active
    assert sealer(gh=TOKEN).active


# --- places -----------------------------------------------------------------------------------------------------------


def test_sealer_seals_the_named_value_and_commits_to_salt_and_bytes():
    payload, (blob,) = sealer("user.message/text")("user.message", b'{"lang":"de","text":"hi"}')
    assert decode(payload) == {"lang": "de", "text": {"$sealed": blob.digest, "size": 4}}
    assert blob.data[32:] == b'"hi"'
    assert blob.digest == sha256(blob.data).hexdigest()
    assert len(blob.data) == 36


def test_sealer_salts_each_value_anew():
    seal = sealer("user.message/text")
    (first,), (second,) = (seal("user.message", b'{"text":"1234"}')[1] for _ in range(2))
    assert first.data[:32] != second.data[:32]
    assert first.digest != second.digest


@for_each(
    ("rule", "event_type", "sealed_at"),
    [
        ("tool.call/args/token", "tool.call", ["args.token"]),
        ("tool.*/args/token", "tool.call", ["args.token"]),
        ("*/args/token", "tool.call", ["args.token"]),
        ("tool.*/args/token", "llm.request", []),
        ("tool.call/args/absent", "tool.call", []),
        ("tool.call/args/token/deeper", "tool.call", []),
        ("tool.call/args/list/1", "tool.call", ["args.list.1"]),
        ("tool.call/args/list/2", "tool.call", []),
        ("tool.call/args/list/01", "tool.call", []),
        ("tool.call/args/list/*", "tool.call", ["args.list.0", "args.list.1"]),
        ("tool.call/args/*", "tool.call", ["args.list", "args.token"]),
        ("tool.call/args", "tool.call", ["args"]),
    ],
)
def test_sealer_follows_event_types_and_pointers(rule, event_type, sealed_at):
    payload, blobs = sealer(rule)(event_type, encode({"args": {"token": "t", "list": [1, 2]}, "tool_name": "x"}))
    assert list(places_of_sealed(decode(payload))) == sealed_at
    assert len(blobs) == len(sealed_at)


def places_of_sealed(value, path=""):
    if is_sealed(value):
        yield path
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in sorted(items):
            yield from places_of_sealed(item, f"{path}.{key}".lstrip("."))


def test_sealer_seals_once_what_two_rules_name():
    payload, blobs = sealer("a.b/args/token", "a.*/args", "a.b/*", {"detect": "card"})(
        "a.b", encode({"args": {"token": CARD}})
    )
    assert list(places_of_sealed(decode(payload))) == ["args"]
    assert len(blobs) == 2  # the token, and around it the arguments


def test_sealer_returns_the_very_payload_where_there_is_nothing_to_do():
    seal = sealer("user.message/text", {"detect": "card"}, {"detect": "secret"}, gh=TOKEN)
    payload = b'{"args":{"text":"hello"},"tool_name":"echo"}'
    assert seal("tool.call", payload) == (payload, ())
    assert seal("tool.call", payload)[0] is payload


# --- detectors --------------------------------------------------------------------------------------------------------


def test_sealer_seals_strings_numbers_and_objects_in_which_a_detector_fires():
    payload = {
        "a": f"pay {CARD}",
        "b": [1, 4111111111111111],
        "c": {"4111111111111111": 1},
        "d": 0.1234567890123456,
        "e": True,
    }
    raw, blobs = sealer({"detect": "card"})("x.y", encode(payload))
    assert list(places_of_sealed(decode(raw))) == ["a", "b.1", "c"]
    assert sorted(decode(blob.data[32:]) for blob in blobs[:1]) == [f"pay {CARD}"]


def test_sealer_does_not_take_its_own_digests_for_card_numbers(monkeypatch):
    seal = sealer({"detect": "card"}, "a.b/x")
    for _ in range(50):
        raw, blobs = seal("a.b", encode({"x": CARD, "y": sha256(os.urandom(8)).hexdigest()}))
        assert list(places_of_sealed(decode(raw))) == ["x"]
        assert len(blobs) == 1


def test_sealer_seals_members_whole_where_sealed_values_would_nest_too_deep():
    value: object = [CARD]
    for _ in range(PAYLOAD_DEPTH - 2):
        value = [value]
    raw, (blob,) = sealer({"detect": "card"})("x.y", encode_payload({"deep": value, "flat": 1}))
    assert list(places_of_sealed(decode(raw))) == ["deep"]
    assert decode(blob.data[32:]) == value


def test_sealer_seals_members_whole_where_sealed_values_would_be_too_many():
    few, many = [CARD] * 64, [CARD] * 65
    assert len(sealer({"detect": "card"})("x.y", encode({"a": few, "n": 1}))[1]) == 64
    raw, (blob,) = sealer({"detect": "card"})("x.y", encode({"a": many, "n": 1}))
    assert list(places_of_sealed(decode(raw))) == ["a"]
    assert decode(blob.data[32:]) == many


# --- secrets ----------------------------------------------------------------------------------------------------------


@for_each(
    "spelling",
    [
        lambda s: s,
        lambda s: f"Bearer {s}!",
        lambda s: json.dumps({"token": s}, ensure_ascii=False),
        lambda s: urllib.parse.quote(s, safe=""),
        lambda s: urllib.parse.urlencode({"q": s}),
        lambda s: s.encode().hex(),
        lambda s: base64.b64encode(s.encode()).decode(),
        lambda s: base64.b64encode(f"ada:{s}".encode()).decode(),
        lambda s: base64.b64encode(f"x{s}yz".encode()).decode(),
        lambda s: base64.urlsafe_b64encode(f"xy{s}".encode()).decode(),
    ],
)
def test_secret_values_are_marked_in_every_spelling(spelling):
    text = spelling(TOKEN)
    raw, blobs = sealer(gh=TOKEN)("tool.result", encode({"result": {"out": [text]}, "tool_name": "x"}))
    (out,) = decode(raw)["result"]["out"]
    assert "[secret:gh]" in out
    assert TOKEN not in out
    assert not blobs


def test_secret_values_are_marked_in_keys_and_numbers():
    raw, _ = sealer(pin="12345678", gh="zz9")("x.y", encode({"a": {"zz9": 1, "[secret:gh]": 2}, "n": [12345678, 1.5]}))
    assert decode(raw) == {"a": {"[secret:gh]": 2, "[secret:gh]'": 1}, "n": ["[secret:pin]", 1.5]}


def test_secret_values_that_hold_one_another_are_marked_the_longest_first():
    raw, _ = sealer(short="abcdef", long="abcdefgh")("x.y", b'{"t":"abcdefgh abcdef"}')
    assert decode(raw) == {"t": "[secret:long] [secret:short]"}


def test_secret_values_do_not_survive_in_what_is_sealed():
    _, blobs = sealer("x.y/t", {"detect": "card"}, gh=TOKEN)("x.y", encode({"t": TOKEN, "u": f"{CARD} {TOKEN}"}))
    assert len(blobs) == 2
    assert not any(encode(TOKEN)[1:-1] in blob.data for blob in blobs)


def test_secret_values_do_not_survive_in_large_values():
    _, (blob,) = sealer(gh=TOKEN)("x.y", encode({"t": f"{'x' * MAX_INLINE}{TOKEN}"}))
    assert encode(TOKEN)[1:-1] not in blob.data
    assert b"[secret:gh]" in blob.data


# --- large values -----------------------------------------------------------------------------------------------------


def test_large_payloads_have_members_sealed_largest_first_until_they_fit():
    payload = {"a": "x" * 400_000, "b": "y" * 900_000, "c": "z" * 700_000, "d": 1}
    raw, blobs = Sealer()("tool.result", encode(payload))
    assert list(places_of_sealed(decode(raw))) == ["b", "c"]
    assert [len(blob.data) - 32 for blob in blobs] == [900_002, 700_002]
    assert len(raw) <= MAX_INLINE


def test_large_payloads_of_exactly_the_limit_stay():
    fits = encode({"a": "x" * (MAX_INLINE - 8)})
    assert len(fits) == MAX_INLINE
    assert Sealer()("x.y", fits) == (fits, ())
    assert len(Sealer()("x.y", encode({"a": "x" * (MAX_INLINE - 7)}))[1]) == 1


def test_large_payloads_that_only_sealing_made_large_are_made_to_fit():
    payload = {"a": "x" * (MAX_INLINE - 100), "b": CARD}
    assert len(encode(payload)) < MAX_INLINE
    raw, blobs = sealer({"detect": "card"})("x.y", encode(payload))
    assert len(raw) <= MAX_INLINE
    assert list(places_of_sealed(decode(raw))) == ["a", "b"]
    assert len(blobs) == 2


ANSWER = {"tool_calls": [], "finish_reason": "stop", "usage": {"input_tokens": 7, "output_tokens": 9}, "model": "m"}


def test_large_answer_of_a_model_keeps_its_usage_because_budgets_count_it():
    payload = {"ability": "model/standard", "response": {"text": "x" * (MAX_INLINE + 1), **ANSWER}}
    raw, blobs = Sealer()("llm.response", encode(payload))
    assert decode(raw)["response"]["usage"] == ANSWER["usage"]
    assert [len(blob.data) - 32 for blob in blobs] == [MAX_INLINE + 3, 2]


def test_answer_of_a_model_with_many_sealed_values_keeps_its_usage():
    answer = {
        **ANSWER,
        "text": "",
        "tool_calls": [{"id": str(n), "args": {"card": CARD}} for n in range(MAX_BLOBS + 1)],
    }
    raw, _ = sealer({"detect": "card"})("llm.response", encode({"ability": "model/standard", "response": answer}))
    assert decode(raw)["response"]["usage"] == ANSWER["usage"]
    assert CARD.encode() not in raw


def test_large_value_is_sealed_whole_where_more_than_its_text_is_large():
    value = {**ANSWER, "text": "x", "more": "y" * MAX_INLINE}
    raw, blobs = Sealer()("tool.result", encode({"result": value}))
    assert is_sealed(decode(raw)["result"])
    assert len(blobs) == 1


def test_large_payloads_that_cannot_fit_are_refused():
    with pytest.raises(IntakeError, match="too many members"):
        Sealer()("x.y", encode({f"{i:05}": "x" * 40 for i in range(30_000)}))
    with pytest.raises(IntakeError, match="at most"):
        Sealer()("x.y", encode({"a": "x" * MAX_BYTES}))


# --- opening ----------------------------------------------------------------------------------------------------------


@given(payload=st.dictionaries(st.sampled_from("abcd"), values, min_size=1, max_size=4))
def test_opening_gives_back_what_was_sealed(tmp_path_factory, payload):
    raw, blobs = sealer("x.y/a/*", "x.y/b", {"detect": "card"})("x.y", encode(payload))
    assert encode(decode(raw)) == raw
    assert CARD.encode() not in raw
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "sealed").mkdir()
    for blob in blobs:
        (folder / "sealed" / blob.digest).write_bytes(blob.data)
    with Folder.at(folder) as held:
        assert open_values(held, decode(raw)) == payload


def test_opening_goes_into_sealed_values(beside):
    raw, blobs = sealer("x.y/a/b", "x.y/a")("x.y", encode({"a": {"b": "inner"}}))
    assert open_value(beside(blobs), decode(raw)["a"]) == {"b": "inner"}


def test_opening_an_erased_value_says_that_it_is_absent(beside, tmp_path):
    raw, (blob,) = sealer("x.y/a")("x.y", b'{"a":"b"}')
    folder = beside([blob])
    (tmp_path / "sealed" / blob.digest).unlink()
    with pytest.raises(FileNotFoundError):
        open_value(folder, decode(raw)["a"])


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + b" ", lambda d: b"x" + d[1:], lambda d: d[:-2] + b'x"']
)
def test_opening_what_was_changed_is_refused(beside, tmp_path, change):
    raw, (blob,) = sealer("x.y/a")("x.y", b'{"a":"b"}')
    folder = beside([blob])
    (tmp_path / "sealed" / blob.digest).write_bytes(change(blob.data))
    with pytest.raises(LedgerError) as caught:
        open_value(folder, decode(raw)["a"])
    assert caught.value.error.code == "LEDGER_UNSOUND"


def test_opening_with_another_size_is_refused(beside):
    raw, blobs = sealer("x.y/a")("x.y", b'{"a":"b"}')
    with pytest.raises(LedgerError):
        open_value(beside(blobs), {**decode(raw)["a"], "size": 4})


def test_opening_through_a_link_is_refused(beside, tmp_path):
    raw, (blob,) = sealer("x.y/a")("x.y", b'{"a":"b"}')
    folder = beside([])
    (tmp_path / "elsewhere").write_bytes(blob.data)
    (tmp_path / "sealed" / blob.digest).symlink_to(tmp_path / "elsewhere")
    with pytest.raises((LedgerError, FileRefused)):
        open_value(folder, decode(raw)["a"])


@pytest.mark.parametrize(
    "value",
    [
        {"$sealed": "../../etc/passwd", "size": 3},
        {"$sealed": "a" * 63, "size": 3},
        {"$sealed": "A" * 64, "size": 3},
        {"$sealed": "a" * 64},
        {"$sealed": "a" * 64, "size": "3"},
        {"$sealed": "a" * 64, "size": True},
        {"$sealed": "a" * 64, "size": 3, "more": 1},
        {"$sealed": ["a" * 64], "size": 3},
        "a",
    ],
)
def test_is_sealed_takes_nothing_else_for_a_sealed_value(beside, value):
    assert not is_sealed(value)
    with pytest.raises(LedgerError):
        open_value(beside([]), value)


def test_is_sealed_takes_what_the_sealer_makes():
    raw, _ = sealer("x.y/a")("x.y", b'{"a":"b"}')
    assert is_sealed(decode(raw)["a"])
