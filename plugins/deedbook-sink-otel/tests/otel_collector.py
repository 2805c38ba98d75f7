"""A collector: OTLP over real HTTP, decoding the real protobuf, that answers as a test tells it to."""

import gzip
import threading
import zlib
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@attrs.frozen
class Answer:
    """What the collector answers to one request."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/x-protobuf"
    headers: dict[str, str] = attrs.field(factory=dict)
    hangs: bool = False


OK = Answer(body=ExportTraceServiceResponse().SerializeToString())


def rejecting(count: int) -> Answer:
    said = ExportTraceServiceResponse()
    said.partial_success.rejected_spans = count
    said.partial_success.error_message = "too old"
    return Answer(body=said.SerializeToString())


class Collector:
    """The endpoint. *requests* are those that it took (with 200), decoded; *script* is what it answers next."""

    def __init__(self) -> None:
        self.script: deque[Answer] = deque()
        self.requests: list[ExportTraceServiceRequest] = []
        self.raw: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.arrived = threading.Condition()
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.collector = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        """Every span that was taken, in order, as protobuf."""
        return [span for scope in self.scopes for span in scope.spans]

    @property
    def scopes(self) -> list[Any]:
        return [scope for request in self.requests for told in request.resource_spans for scope in told.scope_spans]

    def wait_for(self, count: int) -> list[Any]:
        """Wait until so many spans were taken."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.spans) >= count, 30), f"{len(self.spans)} of {count}"
        return self.spans

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        collector: Collector = self.server.collector
        body = self.rfile.read(int(self.headers["content-length"]))
        unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(self.headers.get("content-encoding"), bytes)
        answer = collector.script.popleft() if collector.script else OK
        collector.paths.append(self.path)
        collector.headers.append(dict(self.headers))
        if answer.hangs:
            collector.release.wait(30)
            return
        if answer.status == 200 and answer.kind.endswith("protobuf"):
            request = ExportTraceServiceRequest.FromString(unpack(body))
            with collector.arrived:
                collector.raw.append(unpack(body))
                collector.requests.append(request)
                collector.arrived.notify_all()
        self.send_response(answer.status)
        for name, value in {"content-type": answer.kind, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        with suppress(ConnectionError):  # whoever asked may have been stopped
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def told(span: Any) -> dict[str, Any]:
    """Return the attributes of a span as plain values."""
    return {each.key: _value(each.value) for each in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
