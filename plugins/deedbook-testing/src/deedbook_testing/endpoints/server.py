"""A small server: strict about what it is sent, and scripted by each test."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias

FOREVER: Final = 30.0
"""Seconds after which a request that hangs is given up."""

Action: TypeAlias = Callable[["Handler"], None]
Faults: TypeAlias = Callable[[str, Mapping[str, str], Any], Iterable[str]]


class Endpoint:
    """One server on the loopback. *script* holds what it does next; *always* decides by the body instead.

    What *faults* finds in a request is kept and answered with 400, as the published protocol would. At the end of a
    ``with`` statement the server closes, and a kept fault is an `AssertionError`.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self.script: deque[Action] = deque()
        self.always: Callable[[Any], Action] | None = None
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.found: list[str] = []
        self.asked = threading.Event()
        """A request has come."""
        self.left = threading.Event()
        """The client of a request that hangs has gone."""
        self._faults = faults
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"endpoint": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def plays(self, *actions: Action) -> None:
        """Add to what it does next."""
        self.script.extend(actions)

    def answers(self, path: str, headers: Mapping[str, str], body: Any) -> Action:
        """Take a request; return what to do."""
        self.bodies.append(body)
        self.headers.append(dict(headers))
        self.paths.append(path)
        self.asked.set()
        found = list(self._faults(path, headers, body)) if self._faults else []
        self.found += found
        if found:
            return document({"error": {"message": "; ".join(found)}}, status=400)
        if self.always is not None:
            return self.always(body)
        return self.script.popleft() if self.script else document({"error": "the script is over"}, status=500)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        assert kind is not None or self.found == []

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """Reads one request and plays the next action."""

    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            self.endpoint.answers(self.path, headers, body)(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def document(
    value: Any, *, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] | None = None
) -> Action:
    """Return the action that sends one document: bytes as they are, anything else as JSON."""
    raw = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()

    def play(handler: Handler) -> None:
        handler.begin(status, {"content-type": kind, "content-length": str(len(raw)), **(headers or {})})
        handler.wfile.write(raw)

    return play


def stream(parts: Iterable[bytes], *, kind: str, cut: bool = False) -> Action:
    """Return the action that sends a stream, part by part; *cut* closes the connection before the body's end."""

    def play(handler: Handler) -> None:
        handler.begin(200, {"content-type": kind, "transfer-encoding": "chunked"})
        for part in parts:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            handler.wfile.flush()
        if not cut:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = cut

    return play


def cut_short(handler: Handler) -> None:
    """Promise more than is sent, and close."""
    handler.begin(200, {"content-type": "application/json", "content-length": "1000"})
    handler.wfile.write(b'{"id": "cut')
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    """Close the connection without a word."""
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """Answer nothing until the client goes away."""
    handler.connection.settimeout(FOREVER)
    if handler.connection.recv(1) == b"":
        handler.endpoint.left.set()
    handler.close_connection = True
