"""What comes back: floods, drips, redirects, broken connections and wrong types end in a refusal that says why."""

import json
import socket
import threading
import time

import pytest
from cases import for_each


def said(value, status="200 OK", kind="application/json", **headers):
    """Return a whole answer."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


UNSAFE = ["POST", "PUT", "PATCH", "DELETE"]


def outcome(lab):
    """Return how the last call ended, as its ledger has it."""
    return lab.payload("tool.error")["outcome"]


def redirect(location, status="302 Found"):
    return lambda request: said(b"", status, "text/plain", location=location)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        ("404 Not Found", False),
        ("429 Too Many Requests", True),
        ("500 Internal Server Error", True),
        ("503 Busy", True),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_status_that_is_no_success_fails_with_the_beginning_of_what_was_said(
    operation, fails, server, method, status, retryable
):
    operation(method=method)
    server.answer = lambda request: said(b"no such thing" + b"!" * 9999, status, "text/plain")
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", retryable)
    said_why = ": no such thing!" if method == "GET" else ""
    assert error.message.startswith(f"127.0.0.1 answered with status {status[:3]}{said_why}")
    assert len(error.message) < 500


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize("status", ["500 Internal Server Error", "502 Bad Gateway", "503 Busy", "504 Gateway Timeout"])
def test_request_with_effects_is_not_retryable_when_the_server_failed(lab, operation, fails, server, method, status):
    operation(method=method)
    server.answer = lambda request: said(b"busy", status, "text/plain")
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", False)
    assert error.message == f"127.0.0.1 answered with status {status[:3]}: busy; the request may have been carried out"
    assert outcome(lab) == "unknown"


@pytest.mark.parametrize(("status", "retryable"), [("400 Bad Request", False), ("429 Too Many Requests", True)])
@pytest.mark.parametrize("method", UNSAFE)
def test_request_that_the_server_refused_was_not_carried_out(lab, operation, fails, server, method, status, retryable):
    operation(method=method)
    server.answer = lambda request: said(b"no", status, "text/plain")
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", retryable)
    assert error.message == f"127.0.0.1 answered with status {status[:3]}: no"
    assert outcome(lab) == "failed"


def test_statuses_say_what_is_success(operation, ask, fails, server):
    operation(statuses=[404])
    server.answer = lambda request: said({}, "404 Not Found")
    assert ask()["status"] == 404
    server.answer = lambda request: said({})
    assert fails().code == "HTTP_FAILED"


@pytest.mark.parametrize("where", ["/b", "https://evil.example/", "//evil.example/", "http://127.0.0.1:1/", ""])
def test_redirects_are_refused(operation, fails, server, where):
    operation()
    server.answer = redirect(where)
    error = fails()
    assert (error.code, len(server.requests)) == ("HTTP_REFUSED", 1)
    assert "evil" not in error.message


def test_redirect_within_the_same_host_is_followed_where_that_is_allowed(operation, ask, server):
    operation(redirects="same-host")
    server.answer = lambda request: said({"ok": 1}) if b"GET /b?c=d " in request else redirect("/b?c=d")(request)
    assert ask()["body"] == {"ok": 1}


@pytest.mark.parametrize(
    "where",
    [
        "https://127.0.0.1/",
        "http://127.0.0.1:1/",
        "http://localhost/",
        "//evil.example",
        "file:///etc",
        "https://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "//localhost:{port}/",
        "http://user:word@127.0.0.1:{port}/",
        "/\\\\localhost:{port}/",
        "\\\\localhost:{port}/",
    ],
)
def test_redirect_to_elsewhere_is_refused_though_redirects_are_allowed(operation, fails, server, where):
    operation(redirects="same-host")
    server.answer = redirect(where.format(port=server.port))
    assert (fails().code, len(server.requests)) == ("HTTP_REFUSED", 1)


@pytest.mark.parametrize("where", ["/again", "", "?a=b"])
def test_redirects_without_an_end_are_refused_after_five(operation, fails, server, where):
    operation(redirects="same-host")
    server.answer = redirect(where)
    assert (fails().code, len(server.requests)) == ("HTTP_REFUSED", 6)


def test_redirect_of_a_post_is_never_followed(operation, fails, server):
    operation(method="POST", redirects="same-host", body={"json": {}})
    server.answer = redirect("/b", "307 Temporary Redirect")
    assert (fails().code, len(server.requests)) == ("HTTP_REFUSED", 1)


def endless(request):
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    while True:
        yield b"x" * 65536


def test_flood_is_cut_off_at_the_limit_and_the_connection_closed(operation, fails, server):
    operation(limits={"bytes": 100_000})
    server.answer = endless
    error = fails()
    assert error.code == "OUTPUT_TOO_LARGE"
    assert "more than 100000 bytes" in error.message
    assert server.gone.wait(10)


def test_endless_headers_are_refused(operation, fails, server):
    def answer(request):
        yield b"HTTP/1.1 200 OK\r\n"
        while True:
            yield b"x-a: " + b"y" * 60000 + b"\r\n"

    operation()
    server.answer = answer
    assert fails().code == "HTTP_FAILED"
    assert server.gone.wait(10)


def dripping(request):
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    while True:
        time.sleep(0.05)
        yield b" "


@pytest.mark.parametrize("limit", [{"limits": {"seconds": 0.4}}, {"more": {"timeout_ms": 400}}])
def test_slow_drip_ends_with_the_time(operation, fails, server, limit):
    operation(**limit)
    server.answer = dripping
    assert fails().code == "TOOL_TIMEOUT"
    assert server.gone.wait(10)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_server_that_says_nothing_ends_with_the_time(lab, operation, fails, server, method):
    def silent(request):
        server.gone.wait(10)
        return b""

    operation(method=method, limits={"seconds": 0.3})
    server.answer = silent
    error = fails()
    assert (error.code, error.retryable) == ("TOOL_TIMEOUT", method == "GET")
    assert ("may have been carried out" in error.message) is (method == "POST")
    assert outcome(lab) == ("failed" if method == "GET" else "unknown")
    server.gone.set()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    ],
    ids=["nothing", "cut short", "cut chunk", "bad chunk", "another protocol", "two lengths"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_connection_that_breaks_is_retryable_only_where_nothing_can_have_happened(
    lab, operation, fails, server, answer, method
):
    operation(method=method)
    server.answer = lambda request: answer
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", method == "GET")
    assert ("may have been carried out" in error.message) is (method == "POST")
    assert outcome(lab) == ("failed" if method == "GET" else "unknown")


def test_time_that_ends_before_anything_was_sent_is_retryable(lab, operation, fails, server):
    """The server never answers the handshake of TLS, so no request is sent to it."""
    operation(method="POST", url=f"https://127.0.0.1:{server.port}/", insecure=None, limits={"seconds": 0.3})
    error = fails()
    assert (error.code, error.retryable) == ("TOOL_TIMEOUT", True)
    assert error.message == "127.0.0.1 did not answer within 0.3 s; nothing was sent"
    assert outcome(lab) == "failed"


def test_server_that_is_not_there_is_retryable(operation, fails, server):
    operation(method="POST")
    server.close()
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", True)
    assert error.message == "127.0.0.1 cannot be reached (ConnectError)"


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        (said(b"<html>", kind="text/html; charset=utf-8"), "OUTPUT_REFUSED", "is text/html, not JSON"),
        (said(b"{}", kind=""), "OUTPUT_REFUSED", "of no type, not JSON"),
        (said(b"\x1f\x8b", content_encoding="gzip"), "OUTPUT_REFUSED", "answers compressed"),
        (said(b'{"a": 1, "a": 2}'), "INTAKE_REFUSED", "key 'a' appears twice"),
        (said(b'{"a": NaN}'), "INTAKE_REFUSED", "NaN is not a JSON number"),
        (said(b"{} {}"), "INTAKE_REFUSED", "is not the JSON that was expected"),
        (said(b"[" * 100_000), "INTAKE_REFUSED", "is not the JSON that was expected"),
        (said(b'"\xff"'), "INTAKE_REFUSED", "can't decode byte 0xff"),
    ],
)
def test_answer_of_another_kind_is_refused(operation, fails, server, answer, code, why):
    operation()
    server.answer = lambda request: answer
    error = fails()
    assert error.code == code
    assert why in error.message


def test_other_json_types_are_json(operation, ask, server):
    operation()
    server.answer = lambda request: said({"a": 1}, kind="application/problem+json; charset=utf-8")
    assert ask()["body"] == {"a": 1}


def test_calls_do_not_share_connections(operation, ask, server):
    operation()
    server.answer = lambda request: said({}).replace(b"connection: close\r\n", b"connection: keep-alive\r\n")
    assert [ask()["status"] for _ in range(3)] == [200] * 3


# --- addresses --------------------------------------------------------------------------------------------------------


@for_each(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
     "::ffff:10.0.0.1",     "64:ff9b::7f00:1", "2002:7f00:1::", "192.0.2.1", "2001:db8::1"],
)  # fmt: skip
def test_address_inside_a_network_is_known_as_such(address):
    from ipaddress import ip_address

    from deedbook_tool_http.hosts import non_public_kind

    assert non_public_kind(ip_address(address)) is not None


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_address_is_one(address):
    from ipaddress import ip_address

    from deedbook_tool_http.hosts import non_public_kind

    assert non_public_kind(ip_address(address)) is None


@pytest.fixture
def named(monkeypatch):
    """Let names lead to addresses of the test's choice, and count how often they are asked for."""
    asked = []
    real = socket.getaddrinfo

    def answer(*addresses):
        def getaddrinfo(host, port, *args, **kwargs):
            if host != "api.example.com":
                return real(host, port, *args, **kwargs)
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return asked

    return answer


