"""Sends spans to a collector with OpenTelemetry's own SDK: OTLP over HTTP, protobuf, its retries, its variables.

A batch is accepted or not: every answer of the collector gives one message, and nothing is dropped silently. The SDK's
own log lines are not shown; the message replaces them.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .conventions import SCHEMA_URL
from .spans import Span

__all__ = ["Collector", "UndeliveredError"]

_PLAIN: Final = ("application/x-protobuf", "application/json")
_INSTANCE: Final = "service.instance.id"
_MILLION: Final = 1_000_000
_SHOWN: Final = 200
_MOST: Final = 1000


class UndeliveredError(Exception):
    """A batch was not accepted; the message says why. *is_temporary*: a retry may succeed."""

    def __init__(self, why: str, *, is_temporary: bool) -> None:
        super().__init__(why)
        self.is_temporary = is_temporary


class Collector:
    """The end of an OTLP connection. *endpoint* is a URL; empty: from ``OTEL_EXPORTER_OTLP_…``, or this machine.

    *timeout* is in seconds, for one batch with all its retries. *rejected* counts the spans that the collector rejected
    in accepted batches, which must not be sent again.
    """

    def __init__(self, endpoint: str = "", *, headers: Mapping[str, str], timeout: float) -> None:
        self.rejected = 0
        self._session = _Session()
        self._ids, self._ended = _GivenIds(), _LastSpan()
        self._exporter = OTLPSpanExporter(
            endpoint or None, headers=dict(headers) or None, timeout=timeout, session=self._session
        )
        provider = TracerProvider(
            resource=_build_resource(),
            sampler=ALWAYS_ON,
            id_generator=self._ids,
            span_limits=SpanLimits(max_events=_MOST, max_span_attributes=_MOST),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._ended)
        name = "deedbook_sink_otel"
        self._tracer = provider.get_tracer(name, version("deedbook-sink-otel"), schema_url=SCHEMA_URL)

    def send(self, spans: Sequence[Span]) -> None:
        """Send a batch; raises `UndeliveredError`."""
        if not spans:
            return
        self._session.last = None
        sdk_span = [self._build_span(span) for span in spans]
        with _silence_sdk():
            result = self._exporter.export(sdk_span)
        problem = _describe_problem(self._session.last)
        if problem or result is not SpanExportResult.SUCCESS:
            why = problem or "the spans could not be encoded, or the batch is larger than 64 MiB"
            raise UndeliveredError(why, is_temporary=_is_temporary(self._session.last))
        self._count_rejected(self._session.last)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _build_span(self, span: Span) -> ReadableSpan:
        """Return a span of the SDK, with the ledger's ids."""
        self._ids.trace, self._ids.span = int(span.trace, 16), int(span.id, 16)
        above = NonRecordingSpan(_build_context(span.trace, span.parent)) if span.parent else None
        sdk_span = self._tracer.start_span(
            span.name,
            context=set_span_in_context(above) if above else set_span_in_context(NonRecordingSpan(_NO_CONTEXT)),
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            attributes=_to_tuples(span.attributes),
            links=list(_build_links(span.links)),
            start_time=_parse_nanoseconds(span.start),
        )
        for note in span.notes:
            sdk_span.add_event(note.name, _to_tuples(note.attributes), _parse_nanoseconds(note.ts))
        if span.error:
            sdk_span.set_status(Status(StatusCode.ERROR, span.error))
        sdk_span.end(max(_parse_nanoseconds(span.start), _parse_nanoseconds(span.end)))
        return self._ended.take()

    def _count_rejected(self, answer: "requests.Response | Exception | None") -> None:
        if isinstance(answer, requests.Response) and answer.content and _is_protobuf(answer):
            partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
            self.rejected += partial.rejected_spans


class _Session(requests.Session):
    """A connection that stores how the last request ended."""

    last: "requests.Response | Exception | None" = None

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request."""
        try:
            answer = super().request(*args, **options)
        except Exception as problem:
            self.last = problem
            raise
        self.last = answer
        return answer


class _GivenIds(IdGenerator):
    """Generates the ids that were set."""

    trace = span = 0

    def generate_span_id(self) -> int:
        """Return the next span's id."""
        return self.span

    def generate_trace_id(self) -> int:
        """Return the next trace's id."""
        return self.trace


class _LastSpan(SpanProcessor):
    """Holds the span that ended last."""

    _last: ReadableSpan | None = None

    def on_end(self, span: ReadableSpan) -> None:
        """Store an ended span."""
        self._last = span

    def take(self) -> ReadableSpan:
        """Return the last ended span."""
        assert self._last is not None
        return self._last


def _build_resource() -> Resource:
    """Return the resource from the environment; without the id that the SDK would generate for each process."""
    own = {SERVICE_NAME: "deedbook", **Resource.create({}).attributes}
    if str(own[SERVICE_NAME]).startswith("unknown_service"):
        own[SERVICE_NAME] = "deedbook"
    if _INSTANCE not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        own.pop(_INSTANCE, None)
    return Resource(own)


def _describe_problem(answer: "requests.Response | Exception | None") -> str:
    """Return why a batch was not accepted; empty if it was."""
    if isinstance(answer, Exception):
        reason = getattr(answer.args[0], "reason", answer) if answer.args else answer
        return f"the collector cannot be reached: {_shorten(str(reason).rpartition('): ')[2].rpartition('>: ')[2])}"
    if answer is None:
        return "nothing was sent"
    where = f"the collector at {answer.url} answered {answer.status_code} {answer.reason}"
    if not 200 <= answer.status_code < 300:
        return f"{where}: {_shorten(answer.text)}".rstrip(": ")
    if answer.content and not answer.headers.get("content-type", "").startswith(_PLAIN):
        kind = answer.headers.get("content-type", "no type")
        return f"{where} with {kind}, which no OTLP endpoint does; is the path right, such as /v1/traces?"
    return ""


def _is_temporary(answer: "requests.Response | Exception | None") -> bool:
    """Return whether a failure may pass; a wrong request or address has to be corrected."""
    if isinstance(answer, requests.Response):
        return answer.status_code in (408, 429) or answer.status_code >= 500
    return isinstance(answer, Exception) and not isinstance(answer, ValueError)


def _is_protobuf(answer: requests.Response) -> bool:
    return answer.headers.get("content-type", "").startswith(_PLAIN[0])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _build_context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


_NO_CONTEXT: Final = SpanContext(0, 0, is_remote=False)


def _build_links(parents: Sequence[str]) -> Iterator[Link]:
    """Yield a link for each valid foreign ``traceparent``."""
    for parent in parents:
        found = TraceContextTextMapPropagator().extract({"traceparent": parent})
        for span in found.values():
            if isinstance(span, NonRecordingSpan) and span.get_span_context().is_valid:
                yield Link(span.get_span_context())


def _to_tuples(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}


def _parse_nanoseconds(ts: str) -> int:
    """Return a time of a ledger in nanoseconds since the epoch."""
    moment = datetime.fromisoformat(ts)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000) * _MILLION


@contextmanager
def _silence_sdk() -> Iterator[None]:
    """Suppress the SDK's log lines; the caller reports failures once."""
    logger = logging.getLogger("opentelemetry")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
