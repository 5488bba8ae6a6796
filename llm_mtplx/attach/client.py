"""The way to a resident engine of this user. Imports no MLX."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import EngineError
from ..protocol import Event, Failed, Finished, Request
from .handshake import difference, hello
from .socket_path import directory, is_ours, peer_uid, socket_path
from .wire import (
    ALIVE,
    MAX_LINE,
    Unreadable,
    event_from,
    greeting_from,
    request_fields,
    status_from,
    to_line,
)

CONNECT_S = 5.0  # to accept and say hello
GREETING = 65_536  # bytes at most
SILENT_S = 60.0  # between two signs of life; the engine gives one every few seconds

_GONE = "The background engine stopped in the middle of the answer. Ask again."
_SILENT = (
    "The background engine is not responding. Stop it with 'llm mtplx stop'; the next "
    "prompt will load the model in this process."
)


class NoEngine(Exception):
    """Nobody answers who can be trusted and is the same as this process would be."""


class Strange(NoEngine):
    """Somebody listens, but does not answer as an engine does."""


def connect() -> socket.socket:
    """A connection to this user's resident engine. Raises NoEngine."""
    path = socket_path()
    if not path.exists():
        raise NoEngine("no engine is running")
    if not is_ours(directory()):
        raise NoEngine(f"{directory()} is not a directory that only you can access")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect(str(path))
        if peer_uid(connection) != os.getuid():
            raise NoEngine(f"{path} belongs to another user")
    except OSError as error:
        connection.close()
        raise NoEngine(f"nothing answers at {path}: {error}") from None
    except NoEngine:
        connection.close()
        raise
    return connection


def ask(question: str, **details: Any) -> dict[str, Any]:
    """What the resident engine answers to ``status``, ``stop`` or ``forget``. Raises NoEngine."""
    with connect() as connection, connection.makefile("rb") as incoming:
        try:
            connection.sendall(to_line({"ask": question, **details}))
            return status_from(incoming.readline(MAX_LINE))
        except (OSError, ValueError) as error:
            raise _strange(error) from None


class Attachment:
    """One turn on a resident engine; for one reader, in a thread or on an event loop."""

    def __init__(self, connection: socket.socket, request: Request) -> None:
        self._connection = connection
        try:
            theirs = self._greet(request.folder)
            if theirs is not None:
                raise NoEngine(theirs)
            connection.sendall(to_line({"request": request_fields(request)}))
        except (OSError, ValueError) as error:
            connection.close()
            raise _strange(error) from None
        except NoEngine:
            connection.close()
            raise

    def _greet(self, folder: Path) -> str | None:
        """Why this engine is none for us. It sends nothing more before the request."""
        ours = hello(folder)
        greeting = {"hello": ours, "folder": str(folder), "pid": os.getpid()}
        self._connection.sendall(to_line(greeting))
        line = b""
        while not line.endswith(b"\n") and len(line) < GREETING:
            part = self._connection.recv(65_536)
            if not part:
                break
            line += part
        return difference(ours, greeting_from(line))

    def cancel(self) -> None:
        """Let the turn end within one round; its Finished still comes."""
        with contextlib.suppress(OSError):
            self._connection.send(to_line({"cancel": True}))

    def __iter__(self) -> Iterator[Event]:
        """Leaving the loop abandons the turn. Raises what the turn failed with."""
        self._connection.settimeout(SILENT_S)
        try:
            with self._connection.makefile("rb") as incoming:
                while True:
                    event = _checked(_next_line(incoming))
                    if event is not None:
                        yield event
                    if isinstance(event, Finished):
                        return
        finally:
            self._connection.close()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        self._connection.setblocking(False)
        try:
            incoming, outgoing = await asyncio.open_unix_connection(
                sock=self._connection, limit=MAX_LINE
            )
        except BaseException:
            self._connection.close()
            raise
        try:
            while True:
                try:
                    line = await asyncio.wait_for(incoming.readline(), SILENT_S)
                except TimeoutError:
                    raise EngineError(_SILENT) from None
                except OSError:
                    line = b""
                event = _checked(line)
                if event is not None:
                    yield event
                if isinstance(event, Finished):
                    return
        finally:
            outgoing.close()


def _strange(error: Exception) -> Strange:
    if isinstance(error, OSError):
        return Strange(f"the background engine does not respond: {error}")
    return Strange(
        f"the process listening at {socket_path()} does not respond like an engine: {error}"
    )


def _next_line(incoming: BinaryIO) -> bytes:
    try:
        return incoming.readline(MAX_LINE)
    except TimeoutError:
        raise EngineError(_SILENT) from None
    except OSError:
        return b""


def _checked(line: bytes) -> Event | None:
    """The event in ``line``; None for a sign of life. Raises what the turn failed with."""
    if not line.endswith(b"\n"):
        raise Unreadable(_GONE)
    if line == ALIVE:
        return None
    event = event_from(line)
    if isinstance(event, Failed):
        raise event.error
    return event
