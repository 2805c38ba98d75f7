"""A real server on this machine, scripted per test byte for byte where that matters."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

ANY = {"type": "object"}
IN = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": {"type": "string"},
        "more": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "data": {"type": "object"},
    },
    "additionalProperties": False,
}


class Server:
    """Accepts connections one after the other; *answers* is asked with the request's bytes and yields what to send."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.requests: list[bytes] = []
        self.answer: Callable[[bytes], Any] = lambda _request: said({"ok": True})
        self.gone = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self.context:
                    connection = self.context.wrap_socket(connection, server_side=True)
                request = self._read(connection)
                self.requests.append(request)
                for part in self._parts(request):
                    connection.sendall(part)
            except OSError:
                self.gone.set()
            if self.context:
                connection.close()

    def _parts(self, request: bytes) -> Iterator[bytes]:
        made = self.answer(request)
        yield from [made] if isinstance(made, bytes) else made

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        """Listen no longer."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    @property
    def line(self) -> str:
        """The first line of the last request."""
        return self.requests[-1].split(b"\r\n")[0].decode()

    def header(self, name: str) -> str | None:
        """Return a header of the last request."""
        head = self.requests[-1].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        found = [line.partition(": ")[2] for line in head if line.lower().startswith(f"{name}:")]
        assert len(found) < 2
        return found[0] if found else None

    @property
    def body(self) -> bytes:
        """The body of the last request."""
        return self.requests[-1].partition(b"\r\n\r\n")[2]


def said(value: Any, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    """Return a whole answer."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def operation(lab, server) -> Callable[..., None]:
    """Declare the ability `ask`, over the tool and the server; settings by keyword, *more* for the ability."""

    def declare(path: str = "/", more: Any = None, **settings: Any) -> None:
        here = f"127.0.0.1:{server.port}"
        usual = {"method": "GET", "url": f"http://{here}{path}", "hosts": [here], "insecure": True}
        entry = {
            "summary": "Ask a server.", "handler": {"tool": "http"}, "effects": "write", "with": {**usual, **settings},
            "schema_in": IN, "schema_out": ANY, **(more or {}),
        }  # fmt: skip
        entry["with"] = {key: value for key, value in entry["with"].items() if value is not None}
        lab.settings(abilities={"ask": {key: value for key, value in entry.items() if value is not None}})

    return declare


@pytest.fixture
def ask(lab) -> Callable[..., Any]:
    """Call `ask` in a session of its own; return the result's value."""

    def call(**args: Any) -> Any:
        result = lab.session().call("ask", {"text": "x", **args})
        assert hasattr(result, "value"), result
        return result.value

    return call


@pytest.fixture
def fails(lab) -> Callable[..., Any]:
    """Call `ask`, which has to fail; return the error."""

    def call(**args: Any) -> Any:
        return lab.session().call("ask", {"text": "x", **args}).error

    return call