def test_name_that_leads_into_the_network_is_refused_before_anything_is_sent(operation, fails, server, named):
    asked = named("127.0.0.1")
    operation(url=f"https://api.example.com:{server.port}/", hosts=[f"api.example.com:{server.port}"], insecure=None)
    error = fails()
    assert error.code == "HTTP_REFUSED"
    assert "is a loopback address; list it under private:" in error.message
    assert (asked, server.requests) == (["api.example.com"], [])


def test_one_bad_address_among_several_is_enough(operation, fails, server, named):
    named("8.8.8.8", "10.0.0.1")
    operation(url="https://api.example.com/", hosts=["api.example.com"], insecure=None)
    assert fails().code == "HTTP_REFUSED"


def test_localhost_that_is_elsewhere_is_refused(operation, fails, server, monkeypatch):
    operation(url=f"http://localhost:{server.port}/", hosts=[f"localhost:{server.port}"])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", server.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: found)
    assert fails().code == "HTTP_REFUSED"


def test_localhost_by_name_is_reached(operation, ask, server):
    operation(url=f"http://localhost:{server.port}/", hosts=[f"localhost:{server.port}"])
    assert ask()["status"] == 200
    assert server.header("host") == f"localhost:{server.port}"


def test_name_that_is_not_known_is_said_so(operation, fails):
    operation(url="https://nobody.invalid/", hosts=["nobody.invalid"], insecure=None)
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", True)
    assert error.message.startswith("nobody.invalid is not known")


def test_threads_of_lookups_are_daemons():
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "deedbook-http-lookup")
