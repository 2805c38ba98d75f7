"""The witness over HTTP: `add-checkpoint`, and the newest cosigned checkpoint of an origin for verifiers."""

import io
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from deedbook.format.errors import DeedbookError
from deedbook_audit.transparency.witness_requests import BAD, BUSY, DONE, MAX_BODY, UNKNOWN, Answer

from .witness import Witness

SECONDS: Final = 10.0
"""Seconds that a client has for a request, from its first byte to its last, and between two requests."""
CONNECTIONS: Final = 64
"""The largest number of connections at once; further ones are told to retry."""

_NEWEST: Final = re.compile("/([0-9a-f]{64})/checkpoint")
_LENGTH: Final = re.compile("0|[1-9][0-9]{0,6}")
_NOT_ALLOWED: Final = 405
_NO_LENGTH: Final = 411
_TOO_LONG: Final = 413
_BUSY: Final = (
    f"HTTP/1.1 {BUSY} Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n".encode()
)


class WitnessServer(ThreadingHTTPServer):
    """A server of *witness* at *host* and *port* (0: a free one); `serve_forever` answers until it is shut down.

    *report* receives a line for each request.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, witness: Witness, host: str, port: int, *, report: Callable[[str], None]) -> None:
        self.witness, self.report = witness, report
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The URL of the witness."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family == socket.AF_INET6 else str(host)
        return f"http://{shown}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection on a thread of its own, unless there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(1)
            request.sendall(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one connection, and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing about a broken connection, and reveal nothing to the client."""


class _DeadlineReader(io.RawIOBase):
    """A connection's bytes, with one deadline for all of them together."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = time.monotonic() + SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "deedbook-witness"
    sys_version = ""
    server: WitnessServer

    def setup(self) -> None:
        super().setup()
        self._bytes = _DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._bytes)

    def handle_one_request(self) -> None:
        self._bytes.deadline = time.monotonic() + SECONDS
        super().handle_one_request()

    def do_POST(self) -> None:
        """Answer ``add-checkpoint``."""
        if self.path != "/add-checkpoint":
            self._refuse(UNKNOWN, "ask /add-checkpoint")
        elif self.headers.get("Transfer-Encoding") or not _LENGTH.fullmatch(self.headers.get("Content-Length", "")):
            self._refuse(_NO_LENGTH, "the length of the request is needed")
        elif int(self.headers["Content-Length"]) > MAX_BODY:
            self._refuse(_TOO_LONG, f"at most {MAX_BODY} bytes are read")
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            short = len(body) < int(self.headers["Content-Length"])
            self._answer(Answer(BAD, "the request is cut off\n") if short else self.server.witness.add(body))

    def do_GET(self) -> None:
        """Answer with the newest checkpoint that was cosigned of an origin."""
        found = _NEWEST.fullmatch(self.path)
        try:
            note = self.server.witness.find_newest(found[1]) if found else None
        except (DeedbookError, OSError, ValueError):  # a failure of the store, which the client must not see
            self._refuse(BUSY, "the witness cannot read what it remembers")
            return
        self._answer(Answer(DONE, str(note)) if note else Answer(UNKNOWN, "no checkpoint of that origin\n"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Log nothing here; `_answer` reports every answer."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an unknown HTTP request, with one line."""
        self._refuse(_NOT_ALLOWED if code == 501 else code, explain or message or "refused")

    def _refuse(self, status: int, why: str) -> None:
        self.close_connection = True  # the rest of the client's input is not read
        self._answer(Answer(status, f"{why}\n"))

    def _answer(self, answer: Answer) -> None:
        raw = answer.text.encode()
        self.connection.settimeout(SECONDS)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(raw if self.command != "HEAD" else b"")
        first = answer.text.partition("\n")[0] if answer.status != DONE else ""
        self.server.report(f"{self.command or '-'} {self.client_address[0]}: {answer.status} {first}".rstrip())
