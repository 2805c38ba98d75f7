"""What an SDK may do with the HTTP client that it gets, and how bytes become events."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import foreign
from deedbook_provider_http import Endpoint, Trouble, settings_schema
from deedbook_provider_http.exchange import Exchange
from deedbook_provider_http.schemas import reduce_schema, strictly
from deedbook_provider_http.stream import EventStream
from deedbook_provider_http.trouble import wait_of
from deedbook_testing.endpoints import Endpoint as Server
from deedbook_testing.endpoints.server import document


@pytest.fixture
def server():
    made = Server()
    made.always = lambda _: document({"ok": True})
    yield made
    made.close()


PASTED = ("sk-PASTED-0123456789", "sk-ant-api03-aB3dE5", "AIzaSyD0123456789", "0a" * 16, "no name", "hf_aB3dE5fG7hI9")
NAMES = ("openai", "main", "OPENAI_API_KEY", "sk-main", "team-2024.azure", "hf")


@pytest.mark.parametrize(("given", "fits"), [*((key, False) for key in PASTED), *((name, True) for name in NAMES)])
def test_key_in_place_of_a_secrets_name_is_refused_and_not_repeated(given, fits):
    check = foreign(settings_schema(structured=["none"], reserved=["model"]), place="spec")
    found = [*check.violations({"key": given}), *check.violations({"headers": {"x-key": {"secret": given}}})]
    assert (found == []) is fits
    assert all("the name of a secret" in each.message and given not in each.message for each in found)


def test_faulty_settings_are_told_in_words():
    check = foreign(settings_schema(structured=["none"], reserved=["model"]), place="spec")
    (address,), (member,) = check.violations({"base_url": "ftp://x"}), check.violations({"extra": {"model": "m"}})
    assert address.message.startswith("expected an address such as https://example.com/v1")
    assert member.message.startswith("expected only members that the provider does not set itself")


def run(server, send, base_url=None):
    endpoint = Endpoint(base_url or server.url, "m", None)
    exchange = Exchange({"accept": "application/json"}, "application/json")
    asyncio.run(exchange.run(send, endpoint, 30.0, endpoint.refused))
    return exchange


def test_request_has_exactly_the_headers_it_was_given(server):
    async def send(client, limit):
        await client.post(f"{server.url}/x", json={}, headers={"x-sdk": "1", "authorization": "Bearer env"})

    assert run(server, send).body == b'{"ok": true}'
    assert server.headers[0].keys() == {"accept", "host", "content-length"}


def test_second_request_is_refused(server):
    async def send(client, limit):
        for _ in range(2):
            await client.post(f"{server.url}/x", json={})

    with pytest.raises(Trouble, match="tried to send a second request"):
        run(server, send)
    assert len(server.bodies) == 1


def test_request_to_another_address_is_refused(server):
    async def send(client, limit):
        await client.post(f"{server.url}/x", json={})

    with pytest.raises(Trouble, match=r"to 127\.0\.0\.1 instead of vendor\.example"):
        run(server, send, "https://vendor.example/v1")
    assert server.bodies == []


def test_answer_that_was_not_read_is_no_answer(server):
    async def send(client, limit):
        async with client.stream("POST", f"{server.url}/x", json={}):
            pass

    with pytest.raises(Trouble, match="sent nothing, or did not read the answer"):
        run(server, send)


def test_sdk_that_fails_after_the_answer_does_no_harm(server):
    async def send(client, limit):
        await client.post(f"{server.url}/x", json={})
        raise ValueError("this is no Pydantic model")

    assert run(server, send).body == b'{"ok": true}'


# --- events -----------------------------------------------------------------------------------------------------------

LINE = st.binary(min_size=1, max_size=20).filter(lambda line: not {10, 13} & {*line} and line.strip())


@given(st.lists(LINE, max_size=6), st.integers(1, 7), st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_the_bytes_are_cut(lines, size, end):
    for form, whole in (("sse", b"".join(b"data: " + line + end + end for line in lines)), ("lines", end.join(lines))):
        events = EventStream(form)
        found = [each for at in range(0, len(whole), size) for each in events.feed(whole[at : at + size])]
        assert [*found, *events.end()] == lines


def test_server_sent_events_join_their_lines_and_leave_out_what_is_no_data():
    events = EventStream("sse")
    raw = b": ping\nevent: a\ndata: 1\ndata:2\nid: 7\n\nretry: 5\n\ndata\n\ndata: no end"
    assert [*events.feed(raw)] == [b"1\n2", b""]
    assert [*events.end()] == [b"no end"]
    assert [*events.end()] == []


@pytest.mark.parametrize("told", ["{}", "{} and {}", "…{4:}", "{:20} cut", "{:12}\u200b{12:}", "x{}x"])
def test_message_holds_no_piece_of_a_key(told):
    key = "sk-live-0123456789abcdefXYZ"
    parts = {"{}": key, "{4:}": key[4:], "{:20}": key[:20], "{:12}": key[:12], "{12:}": key[12:]}
    for name, part in parts.items():
        told = told.replace(name, part)
    shown = str(Trouble(told).without([key]))
    assert "***" in shown
    assert not any(key[at : at + 8] in shown for at in range(len(key) - 7))
    assert shown.startswith(told[: told.index(key[4:12])].removesuffix(key[:4]))


@pytest.mark.parametrize("value", ["1e308", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_time_that_an_endpoint_wants_to_be_left_alone_has_a_limit(value):
    assert wait_of({"retry-after": value}) == 30 * 86400


def test_message_does_not_hold_a_key_that_was_cut():
    key = "sk-0123456789"
    told = Trouble(f"{key[:3]} {key} {key[:9]}… {key[:8]}", again=True).without([key, "short"])
    assert (str(told), told.retryable) == ("sk- *** ***… ***", True)


# --- schemas ----------------------------------------------------------------------------------------------------------

SCHEMA = {
    "$id": "x",
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"const": "v1", "minLength": 1},
        "required": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "x"}},
    },
    "additionalProperties": False,
}


def test_schema_is_reduced_to_what_a_vendor_knows_at_every_depth():
    kept = frozenset({"type", "required", "properties", "items", "enum", "minItems"})
    assert reduce_schema(SCHEMA, kept) == {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"enum": ["v1"]},
            "required": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        },
    }


def test_strict_form_may_go_without_the_lengths_of_lists(kernel_schemas):
    plan = kernel_schemas.document("plan_v1")
    assert "minItems" in repr(strictly(plan))
    assert "minItems" not in repr(strictly(plan, counts=False))
