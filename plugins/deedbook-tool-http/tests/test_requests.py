"""What is sent: each value in its own place, whatever it holds; secrets by name, and nowhere but in their header."""

import json

import pytest


def said(value, status="200 OK", kind="application/json", **headers):
    """Return a whole answer."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_answer_has_status_chosen_headers_and_body(operation, ask, server):
    operation(keep=["ETag"])
    server.answer = lambda request: said({"a": [1]}, etag="W/7", x_other="no")
    assert ask() == {"status": 200, "headers": {"etag": "W/7"}, "body": {"a": [1]}}


def test_text_is_given_as_it_is(operation, ask, server):
    operation(output="text", more={"schema_out": True})
    server.answer = lambda request: said("grüß".encode(), kind="text/plain")
    assert ask()["body"] == "grüß"


def test_answer_without_content_is_nothing(operation, ask, server):
    operation(method="DELETE")
    server.answer = lambda request: b"HTTP/1.1 204 No Content\r\n\r\n"
    assert ask() == {"status": 204, "headers": {}, "body": None}


HOSTILE = ["../admin", "..", ".", "a/../../b", "..\\x", "%2e%2e/../x", "", "a\0b"]
ODD = [
    "a/b",
    "a?b=c",
    "a#b",
    "a&b",
    "a b",
    "ü",
    "%2f",
    "a;b",
    "@evil.example",
    "//evil.example",
    "\r\nHost: evil",
    "💥",
]


@pytest.mark.parametrize("value", ODD)
def test_value_stays_in_its_segment_and_its_query_key(operation, ask, server, value):
    operation("/v1/{text}/end", query={"q": "{text}", "fixed": 1})
    ask(text=value)
    method, target, _ = server.line.split(" ")
    path, _, query = target.partition("?")
    assert method == "GET"
    assert path.split("/")[:2] + path.split("/")[3:] == ["", "v1", "end"]
    assert query.startswith("fixed=1&q=")
    assert query.count("&") == 1
    assert query.count("=") == 2
    assert server.header("host") == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("value", HOSTILE)
def test_value_that_would_lead_elsewhere_in_the_path_is_refused(operation, fails, server, value):
    operation("/v1/{text}/end")
    assert fails(text=value).code == "ARGUMENT_REFUSED"
    assert server.requests == []


def test_segments_come_together_to_no_dots(operation, fails, server):
    operation("/v1/{text}{more}", more={"schema_in": {**IN_, "required": ["text", "more"]}})
    assert fails(text=".", more=".").code == "ARGUMENT_REFUSED"


def test_array_becomes_segments_and_a_repeated_key(operation, ask, server):
    operation("/files/{tags?...}", query={"tag": "{tags?...}"})
    ask(tags=["a", "b/c"])
    assert server.line.split(" ")[1] == "/files/a/b%2Fc?tag=a&tag=b%2Fc"
    ask()
    assert server.line.split(" ")[1] == "/files"


def test_optional_argument_leaves_its_part_out(operation, ask, server):
    operation("/a/{more?}", query={"n": "{count?}"}, headers={"x-more": "{more?}"})
    ask()
    assert (server.line.split(" ")[1], server.header("x-more")) == ("/a", None)
    ask(more="m", count=3)
    assert (server.line.split(" ")[1], server.header("x-more")) == ("/a/m?n=3", "m")


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "ü", "a\0b", "\x7f"])
def test_header_that_would_be_two_is_refused(operation, fails, server, value):
    operation(headers={"x-text": "{text}"})
    assert fails(text=value).code == "ARGUMENT_REFUSED"
    assert server.requests == []


def test_json_body_takes_whole_values_and_leaves_out_what_is_not_there(operation, ask, server):
    body = {"json": {"t": "<{text}>", "d": "{data}", "n": "{count?}", "l": ["{more?}", 1, {"x": "{text}"}], "{{": True}}
    operation(method="POST", body=body, more={"schema_in": {**IN_, "required": ["text", "data"]}})
    ask(text='"', data={"k": [None]})
    assert json.loads(server.body) == {"t": '<">', "d": {"k": [None]}, "l": [1, {"x": '"'}], "{{": True}
    assert server.header("content-type") == "application/json"


def test_form_body_is_encoded(operation, ask, server):
    operation(method="POST", body={"form": {"a b": "{text}", "n": "{count?}"}})
    ask(text="1&n=2")
    assert server.body == b"a%20b=1%26n%3D2"


def test_text_body_is_sent_as_it_is(operation, ask, server):
    operation(method="PUT", body={"text": "say: {text}"}, headers={"content-type": "text/markdown"})
    ask(text="ü\n")
    assert server.body == "say: ü\n".encode()
    assert server.header("content-type") == "text/markdown"


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "s3cr3t-0123456789"


@pytest.fixture
def secret(lab, monkeypatch):
    monkeypatch.setenv("DEEDBOOK_TEST_KEY", SECRET)
    lab.settings(secrets={"key": {"env": "DEEDBOOK_TEST_KEY"}})


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"auth": {"bearer": {"secret": "key"}}}, "authorization", f"Bearer {SECRET}"),
        ({"headers": {"X-Key": {"secret": "key"}}}, "x-key", SECRET),
        ({"headers": {"X-Key": {"secret": "key", "prefix": "token "}}}, "x-key", f"token {SECRET}"),
        (
            {"auth": {"basic": {"user": "ada", "password": {"secret": "key"}}}},
            "authorization",
            "Basic YWRhOnMzY3IzdC0wMTIzNDU2Nzg5",
        ),
    ],
)
def test_secret_is_sent_and_nothing_else_sees_it(operation, ask, server, lab, secret, settings, name, value):
    operation(**settings, keep=["x-echo"])
    server.answer = lambda request: said({"said": f"you sent {SECRET}"}, x_echo=SECRET)
    result = ask()
    assert server.header(name) == value
    assert result["body"] == {"said": "you sent [secret:key]"}
    assert result["headers"] == {"x-echo": "[secret:key]"}
    assert SECRET not in lab.ledger().read_text()


def test_secret_is_in_no_error(operation, fails, server, lab, secret):
    operation(auth={"bearer": {"secret": "key"}})
    server.answer = lambda request: said(request, "400 Bad Request", "text/plain")
    error = fails()
    assert "[secret:key]" in error.message
    assert SECRET not in error.message + lab.ledger().read_text()


def test_secret_that_comes_back_in_another_spelling_is_marked_too(operation, ask, server, lab, secret):
    operation(auth={"basic": {"user": "ada", "password": {"secret": "key"}}}, output="text")
    server.answer = lambda request: said(request, kind="text/plain")
    told = ask()["body"]
    assert "Basic [secret:key]" in told
    assert "YWRhOnMzY3IzdC0wMTIzNDU2Nzg5" not in told + lab.ledger().read_text()


def test_environment_has_no_say(operation, ask, server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    operation()
    assert ask()["status"] == 200


# --- what is wrong with an operation ----------------------------------------------------------------------------------

GOOD = {"method": "GET", "url": "https://api.example.com/a", "hosts": ["api.example.com"], "insecure": None}
FAULTS = {
    "a host that is not listed": ({"hosts": ["example.com"]}, "api.example.com is not among hosts:"),
    "another port": ({"url": "https://api.example.com:8443/"}, "api.example.com:8443 is not among hosts:"),
    "a placeholder for the host": ({"url": "https://{text}/a"}, "the host is always written out"),
    "a placeholder for the port": ({"url": "https://api.example.com:{count}/"}, "the host is always written out"),
    "a placeholder before the path": ({"url": "https://api.example.com{text}"}, "the host is always written out"),
    "a user in the address": ({"url": "https://api.example.com@evil.example/"}, "the host is always written out"),
    "no address": ({"url": "api.example.com/a"}, "write url: https://host/path"),
    "another scheme": ({"url": "file:///etc/passwd"}, "write url: https://host/path"),
    "a query in the address": ({"url": "https://api.example.com/a?b={text}"}, "put ? under query:"),
    "dots in the path": ({"url": "https://api.example.com/a/../b"}, "write out where it leads"),
    "a number for a host": ({"url": "https://0x7f000001/", "hosts": ["0x7f000001"]}, "is no host"),
    "a short number": ({"url": "https://127.1/", "hosts": ["127.1"]}, "is no host"),
    "no TLS": ({"url": "http://api.example.com/", "hosts": ["api.example.com"]}, "http: is not encrypted"),
    "no TLS elsewhere": ({"url": "http://api.example.com/", "insecure": True}, "insecure: is for this machine only"),
    "a private host not listed": ({"private": ["intranet.example"]}, "intranet.example is not among hosts:"),
    "an unknown argument": (
        {"url": "https://api.example.com/{txt}"},
        "declares no property 'txt'; did you mean \"text\"?",
    ),
    "an optional argument": ({"query": {"q": "{more}"}}, "does not require it; add it to required, or write {more?}"),
    "an object in the path": (
        {"url": "https://api.example.com/{data?}"},
        "a single value is needed; its type is object",
    ),
    "an array in a header": ({"headers": {"x": "{tags?}"}}, "an array is written {tags?...}"),
    "the host header": ({"headers": {"Host": "evil.example"}}, "the connection's own"),
    "a header of two lines": ({"headers": {"x": "a\r\nb"}}, "cannot hold a line break"),
    "a header without a name": ({"headers": {"a b": "c"}}, "no name of a header"),
    "a body under GET": ({"body": {"text": "x"}}, "GET has no body"),
    "a stray brace": ({"headers": {"x": "{"}}, "{{ and }} are plain braces"),
}


@pytest.mark.parametrize(("settings", "why"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_is_a_binding_error_with_its_place(operation, lab, settings, why):
    from deedbook import DeedbookError

    operation(**{**GOOD, **settings})
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    (error,) = caught.value.errors
    assert error.code == "BINDING_INVALID"
    assert why in error.message
    assert error.place.startswith(".system/deedbook.yaml:")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"effects": None}, "effects: read, write or irreversible"),
        ({"schema_in": None}, "schema_in is missing"),
        ({"schema_out": None}, "schema_out is missing: write what the body is"),
        ({"effects": "none"}, "effects none are lower than the read"),
    ],
)
def test_what_nobody_can_know_stands_in_yaml(operation, lab, more, why):
    from deedbook import DeedbookError

    operation(more=more)
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    assert [why in error.message for error in caught.value.errors] == [True]


IN_ = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "data": {"type": "object"},
        "count": {"type": "integer"},
        "more": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    "text", ["%2e%2e", "%2E.", ".%2e", "..%2f..", "a%2f..%2fb", "a\\..\\b", "%252e%252e", "%c0%ae%c0%ae"]
)
def test_segment_that_a_server_would_read_as_dots_is_refused(operation, fails, server, text):
    operation("/a/{text}/b")
    assert (fails(text=text).code, server.requests) == ("ARGUMENT_REFUSED", [])
