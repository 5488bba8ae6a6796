"""The app on a port, until the resident engine ends."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence

import uvicorn

from ..engine.engine import Engine
from ..errors import MtplxError
from .app import create_app
from .halfclosed import HalfClosed
from .keys import is_loopback

GRACE_S = 2  # for answers that are being sent when the end comes


class Http:
    """Holds its port from the beginning, so that a port that is taken is told at once."""

    def __init__(
        self,
        engine: Engine,
        host: str,
        port: int,
        require_key: bool,
        hosts: Sequence[str],
        max_waiting: int,
        timeout_s: float,
    ) -> None:
        app = create_app(
            engine,
            require_key=require_key or not is_loopback(host),
            hosts=hosts,
            max_waiting=max_waiting,
            timeout_s=timeout_s,
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                http=HalfClosed,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise MtplxError(f"Cannot listen on {host}:{port}: {error}.") from None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}"

    async def run(self, stopping: asyncio.Event) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        ending = asyncio.create_task(stopping.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        self._server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the engine, and that ends this."""
        yield
