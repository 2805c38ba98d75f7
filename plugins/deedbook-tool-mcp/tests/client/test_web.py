"""Servers over streamable HTTP, answering byte for byte what a test says."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deedbook.format.errors import Ok

from ..conftest import tool

INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "1"}}


class Web:
    """A server on this machine: *answer* is asked with a call's message and returns status, headers and body."""

    def __init__(self):
        self.seen = []
        self.answer = lambda message: said(message, {"content": [{"type": "text", "text": "hello"}]})
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                web.seen.append((message.get("method"), dict(self.headers)))
                status, headers, body = web.reply(message)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.send_error(405)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, message):
        match message.get("method"):
            case "initialize":
                return said(message, INFO)
            case "tools/list":
                return said(message, {"tools": [tool("say")]})
            case "tools/call":
                return self.answer(message)
            case "server/discover":
                return 400, {}, b""
            case _:
                return 202, {}, b""

    def headers(self, method):
        return [headers for seen, headers in self.seen if seen == method]


def said(message, result):
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    return 200, {"content-type": "application/json"}, body


@pytest.fixture
def web(rogue, monkeypatch):
    made = Web()
    monkeypatch.setenv("GH", "hunter2hunter2")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    lab = rogue.lab
    lab.settings(secrets={"gh": {"env": "GH"}})
    lab.settings(servers={"rogue": {"url": made.url, "headers": {"Authorization": {"secret": "gh"}, "X-Team": "ours"}}})
    rogue.pinned()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_call_over_http_sends_the_headers_and_goes_through_no_proxy(web, rogue):
    assert rogue.text("say") == "hello"
    (headers,) = web.headers("tools/call")
    assert (headers["Authorization"], headers["X-Team"]) == ("hunter2hunter2", "ours")
    assert all(
        "hunter2hunter2" not in path.read_text("latin-1") for path in rogue.lab.path.rglob("*") if path.is_file()
    )


def test_answer_that_is_too_large_is_not_read_to_its_end(web, rogue):
    well = web.answer
    web.answer = lambda message: said(message, {"content": [{"type": "text", "text": "x" * (17 * 1024 * 1024)}]})
    error = rogue.fails("say")
    assert error.code == "OUTPUT_TOO_LARGE"
    assert rogue.lab.payload("tool.error")["outcome"] == "unknown"
    web.answer = well
    assert isinstance(rogue.call("say"), Ok), "the next call reaches it anew"


def spoken(body, kind):
    """Return the answer *body* as a document, or as the event of a stream."""
    if kind == "application/json":
        return 200, {"content-type": kind}, body
    return 200, {"content-type": f"{kind}; charset=latin-1"}, b"id: 1\r\ndata: " + body + b"\r\n\r\n"


WELL = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"h\xc3\xa9\xe2\x80\xa8llo"}]}}'
REFUSED = {
    "a key twice": WELL.replace(b'"result"', b'"result":{"content":[]},"result"'),
    "no UTF-8": WELL.replace(b"\xc3\xa9", b"\xe9"),
    "NaN": WELL.replace(b'"text":"h', b'"x":NaN,"text":"h'),
    "another id": WELL.replace(b'"id":%d', b'"id":%d,"id":99'),
}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_answer_that_intake_accepts_comes_as_it_was_sent(web, rogue, kind):
    web.answer = lambda message: spoken(WELL % message["id"], kind)
    assert rogue.text("say") == "h\u00e9\u2028llo"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("said", REFUSED.values(), ids=REFUSED)
def test_answer_that_intake_refuses_is_no_result(web, rogue, said, kind):
    well = web.answer
    web.answer = lambda message: spoken(said % message["id"], kind)
    error = rogue.fails("say")
    assert error.code == "INTAKE_REFUSED"
    assert rogue.lab.payload("tool.error")["outcome"] == "unknown"
    web.answer = well
    assert isinstance(rogue.call("say"), Ok)


def test_compressed_answer_is_refused(web, rogue):
    web.answer = lambda message: (200, {"content-type": "application/json", "content-encoding": "gzip"}, b"x")
    error = rogue.fails("say")
    assert (error.code, "it is compressed" in error.message) == ("OUTPUT_REFUSED", True)


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b"boom"),
        (404, {}, b""),
        (307, {"location": "http://127.0.0.2:9/elsewhere"}, b""),
        (200, {"content-type": "text/html"}, b"<html>hunter2hunter2</html>"),
        (200, {"content-type": "application/json"}, b"{]"),
    ],
    ids=["500", "404", "elsewhere", "html", "no-json"],
)
def test_answer_that_is_none_fails_and_the_next_call_works(web, rogue, answer):
    well = web.answer
    web.answer = lambda _message: answer
    error = rogue.fails("say")
    assert error.code in ("MCP_REFUSED", "MCP_DISCONNECTED", "INTAKE_REFUSED")
    assert "hunter2hunter2" not in error.message
    known = answer[0] == 404  # there is nothing at that address: nothing was called
    assert rogue.lab.payload("tool.error")["outcome"] == ("failed" if known else "unknown")
    web.answer = well
    assert isinstance(rogue.call("say"), Ok)
    assert len(web.headers("tools/call")) == 2, "nothing was repeated"
