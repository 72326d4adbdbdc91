"""Metrics for Prometheus, and the statistics of the Open Inference Protocol.

With several workers the values live in files that all of them map (`PROMETHEUS_MULTIPROC_DIR`, set by the parent before
this module is imported), so any worker answers for all.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from bitedge.serve.inference.job import BatchReport
from bitedge.serve.models.registry import Entry, Event

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds, from the time of a small network to the longest deadline.
FAST = tuple(float(f"{base}e{power}") for power in range(-5, 3) for base in (1, 2.5, 5))[2:]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of: dict[str, Any] = {"registry": self.registry}
        timed: dict[str, Any] = {**of, "buckets": FAST}
        model = ("model", "version")
        self.requests = Counter("bitedge_requests", "Requests answered.", ("route", "status"), **of)
        self.request_seconds = Histogram("bitedge_request_seconds", "Time to answer.", ("route",), **timed)
        self.errors = Counter("bitedge_errors", "Requests that failed.", ("reason",), **of)
        self.shed = Counter("bitedge_shed", "Requests refused for want of capacity.", ("reason",), **of)
        self.dropped = Counter("bitedge_dropped_images", "Images dropped after queueing.", ("reason",), **of)
        self.pending = Gauge("bitedge_pending_images", "Images that wait or run.", multiprocess_mode="livesum", **of)
        self.decode = Histogram("bitedge_decode_seconds", "Time to decode an image.", model, **timed)
        self.queue = Histogram("bitedge_queue_seconds", "Time in the queue.", model, **timed)
        self.inference = Histogram("bitedge_inference_seconds", "Time of one batch.", model, **timed)
        self.batch = Histogram("bitedge_batch_size", "Images in one batch.", model, buckets=SIZES, **of)
        self.images = Counter("bitedge_images", "Images classified.", model, **of)
        self.last = Gauge(
            "bitedge_last_inference_timestamp_seconds", "Last run of a model.", model, multiprocess_mode="max", **of
        )
        self.failures = Counter("bitedge_failed_inferences", "Requests whose inference failed.", model, **of)
        info = (*model, "backend", "kernels", "sha256")
        self.model_info = Gauge("bitedge_model_info", "Versions that serve.", info, multiprocess_mode="livemax", **of)
        changes = "Versions loaded, replaced, refused, removed."
        self.changes = Counter("bitedge_model_changes", changes, ("kind", "model"), **of)
        self._known: set[tuple[str, ...]] = set()
        # Finding a metric by its labels costs as much as counting, so what was found once is kept.
        self._of_request: Callable[..., Any] = cache(
            lambda route, status: (self.requests.labels(route, status), self.request_seconds.labels(route))
        )
        of_model = (self.inference, self.batch, self.images, self.last, self.decode, self.queue)
        self._of_model: Callable[..., Any] = cache(lambda *labels: [metric.labels(*labels) for metric in of_model])

    def observe_request(self, route: str, status: int, reason: str, seconds: float) -> None:
        """Count one response."""
        count, duration = self._of_request(route, str(status))
        count.inc()
        duration.observe(seconds)
        if reason:
            self.errors.labels(reason).inc()
            if status in (429, 503):
                self.shed.labels(reason).inc()

    def observe_batch(self, report: BatchReport) -> None:
        """Count one run of the core."""
        model, images, seconds = report.model, report.images, report.inference
        if report.failed:
            self.failures.labels(model.name, model.version).inc(len(report.jobs))
            return
        inference, batch, count, last, decode, queue = self._of_model(model.name, model.version)
        inference.observe(seconds)
        batch.observe(images)
        count.inc(images)
        last.set(time.time())
        for job in report.jobs:
            decode.observe(job.decode)
            queue.observe(job.queued)

    def observe_event(self, event: Event, entries: Iterable[Entry]) -> None:
        """Count a change of the model folder, and say which versions serve now."""
        self.changes.labels(event.kind, event.name).inc()
        current: set[tuple[str, ...]] = set()
        for model in (entry.model for entry in entries if entry.model is not None):
            kernels = " ".join(model.facts.get("kernels", ()))
            current.add((model.name, model.version, model.backend, kernels, model.sha256[:16]))
        for labels in self._known | current:
            self.model_info.labels(*labels).set(labels in current)
        self._known = current

    def collect(self) -> CollectorRegistry:
        """Return the registry to read from: this process's, or that of all workers."""
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        everyone = CollectorRegistry()
        if folder is None:
            everyone.register(self.registry)
            pids = {os.getpid()}
        else:
            found = {int(file.stem.rpartition("_")[2]) for file in Path(folder).glob("*.db")}
            pids = {pid for pid in found if alive(pid)}
            for pid in found - pids:
                mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
            MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        everyone.register(WorkerProcesses(pids))
        return everyone

    def exposition(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return bytes(generate_latest(self.collect()))

    def statistics(self) -> list[dict[str, Any]]:
        """Return counts and nanoseconds of every version, in the shape of Triton's statistics extension."""
        samples: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for metric in self.collect().collect():
            for sample in metric.samples:
                if "model" in sample.labels and "version" in sample.labels and "le" not in sample.labels:
                    key = sample.labels["model"], sample.labels["version"]
                    samples[key][sample.name.removeprefix("bitedge_")] = sample.value
        ran = sorted(key for key, values in samples.items() if "images_total" in values)
        return [model_statistics(*key, defaultdict(float, samples[key])) for key in ran]


class WorkerProcesses:
    """The `process_*` metrics of all workers together."""

    def __init__(self, pids: set[int]) -> None:
        self._pids = sorted(pids)

    def collect(self) -> Iterator[Metric]:
        """Add up memory, processor time and open files; the start is the first one, the limit of files the lowest."""
        values: dict[str, list[Metric]] = defaultdict(list)
        for pid in self._pids:
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                if metric.samples:
                    values[metric.name].append(metric)
        for name, metrics in values.items():
            numbers = [metric.samples[0].value for metric in metrics]
            together = min if name in ("process_start_time_seconds", "process_max_fds") else sum
            sample = metrics[0].samples[0]._replace(value=together(numbers))
            metrics[0].samples[:] = [sample]
            yield metrics[0]


def model_statistics(name: str, version: str, values: Mapping[str, float]) -> dict[str, Any]:
    """Return the statistics of one version; success and fail count requests."""

    def duration(metric: str) -> dict[str, int]:
        return {"count": int(values[f"{metric}_count"]), "ns": int(values[f"{metric}_sum"] * 1e9)}

    decode, queue, inference = map(duration, ("decode_seconds", "queue_seconds", "inference_seconds"))
    return {
        "name": name,
        "version": version,
        "last_inference": int(values["last_inference_timestamp_seconds"] * 1e3),
        "inference_count": int(values["images_total"]),
        "execution_count": inference["count"],
        "inference_stats": {
            "success": {"count": queue["count"], "ns": decode["ns"] + queue["ns"] + inference["ns"]},
            "fail": {"count": int(values["failed_inferences_total"]), "ns": 0},
            "queue": queue,
            "compute_input": decode,
            "compute_infer": inference,
            "compute_output": {"count": 0, "ns": 0},
        },
    }


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
