"""The life of a resident engine: until it is told to stop, or nobody has needed it for long."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..engine.engine import Engine
from ..engine.status import engine_status
from .server import Place, listen

logger = logging.getLogger(__name__)

WATCH_S = 5.0
GOODBYE_S = 2.0  # for the readers to get the error of an answer that is cut off
FORGET_S = 3.0  # less than who asks will wait

Extra = Callable[[asyncio.Event], Awaitable[None]]


async def reside(
    engine: Engine,
    place: Place,
    *,
    address: str | None,
    keep_alive_s: float,
    unload_after_s: float,
    extra: Extra | None,
) -> None:
    """``extra`` runs beside the socket until the event it is given is set; its end is the end.
    ``address`` is what it listens to, for status."""
    engine.stays = True
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    async def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["ask"] == "stop":
            stopping.set()
        elif asked["ask"] == "forget":
            # Behind a long turn it comes after the answer.
            done = engine.forget(asked["conversation"], asked["older_than"])
            await asyncio.wait([asyncio.wrap_future(done)], timeout=FORGET_S)
        return {"pid": os.getpid(), "address": address, **engine_status(engine)}

    guests: set[asyncio.Task[None]] = set()
    server = await listen(place, engine, answer, guests)
    tasks = [
        asyncio.create_task(_watch(engine, place.path, keep_alive_s, unload_after_s, stopping)),
        asyncio.create_task(stopping.wait()),
    ]
    if extra is not None:
        tasks.append(asyncio.ensure_future(extra(stopping)))
    try:
        await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        stopping.set()
        engine.interrupt()
        if extra is not None:
            await tasks[-1]
        if guests:
            await asyncio.wait(guests, timeout=GOODBYE_S)
    finally:
        tasks[0].cancel()
        server.close()
        place.close()


async def _watch(
    engine: Engine,
    path: Path,
    keep_alive_s: float,
    unload_after_s: float,
    stopping: asyncio.Event,
) -> None:
    told = ""
    while True:
        limits = [seconds for seconds in (keep_alive_s, unload_after_s) if seconds]
        await asyncio.sleep(min([WATCH_S, *(seconds / 4 for seconds in limits)]))
        for kept in (path, path.with_suffix(".lock")):
            with contextlib.suppress(OSError):
                os.utime(kept)  # what tidies up /tmp goes by this
        try:
            if keep_alive_s and engine.idle_s >= keep_alive_s:
                stopping.set()
            elif engine.idle:
                engine.tidy(unload_after_s)
        except Exception as error:
            # The next round may do better: an engine that nobody watches stays for ever.
            if told != repr(error):
                told = repr(error)
                logger.warning("watching the engine failed: %r", error)
