"""Traces, as a collector in this process receives them over OTLP."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.serve.load import wait_until
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps every span."""

    spans: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_is_traced_from_its_parent_to_the_inference(
    start_server: Callable[..., RunningServer], collector: str
) -> None:
    server = start_server("--otlp-endpoint", collector, env={"OTEL_BSP_SCHEDULE_DELAY": "100"})
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    assert httpx2.post(f"{server.url}/v1/classify", content=png(), headers=headers).status_code == 200

    def mine() -> dict[str, Any]:
        return {span.name: span for span in list(Collector.spans) if span.trace_id.hex() == TRACE}

    wait_until(lambda: len(mine()) == 4, "four spans")
    spans = mine()
    root = spans["POST /v1/classify"]
    assert root.parent_span_id.hex() == PARENT
    attributes = {row.key: row.value for row in root.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["bitedge.model"].string_value == "first"
    previous = root.start_time_unix_nano
    for name in ("decode", "queue", "inference"):
        span = spans[name]
        assert span.parent_span_id == root.span_id
        assert previous - 1_000_000 <= span.start_time_unix_nano <= span.end_time_unix_nano
        previous = span.end_time_unix_nano
    assert previous <= root.end_time_unix_nano + 1_000_000
    (line,) = [line for line in server.events("request") if line["path"] == "/v1/classify"]
    assert line["trace_id"] == TRACE
