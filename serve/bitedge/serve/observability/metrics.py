"""Metrics for Prometheus, and the statistics of the Open Inference Protocol.

With several workers the values live in files that all of them map (`PROMETHEUS_MULTIPROC_DIR`, set by the parent before
this module is imported), so any worker answers for all.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from bitedge.serve.inference.job import BatchReport
from bitedge.serve.models.registry import Entry, Event
from bitedge.serve.models.repository import alive

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds, from the time of a small network to the longest deadline.
FAST = tuple(float(f"{base}e{power}") for power in range(-5, 3) for base in (1, 2.5, 5))[2:]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of: dict[str, Any] = {"registry": self.registry}
        model = ("model", "version")
        self.requests = Counter("bitedge_requests", "Requests answered.", ("route", "status"), **of)
        self.request_seconds = Histogram("bitedge_request_seconds", "Time to answer.", ("route",), buckets=FAST, **of)
        self.errors = Counter("bitedge_errors", "Requests that failed.", ("reason",), **of)
        self.shed = Counter("bitedge_shed", "Requests refused for want of capacity.", ("reason",), **of)
        self.dropped = Counter("bitedge_dropped_images", "Images dropped after queueing.", ("reason",), **of)
        self.pending = Gauge("bitedge_pending_images", "Images that wait or run.", multiprocess_mode="livesum", **of)
        self.decode = Histogram("bitedge_decode_seconds", "Time to decode an image.", model, buckets=FAST, **of)
        self.queue = Histogram("bitedge_queue_seconds", "Time in the queue.", model, buckets=FAST, **of)
        self.inference = Histogram("bitedge_inference_seconds", "Time of one batch.", model, buckets=FAST, **of)
        self.batch = Histogram("bitedge_batch_size", "Images in one batch.", model, buckets=SIZES, **of)
        self.images = Counter("bitedge_images", "Images classified.", model, **of)
        self.last = Gauge(
            "bitedge_last_inference_timestamp_seconds", "Last run of a model.", model, multiprocess_mode="max", **of
        )
        self.failures = Counter("bitedge_failed_inferences", "Requests whose inference failed.", model, **of)
        by_size = (*model, "size")
        self.batches = Counter("bitedge_batches", "Batches run, by size.", by_size, **of)
        self.batch_seconds = Counter("bitedge_batch_seconds", "Time in the core, by size of batch.", by_size, **of)
        self.model_info = Gauge(
            "bitedge_model_info",
            "1 for every version that serves.",
            (*model, "backend", "kernels", "sha256"),
            multiprocess_mode="livemax",
            **of,
        )
        self.reloads = Counter(
            "bitedge_model_changes", "Versions loaded, replaced, refused, removed.", ("kind", "model"), **of
        )

        # Finding a metric by its labels costs as much as counting, so what was found once is kept.
        self._of_request = cache(self._find_of_request)
        self._of_model = cache(self._find_of_model)
        self._of_size = cache(self._find_of_size)

    def _find_of_request(self, route: str, status: int) -> tuple[Counter, Histogram]:
        return self.requests.labels(route, str(status)), self.request_seconds.labels(route)

    def _find_of_model(self, *of: str) -> tuple[Histogram, Histogram, Counter, Gauge, Histogram, Histogram]:
        found = self.inference.labels(*of), self.batch.labels(*of), self.images.labels(*of), self.last.labels(*of)
        return *found, self.decode.labels(*of), self.queue.labels(*of)

    def _find_of_size(self, *of: str) -> tuple[Counter, Counter]:
        return self.batches.labels(*of), self.batch_seconds.labels(*of)

    def observe_request(self, route: str, status: int, reason: str, seconds: float) -> None:
        """Count one response."""
        count, duration = self._of_request(route, status)
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
        batches, batch_seconds = self._of_size(model.name, model.version, str(images))
        inference.observe(seconds)
        batch.observe(images)
        batches.inc()
        batch_seconds.inc(seconds)
        count.inc(images)
        last.set(time.time())
        for job in report.jobs:
            decode.observe(job.decode)
            queue.observe(max(0.0, job.started - job.created - job.decode))

    def observe_drop(self, reason: str, count: int) -> None:
        """Count images that were queued for nothing."""
        self.dropped.labels(reason).inc(count)

    def observe_event(self, event: Event) -> None:
        """Count a change of the model folder."""
        self.reloads.labels(event.kind, event.name).inc()

    def set_models(self, entries: Iterable[Entry]) -> None:
        """Say which versions serve."""
        current = {info_labels(entry.model) for entry in entries if entry.model is not None}
        for labels in getattr(self, "_known", set()) | current:
            self.model_info.labels(*labels).set(1 if labels in current else 0)
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

    def statistics(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Per model and version: counts and nanoseconds, in the shape of Triton's statistics extension."""
        samples: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for metric in self.collect().collect():
            for sample in metric.samples:
                key = tuple(sample.labels.get(name, "") for name in ("model", "version", "size"))
                if "le" not in sample.labels:
                    samples[sample.name][key] = sample.value
        names = {(key[0], key[1]) for key in samples["bitedge_images_total"]}
        return {name: model_statistics(samples, *name) for name in names}


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


def info_labels(model: Any) -> tuple[str, ...]:
    """Return the labels of a version."""
    kernels = " ".join(model.facts.get("kernels", ()))
    return model.name, model.version, model.backend, kernels, model.sha256[:16]


def model_statistics(samples: dict[str, dict[tuple[str, ...], float]], name: str, version: str) -> dict[str, Any]:
    """Return the statistics of one version; success and fail count requests."""

    def duration(metric: str) -> dict[str, int]:
        key = (name, version, "")
        seconds, count = samples[f"{metric}_sum"].get(key, 0.0), samples[f"{metric}_count"].get(key, 0.0)
        return {"count": int(count), "ns": int(seconds * 1e9)}

    key = (name, version, "")
    images = int(samples["bitedge_images_total"].get(key, 0))
    failed = int(samples["bitedge_failed_inferences_total"].get(key, 0))
    decode, queue, inference = map(
        duration, ("bitedge_decode_seconds", "bitedge_queue_seconds", "bitedge_inference_seconds")
    )
    sizes = [k[2] for k in samples["bitedge_batches_total"] if k[:2] == (name, version)]
    total = decode["ns"] + queue["ns"] + inference["ns"]
    return {
        "name": name,
        "version": version,
        "last_inference": int(samples["bitedge_last_inference_timestamp_seconds"].get(key, 0.0) * 1e3),
        "inference_count": images,
        "execution_count": inference["count"],
        "inference_stats": {
            "success": {"count": queue["count"], "ns": total},
            "fail": {"count": failed, "ns": 0},
            "queue": queue,
            "compute_input": decode,
            "compute_infer": inference,
            "compute_output": {"count": 0, "ns": 0},
        },
        "batch_stats": [
            {
                "batch_size": int(size),
                "compute_input": {"count": 0, "ns": 0},
                "compute_infer": {
                    "count": int(samples["bitedge_batches_total"][(name, version, size)]),
                    "ns": int(samples["bitedge_batch_seconds_total"].get((name, version, size), 0.0) * 1e9),
                },
                "compute_output": {"count": 0, "ns": 0},
            }
            for size in sorted(sizes, key=int)
        ],
    }
