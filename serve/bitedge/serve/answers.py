"""Answers as JSON.

A classification is written as text from its parts, without a dictionary and the general encoder in between: for a
network that answers in a tenth of a millisecond, those would cost half as much again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from bitedge.serve.inference.job import Answer
from bitedge.serve.models.backends import ServedModel

TOP_K = 5  # classes that an answer names, unless the request says how many
JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")

# Milliseconds of every part; then the same as a header, which browsers show in their network panel.
TIMING = '{"decode_ms": %.3f, "queue_ms": %.3f, "inference_ms": %.3f, "total_ms": %.3f, "batch_size": %d}'
SERVER_TIMING = b'decode;dur=%.3f, queue;dur=%.3f, inference;dur=%.3f, total;dur=%.3f, batch;desc="%d"'
PREDICTION = '{"label": %s, "score": %.6g, "index": %d}'
CLASSIFICATION = '{"model": "%s", "version": "%s", "predictions": %s, "timing": %s}'  # names need no escape

Timing = tuple[float, float, float, float, int]


class JsonAnswer(Response):
    """JSON that no cache keeps."""

    def __init__(self, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON, NO_STORE, *headers]


def json_response(body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with any value."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return JsonAnswer(json.dumps(body).encode(), *raw)


def classification(served: ServedModel, answer: Answer, started: float) -> Response:
    """The answer about one image."""
    timing = timing_of(answer, started)
    text = CLASSIFICATION % (served.name, served.version, predictions(served, answer), TIMING % timing)
    return JsonAnswer(text.encode(), (b"server-timing", SERVER_TIMING % timing))


def batch_item(served: ServedModel, answer: Answer | Exception, started: float) -> str:
    """One image's part of the answer about several: its predictions, or its error."""
    if isinstance(answer, Exception):
        return json.dumps({"error": str(answer)})
    timing = TIMING % timing_of(answer, started)
    return f'{{"predictions": {predictions(served, answer)}, "timing": {timing}}}'


def predictions(served: ServedModel, answer: Answer) -> str:
    """The best classes of one image, best first."""
    labels = served.label_texts
    return f"[{', '.join([PREDICTION % (labels[i], score, i) for i, score in answer.best])}]"


def timing_of(answer: Answer, started: float) -> Timing:
    """The milliseconds of every part, and the size of the batch."""
    total = time.perf_counter() - started
    return answer.decode * 1e3, answer.queue * 1e3, answer.inference * 1e3, total * 1e3, answer.batch_size
