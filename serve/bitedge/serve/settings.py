"""What the service can be told, in one frozen object; nothing else in this room reads flags or the environment."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bitedge.serve.api.errors import ServeError
from bitedge.serve.inference.preprocessing import ImageLimits
from bitedge.serve.models.registry import ModelStore
from bitedge.serve.models.repository import NAME

Access = Literal["off", "key", "open"]

# The smallest and largest value that makes sense, for every number.
RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65_535),
    "workers": (1, 256),
    "threads": (0, 256),
    "queue": (1, 100_000),
    "max_batch": (1, 4_096),
    "batch_delay_ms": (0, 1_000),
    "in_place_us": (0, 10_000),
    "deadline_ms": (1, 600_000),
    "max_deadline_ms": (1, 600_000),
    "max_body_bytes": (1_024, 1 << 30),
    "max_pixels": (1, 1 << 28),
    "decode_ms": (1, 60_000),
    "body_seconds": (0.1, 600),
    "max_images": (1, 4_096),
    "poll_seconds": (0, 3_600),
    "drain_delay_seconds": (0, 300),
    "drain_seconds": (0, 3_600),
    "rate_limit": (0, 1_000_000),
    "rate_burst": (1, 1_000_000),
}


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """How to serve models: a folder with one sub-folder for each, a single file, or several of either.

    Limits on the queue, the rate and the threads hold for each worker process.
    """

    models: Path | tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    threads: int = 0  # inference threads in a worker; 0: as many as the cores allow
    kernels: str | None = None  # force the core's kernels by name
    default_model: str | None = None
    model_name: str | None = None  # the name of a single model that is served without a repository around it

    queue: int = 128  # images that wait or run, before requests are shed
    max_batch: int = 32
    batch_delay_ms: float = 0.0
    in_place_us: float = 200.0  # networks below this answer small images on the event loop; 0: never
    deadline_ms: float = 1_000.0
    max_deadline_ms: float = 30_000.0

    max_body_bytes: int = 8 << 20
    max_pixels: int = 16_000_000
    decode_ms: float = 2_000.0
    body_seconds: float = 10.0
    max_images: int = 64

    poll_seconds: float = 2.0  # how often the folder is looked at for new versions; 0: never
    allow_empty: bool = False  # start without any model that can be served
    drain_delay_seconds: float = 0.0  # after SIGTERM: keep accepting while load balancers notice
    drain_seconds: float = 30.0  # then finish what was accepted

    keys_file: Path | None = None
    keys_environment: str = "BITEDGE_API_KEYS"
    rate_limit: float = 0.0  # requests a second for each key or address; 0: no limit
    rate_burst: float = 20.0
    metrics: Access = "open"
    admin: Access = "key"  # load and unload of models; without keys that means nobody
    page: bool = True
    access_log: bool = True
    run_folder: Path | None = None  # set by the supervisor: what several workers share

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ServeError(f"{name.replace('_', '-')}: expected a number from {low:g} to {high:g}, got {value}")
        if not self.models:
            raise ServeError("expected models to serve, got none; give a folder of models, or model files")
        for name in ("metrics", "admin"):
            if getattr(self, name) not in get_args(Access):
                raise ServeError(f"{name}: expected one of {', '.join(get_args(Access))}, got {getattr(self, name)}")
        if self.model_name is not None and not NAME.fullmatch(self.model_name):
            raise ServeError(f"model-name: expected letters, digits, ., _ and -, got {self.model_name!r}")
        if self.deadline_ms > self.max_deadline_ms:
            raise ServeError(
                f"deadline-ms {self.deadline_ms:g} is above max-deadline-ms {self.max_deadline_ms:g}; raise the second"
            )

    @property
    def image_limits(self) -> ImageLimits:
        """How much one image may cost."""
        return ImageLimits(pixels=self.max_pixels, seconds=self.decode_ms / 1_000)

    @property
    def thread_count(self) -> int:
        """Inference threads of one worker."""
        return self.threads or max(1, len(os.sched_getaffinity(0)) // self.workers)

    def store(self) -> ModelStore:
        """The models, not loaded yet."""
        return ModelStore(self.models, kernels=self.kernels, default=self.default_model, name=self.model_name)

    def to_json(self) -> str:
        """Write the configuration for a worker process; it holds no secret."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> ServeConfig:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        models = fields["models"]
        fields["models"] = Path(models) if isinstance(models, str) else tuple(map(Path, models))
        for key in ("keys_file", "run_folder"):
            fields[key] = None if fields[key] is None else Path(fields[key])
        return ServeConfig(**fields)
