"""Run the service on granian: check the settings and the models, then start the worker processes."""

from __future__ import annotations

import gc
import importlib
import logging
import logging.config
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.utils.proxies import wrap_asgi_with_proxy_headers

from bitedge.serve.api.errors import ServeError
from bitedge.serve.app import create_app
from bitedge.serve.observability.logging import logging_config
from bitedge.serve.security.dependencies import Service
from bitedge.serve.security.limits import connection_limit
from bitedge.serve.settings import ServeSettings

log = logging.getLogger("bitedge.serve")

EXTRAS = {"grpc_port": ("grpc", "grpc"), "otlp_endpoint": ("opentelemetry.sdk", "otel")}  # setting: module, extra


def serve(settings: ServeSettings) -> int:
    """Serve until SIGTERM or SIGINT; 0 after an orderly end."""
    settings = check(settings)
    with reserve_port(settings) as reservation, tempfile.TemporaryDirectory(prefix="bitedge-serve-") as folder:
        if settings.unix_socket is None:
            host, port = reservation.getsockname()[:2]
            settings = settings.model_copy(update={"host": host, "port": port})
        settings = settings.model_copy(update={"run_folder": Path(folder)})
        if settings.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        threading.Thread(target=announce_when_listening, args=(settings,), daemon=True).start()
        multiprocessing.set_start_method("spawn", force=True)  # threads and locks are not inherited
        granian(settings).serve(target_loader=partial(worker_app, settings, os.getpid()), wrap_loader=False)
    return 0


def granian(settings: ServeSettings) -> Any:
    """Configure the server: all limits of connections, heads and time are its own."""
    return Granian(
        "bitedge",
        address=settings.host,
        port=settings.port,
        uds=settings.unix_socket,
        uds_permissions=0o660 if settings.unix_socket else None,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=connection_limit(settings.max_connections),
        http1_settings=HTTP1Settings(
            header_read_timeout=int(settings.idle_seconds * 1_000), max_buffer_size=settings.max_header_bytes
        ),
        log_level=LogLevels.warning,
        log_dictconfig=logging_config(),
        ssl_cert=settings.tls_cert,
        ssl_key=settings.tls_key,
        ssl_ca=settings.tls_client_ca,
        ssl_client_verify=settings.tls_client_ca is not None,
        respawn_failed_workers=True,
        workers_kill_timeout=round(settings.drain_seconds),
    )


def check(settings: ServeSettings) -> ServeSettings:
    """Refuse settings that cannot work before anything listens; name the default model if there is only one."""
    for setting, (module, extra) in EXTRAS.items():
        if getattr(settings, setting) is None:
            continue
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            needed = f"{setting.replace('_', '-')} needs {module}"
            raise ServeError(f"{needed}; run: pip install 'bitedge[{extra}]'") from None
    settings.key_ring().check()
    for file in (settings.tls_cert, settings.tls_key, settings.tls_client_ca):
        if file is not None and not file.is_file():
            raise ServeError(f"TLS: {file}: no such file")
    registry = settings.registry()
    registry.refresh()
    where = ", ".join(str(root.path) for root in registry.roots)
    names, default = sorted(registry.table), registry.default_name
    if settings.default_model not in (None, *names) and not settings.allow_empty:
        raise ServeError(f"there is no model {settings.default_model} in {where}; it has {', '.join(names)}")
    if not registry.ready and not settings.allow_empty:
        reasons = [f"{entry.candidate.path}: {entry.reason}" for entry in registry.entries()]
        raise ServeError(reasons[0] if reasons else f"{where}: holds no model; bitedge export writes model.gguf")
    del registry
    gc.collect()  # its models; this process serves nothing itself
    return settings.model_copy(update={"default_model": default})


def reserve_port(settings: ServeSettings) -> socket.socket:
    """Find out whether the address is free, and hold its port for the workers, which share it (SO_REUSEPORT)."""
    if settings.unix_socket is not None:
        return socket.socket(socket.AF_UNIX)
    try:
        family, kind, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:  # without SO_REUSEPORT: fails if somebody else listens
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            found = probe.getsockname()
        holder = socket.socket(family, kind)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(found)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServeError(f"cannot listen on {settings.host} port {settings.port}: {reason}") from None
    return holder


def announce_when_listening(settings: ServeSettings) -> None:
    """Print the address when a worker accepts connections there."""
    path, host = settings.unix_socket, settings.host
    family = socket.AF_UNIX if path else socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as client:
            if client.connect_ex(str(path) if path else (host, settings.port)) == 0:
                break
        time.sleep(0.05)
    scheme = "https" if settings.tls_cert else "http"
    shown = f"[{host}]" if ":" in host else host
    url = f"unix:{path}" if path else f"{scheme}://{shown}:{settings.port}{settings.root_path}"
    print(f"serving {', '.join(map(str, settings.models))} on {url}", flush=True)


def worker_app(settings: ServeSettings, parent: int) -> Any:
    """Build the application in a worker process, and watch over it."""
    logging.config.dictConfig(logging_config())
    service = Service(settings)
    threading.Thread(target=watch, args=(service, parent), name="watchdog", daemon=True).start()
    app = create_app(settings, service)
    if settings.forwarded_allow_ips:
        return wrap_asgi_with_proxy_headers(app, settings.forwarded_allow_ips)
    return app


def watch(service: Service, parent: int) -> None:
    """End a worker that makes no progress, so that the server replaces it, or whose parent is gone."""
    limit = 2 * service.settings.stall_seconds
    while True:
        time.sleep(1.0)
        if os.getppid() != parent:
            log.error("the parent process is gone; ending")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if service.batcher.stalled(limit) or (service.last_beat and time.monotonic() - service.last_beat > limit):
            log.critical("the worker makes no progress; ending")
            os._exit(70)
