"""Settings of the service, from flags, the environment (`BITEDGE_SERVE_*`) and a TOML file, in this order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bitedge.serve.api.errors import ServeError
from bitedge.serve.inference.preprocessing import ImageLimits
from bitedge.serve.models.registry import Registry
from bitedge.serve.models.repository import NAME
from bitedge.serve.security.keys import KeyRing
from bitedge.serve.security.limits import cpu_count

Access = Literal["off", "key", "open"]
PREFIX = "BITEDGE_SERVE_"


class ServeSettings(BaseSettings):
    """How to serve models. Limits of the queue, of bytes, pixels, connections and threads are those of one worker."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, protected_namespaces=())

    models: Annotated[tuple[Path, ...], NoDecode] = Field((), description="models to serve")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65_535, description="port; 0 takes a free one")
    unix_socket: Path | None = Field(None, description="listen on this Unix domain socket instead of an address")
    grpc_port: int | None = Field(None, ge=1, le=65_535, description="port for gRPC (extra grpc); not set: no gRPC")
    workers: int = Field(1, ge=1, le=256, description="worker processes")
    threads: int = Field(0, ge=0, le=256, description="inference threads of a worker; 0: one for each processor")
    kernels: str | None = Field(None, description="force the core's kernels; see bitedge doctor")
    default_model: str | None = Field(None, description="the model of requests that name none")
    model_name: str | None = Field(None, description="name of a single model, instead of its folder's")

    queue: int = Field(128, ge=1, le=100_000, description="images that may wait or run before requests are shed")
    max_batch: int = Field(32, ge=1, le=4_096, description="images that run together at most")
    batch_delay_ms: float = Field(0, ge=0, le=1_000, description="time to wait for a batch to fill")
    deadline_ms: float = Field(1_000, ge=1, le=600_000, description="deadline of requests that name none")
    max_deadline_ms: float = Field(30_000, ge=1, le=600_000, description="longest deadline that a request may name")

    max_body_bytes: int = Field(8 << 20, ge=1_024, le=1 << 30, description="largest request")
    max_bytes_in_flight: int = Field(64 << 20, ge=1_024, description="bytes of all requests in memory")
    max_pixels: int = Field(16_000_000, ge=1, le=1 << 28, description="largest image")
    max_pixels_in_flight: int = Field(24_000_000, ge=1, description="pixels of large images decoded at once")
    max_images: int = Field(64, ge=1, le=4_096, description="images in one request")
    max_header_bytes: int = Field(32_768, ge=8_192, le=1 << 20, description="largest head of a request")
    max_connections: int = Field(1_024, ge=1, le=1_000_000, description="connections at once")
    decode_ms: float = Field(2_000, ge=1, le=60_000, description="time to decode one image")
    body_seconds: float = Field(10, ge=0.1, le=600, description="time for a body to arrive")
    idle_seconds: float = Field(65, ge=0.1, le=3_600, description="time for a head to arrive; keep-alive")
    stall_seconds: float = Field(60, ge=1, le=3_600, description="a worker whose threads stall so long is replaced")

    poll_seconds: float = Field(2, ge=0, le=3_600, description="how often to look for new versions; 0: never")
    allow_empty: bool = Field(False, description="start even if no model can be served yet")
    drain_seconds: float = Field(30, ge=1, le=1_800, description="time for accepted requests to finish after SIGTERM")

    api_keys: SecretStr | None = Field(None, description="API keys, separated by ;")
    keys_file: Path | None = Field(None, description="file with API keys; read again when it changes")
    require_auth: bool = Field(False, description="refuse to start without API keys")
    rate_limit: float = Field(0, ge=0, le=1_000_000, description="requests a second for each key or address; 0: any")
    rate_burst: float = Field(20, ge=1, le=1_000_000, description="requests that may come at once")
    metrics: Access = Field("key", description="who may read /metrics; key: anybody, if there are no keys")
    admin: Access = Field("key", description="who may load and unload; key: nobody, if there are no keys")
    page: bool = Field(True, description="the page at /")
    access_log: bool = Field(True, description="a log line for every request")
    otlp_endpoint: str | None = Field(None, description="send traces there by OTLP over HTTP (extra otel)")

    tls_cert: Path | None = Field(None, description="TLS certificate chain, PEM")
    tls_key: Path | None = Field(None, description="TLS private key, PEM of PKCS#8")
    tls_client_ca: Path | None = Field(None, description="accept only clients with a certificate of this authority")
    root_path: str = Field("", pattern=r"^(/[\w.~-]+)*$", description="path prefix under which a proxy publishes this")
    forwarded_allow_ips: str = Field("", description="proxies whose X-Forwarded-* count: addresses, networks, or *")
    run_folder: Path | None = Field(None, description="set by the service: what its workers share")

    @field_validator("models", mode="before")
    @classmethod
    def split_models(cls, value: Any) -> Any:
        """Take one path, several, or several in one variable, separated as in PATH."""
        if isinstance(value, str):
            return tuple(part for part in value.split(os.pathsep) if part)
        return (value,) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that contradict each other."""
        if self.deadline_ms > self.max_deadline_ms:
            raise ValueError(f"deadline-ms {self.deadline_ms:g} is above max-deadline-ms {self.max_deadline_ms:g}")
        if self.max_body_bytes > self.max_bytes_in_flight:
            raise ValueError(f"max-body-bytes {self.max_body_bytes} is above max-bytes-in-flight")
        if self.max_pixels > self.max_pixels_in_flight:
            raise ValueError(f"max-pixels {self.max_pixels} is above max-pixels-in-flight {self.max_pixels_in_flight}")
        if (self.tls_cert is None) != (self.tls_key is None) or (self.tls_client_ca and not self.tls_cert):
            raise ValueError("TLS needs both tls-cert and tls-key")
        if self.model_name is not None and not NAME.fullmatch(self.model_name):
            raise ValueError(f"model-name: expected letters, digits, ., _ and -, got {self.model_name!r}")
        if self.require_auth and self.api_keys is None and self.keys_file is None:
            raise ValueError("require-auth: there are no API keys; give keys-file, or BITEDGE_SERVE_API_KEYS")
        return self

    @property
    def image_limits(self) -> ImageLimits:
        """How much one image may cost."""
        return ImageLimits(pixels=self.max_pixels, seconds=self.decode_ms / 1_000)

    @property
    def thread_count(self) -> int:
        """Inference threads of one worker."""
        return self.threads or max(1, cpu_count() // self.workers)

    def key_ring(self) -> KeyRing:
        """Make the ring of API keys, not checked yet."""
        return KeyRing(self.keys_file, self.api_keys.get_secret_value() if self.api_keys is not None else None)

    def registry(self) -> Registry:
        """Make the registry of models, not loaded yet."""
        return Registry(self.models, self.model_name, kernels=self.kernels, default=self.default_model)


def load_settings(flags: Mapping[str, Any], file: Path | None = None) -> ServeSettings:
    """Read the settings; a value that makes no sense is a ServeError with one line."""
    given = {name.removeprefix(PREFIX).lower() for name in os.environ if name.startswith(PREFIX)}
    unknown = sorted(given - {*ServeSettings.model_fields, "file"})
    if unknown:
        raise ServeError(f"{PREFIX}{unknown[0].upper()}: there is no such setting; see bitedge serve --help")
    path = file or os.environ.get(f"{PREFIX}FILE")
    try:
        lines = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        return ServeSettings(**{name: value for name, value in lines.items() if name not in given} | dict(flags))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ServeError(f"settings: {path}: {getattr(error, 'strerror', None) or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part).replace("_", "-") for part in first["loc"])
        got = f", got {str(first['input'])[:80]!r}" if name else ""
        raise ServeError(f"{name + ': ' if name else ''}{first['msg'].removeprefix('Value error, ')}{got}") from None
