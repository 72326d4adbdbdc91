"""OpenTelemetry traces (extra `otel`): `traceparent` in; spans of the request, decode, queue, inference; OTLP out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitedge.serve.observability.context import RequestContext


class Tracing:
    """Makes the spans of a request when it has ended, from the times that it carries."""

    def __init__(self, endpoint: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        address = endpoint if endpoint.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
        self._provider = TracerProvider(resource=Resource.create({"service.name": "bitedge"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
        self._tracer = self._provider.get_tracer("bitedge.serve")
        self._propagator = TraceContextTextMapPropagator()
        self._trace: Any = trace

    def record(self, context: RequestContext, seconds: float) -> str:
        """Make the spans of a request; return its trace id."""
        offset = time.time_ns() - int(time.perf_counter() * 1e9)

        def at(moment: float) -> int:
            return int(moment * 1e9) + offset

        parent = self._propagator.extract({"traceparent": context.traceparent})
        attributes: dict[str, Any] = {
            "http.request.method": context.method,
            "http.route": context.route,
            "http.response.status_code": context.status,
            "bitedge.request_id": context.request_id,
            "bitedge.model": context.model,
        }
        span = self._tracer.start_span(
            f"{context.method} {context.route}",
            parent,
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=at(context.started),
        )
        inside = self._trace.set_span_in_context(span)
        for answer in context.answers:
            queued = answer.started - answer.queue
            steps = (
                ("decode", queued - answer.decode, queued),
                ("queue", queued, answer.started),
                ("inference", answer.started, answer.started + answer.inference),
            )
            for name, begin, end in steps:
                child = self._tracer.start_span(name, inside, start_time=at(begin))
                child.set_attribute("bitedge.batch_size", answer.batch_size)
                child.end(at(end))
        if context.status >= 500:
            span.set_status(self._trace.StatusCode.ERROR, context.reason)
        span.end(at(context.started + seconds))
        return f"{span.get_span_context().trace_id:032x}"

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
