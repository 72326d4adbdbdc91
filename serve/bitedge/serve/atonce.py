"""Classify a slight image without a task.

A task for each request, its coroutines and its messages cost a fifth of what such a request costs altogether. When the
whole request came in one piece, and its image will be answered in place, nothing of that has anything to wait for: the
request is admitted, handed over, and answered by one call when its batch is done. Everything else takes the ordinary
way through the gate, and so does this request when the service drains or the client does not keep its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

from bitedge.serve.answers import TOP_K, classification
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.forms import RAW_TYPES
from bitedge.serve.inference.job import Answer, Job

if TYPE_CHECKING:
    from bitedge.serve.gate import Gate, Passage

ORDINARY_WAY = (b"content-encoding", b"x-timeout-ms")  # headers that ask for more than this way can do


class Connection(Protocol):
    """Where the answer goes."""

    @property
    def gone(self) -> bool:
        """Whether the client has left."""

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send the whole answer."""


class Reply:
    """What a job reports to in place of a future; it answers at once."""

    __slots__ = ("_connection", "_gate", "_job", "_passage", "_scope")

    def __init__(self, gate: Gate, scope: Scope, passage: Passage, job: Job, connection: Connection) -> None:
        self._gate = gate
        self._scope = scope
        self._passage = passage
        self._job = job
        self._connection = connection

    def done(self) -> bool:
        """Whether nobody waits any more."""
        if not self._connection.gone:
            return False
        self._passage.status, self._passage.reason = 499, "disconnected"
        self._gate.record(self._scope, self._passage)
        return True

    def set_result(self, answer: Answer) -> None:
        """Send the classification."""
        response = classification(self._job.model, answer, self._passage.started)
        self._send(response.status_code, response.raw_headers, response.body)

    def set_exception(self, error: BaseException) -> None:
        """Send the error."""
        status, headers, body = self._gate.describe(self._scope, self._passage, error)
        self._send(status, headers, body)

    def cancel(self) -> None:
        """Nothing to stop."""

    def _send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes | memoryview) -> None:
        passage = self._passage
        passage.status = status
        self._connection.answer(status, [*headers, (b"x-request-id", passage.request_id.encode())], bytes(body))
        self._gate.record(self._scope, passage)


def classify_at_once(gate: Gate, scope: Scope, body: bytes, connection: Connection) -> bool:
    """Take a whole request, to be answered soon; False, and nothing done, when it has to take the ordinary way."""
    service = gate.service
    passage = gate.open(scope)
    headers = passage.headers
    kind = headers.get(b"content-type", b"").decode("latin-1")
    if kind not in RAW_TYPES or service.draining or any(map(headers.__contains__, ORDINARY_WAY)):
        return False
    try:
        model = service.store.get(None, None)
    except ServeError:
        return False
    job = service.job(model, body, passage.started, service.budget(None), TOP_K)
    if not service.in_place.suits(job):
        return False
    passage.model = model.name
    job.future = reply = Reply(gate, scope, passage, job, connection)
    try:
        gate.admit(scope, passage)
    except ServeError as error:
        reply.set_exception(error)
    else:
        service.in_place.add(job)
    return True
