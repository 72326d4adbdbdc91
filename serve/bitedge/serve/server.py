"""Run the service: one process, or a supervisor with several workers; end well on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import os
import signal
import socket
import sys
from types import FrameType

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from bitedge.serve.acceptor import Acceptor
from bitedge.serve.adopter import Adopter
from bitedge.serve.api.errors import ServeError
from bitedge.serve.app import create_app
from bitedge.serve.journaled import JournaledAnswers
from bitedge.serve.models.registry import ModelStore
from bitedge.serve.observability.logging import logging_config
from bitedge.serve.protocol import WholeAnswers
from bitedge.serve.security.keys import load_keys
from bitedge.serve.service import Service
from bitedge.serve.settings import ServeConfig

log = logging.getLogger("bitedge.serve")

BACKLOG = 2048


class DrainingServer(uvicorn.Server):
    """A server that says goodbye before it closes.

    uvicorn closes idle connections at once, and a request that was just sent on one is lost. Here every answer first
    carries `Connection: close`, so that clients leave by themselves; only what is idle after that is closed.
    """

    grace = 0.5  # seconds in which kept-alive connections learn that they should close

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept from the sockets."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        config, state, lifespan = self.config, self.server_state, self.lifespan

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=state, app_state=lifespan.state
            )
            return made

        patience = self._service.config.body_seconds
        kind = Adopter if config.http_protocol_class is JournaledAnswers else Acceptor
        self.servers = [kind(sock, protocol, patience) for sock in sockets or []]  # type: ignore[misc]
        self.started = True
        folder = self._service.config.run_folder
        if folder is not None:
            (folder / f"ready-{os.getpid()}").touch()  # the supervisor looks for it

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Note the signal without uvicorn's habit of raising it again afterwards: a drained exit is a success."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell the load balancer, stop accepting, let clients finish, close."""
        self._service.draining = True
        log.info("draining", extra={"pending": self._service.batcher.pending})
        await self._pause(self._service.config.drain_delay_seconds)
        for server in self.servers:
            server.close()
            await server.wait_closed()
        await self._pause(self.grace)
        await super().shutdown(sockets)
        log.info("stopped")

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for nobody."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until and not self.force_exit:
            if not self.server_state.connections and self._service.config.drain_delay_seconds == 0:
                return
            await asyncio.sleep(0.02)


def listen(config: ServeConfig) -> socket.socket:
    """Bind the address; all workers accept from this one socket, so a dead one leaves its queue to the others."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((config.host, config.port))
    except OSError as error:
        sock.close()
        raise ServeError(f"cannot listen on {config.host} port {config.port}: {error.strerror}") from None
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def check_models(config: ServeConfig) -> ModelStore:
    """Load the models once; refuse to start when none can be served, unless that is allowed."""
    store = config.store()
    store.refresh()
    where = ", ".join(map(str, store.sources))
    if config.default_model is not None and config.default_model not in store.table and not config.allow_empty:
        raise ServeError(f"there is no model {config.default_model} in {where}; it has {', '.join(store.table)}")
    if not store.ready and not config.allow_empty:
        reasons = [f"{entry.candidate.path}: {entry.reason}" for entry in store.entries()]
        raise ServeError(reasons[0] if reasons else f"{where}: holds no model; bitedge export writes model.gguf")
    return store


def run_worker(config: ServeConfig, sock: socket.socket, store: ModelStore | None = None) -> int:
    """Serve in this process until a signal ends it; the exit code. The socket listens, or is a channel."""
    logging.config.dictConfig(logging_config())
    app = create_app(config, store)
    settings = uvicorn.Config(
        app,
        http=JournaledAnswers if sock.family == socket.AF_UNIX else WholeAnswers,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(config.drain_seconds)),
    )
    server = DrainingServer(settings, app.service)
    server.run(sockets=[sock])
    return 0 if server.started else 1


def serve(config: ServeConfig, announce: bool = True) -> int:
    """Serve until SIGTERM or SIGINT; 0 after an orderly end."""
    load_keys(config.keys_file, config.keys_environment)  # a bad key file is told here, before anything listens
    store = check_models(config)
    sock = listen(config)
    if announce:
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        names = ", ".join(f"{entry.candidate.name}/{entry.candidate.version}" for entry in store.entries())
        print(f"serving {names or 'no model yet'} on http://{shown}:{port}", flush=True)
    if config.workers == 1:
        return run_worker(config, sock, store)
    from bitedge.serve.supervisor import supervise

    return supervise(config, sock)
