"""A resident engine's side of the socket: who may come in, and their turns."""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..engine.engine import Engine
from ..errors import EngineError, MtplxError
from ..protocol import Failed
from .handshake import difference, hello
from .socket_path import is_ours, make_directory, peer_uid, socket_path
from .wire import ALIVE, MAX_LINE, event_line, from_line, request_from, to_line

logger = logging.getLogger(__name__)

ALREADY = "An engine is already running. 'llm mtplx status' shows it; 'llm mtplx stop' stops it."
ALIVE_S = 5.0  # between signs of life

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Place:
    """The socket of this user's one resident engine, held until ``close``."""

    def __init__(self) -> None:
        make_directory()
        self.path = socket_path()
        self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise EngineError(ALREADY) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()  # of one that died: we hold its lock
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.path.chmod(0o600)
        self.socket.listen()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.socket.close()
        os.close(self._lock)


def holder(path: Path) -> int | None:
    """The process that holds the place at ``path``; None if nobody does."""
    if not is_ours(path.parent):
        return None  # what another user says there is not to be believed
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        told = os.read(lock, 32)
        return int(told) if told.isdigit() else None
    else:
        return None
    finally:
        os.close(lock)


async def listen(
    place: Place, engine: Engine, answer: Ask, guests: set[asyncio.Task[None]]
) -> asyncio.Server:
    """Let this user's processes in. ``answer`` is asked what they ask besides turns. ``guests``
    holds the tasks of those that are there."""

    async def come_in(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        guests.add(task)
        task.add_done_callback(guests.discard)
        try:
            connection = outgoing.get_extra_info("socket")
            if peer_uid(connection) == os.getuid():
                await _serve(engine, answer, incoming, outgoing)
        except OSError:
            pass  # the other side is gone
        except Exception as error:
            logger.warning("a process sent an unreadable request: %r", error)
        finally:
            outgoing.close()

    return await asyncio.start_unix_server(come_in, sock=place.socket, limit=MAX_LINE)


async def _serve(
    engine: Engine, answer: Ask, incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter
) -> None:
    first = from_line(await incoming.readline())
    if "ask" in first:
        outgoing.write(to_line(await answer(first)))
        await outgoing.drain()
        return
    theirs, ours = first["hello"], hello(Path(first["folder"]))
    outgoing.write(to_line({"hello": ours}))
    await outgoing.drain()
    line = await incoming.readline()
    if not line or difference(theirs, ours) is not None:
        return
    try:
        request = request_from(from_line(line)["request"])
    except MtplxError as error:
        outgoing.write(event_line(Failed(error)))
        await outgoing.drain()
        return
    try:
        turn = engine.astream(request, f"process {first.get('pid')}", ALIVE_S)
    except MtplxError as error:
        outgoing.write(event_line(Failed(error)))
        await outgoing.drain()
        return
    listening = asyncio.create_task(_obey(incoming, turn.cancel))
    # A reader that is gone abandons its turn.
    listening.add_done_callback(lambda task: turn.abandon())
    try:
        async for event in turn:
            outgoing.write(ALIVE if event is None else event_line(event))
            await outgoing.drain()
    except MtplxError as error:
        outgoing.write(event_line(Failed(error)))
        await outgoing.drain()
    finally:
        listening.cancel()


async def _obey(incoming: asyncio.StreamReader, cancel: Callable[[], None]) -> None:
    """Until the other side hangs up."""
    with contextlib.suppress(OSError, ValueError):
        while line := await incoming.readline():
            if from_line(line).get("cancel"):
                cancel()
