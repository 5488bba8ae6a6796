"""Where a turn runs: on this user's resident engine if there is one, else in this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

from ..debug import debug
from ..engine.engine import shared_engine, started_engine
from ..engine.streams import EventStream
from ..errors import EngineError
from ..protocol import Event, Request
from .client import Attachment, NoEngine, Strange, connect
from .launch import keep_alive_options, start_engine, wanted
from .wire import Unreadable

logger = logging.getLogger(__name__)

_told: set[str] = set()  # lines that this process has printed


def attach(request: Request) -> Attachment | None:
    """The resident engine, if there is one that answers as this process would.

    Under LLM_MTPLX_KEEP_ALIVE one is started where none is. A process that has begun to use its
    own engine stays with it.
    """
    if started_engine() is not None:
        return None
    try:
        try:
            connection = connect()
        except NoEngine:
            if not wanted():
                raise
            start_engine(keep_alive_options())
            connection = connect()
        return Attachment(connection, request)
    except Strange as error:
        _say(f"the model is loaded in this process: {error}")
    except NoEngine as error:
        debug(f"the model is loaded in this process: {error}")
    except (EngineError, OSError) as error:
        _say(
            "the background engine could not be started; the model is loaded in this "
            f"process: {error}"
        )
    return None


def _say(line: str) -> None:
    """Once a process."""
    if line not in _told:
        _told.add(line)
        logger.warning("%s", line)


class Attached:
    """A turn on the resident engine. If that ends or talks nonsense before its first event, the
    turn runs in this process."""

    def __init__(self, attachment: Attachment, request: Request, stays: bool) -> None:
        self._source: Attachment | EventStream = attachment
        self._request = request
        self._stays = stays
        self._cancelled = False

    def cancel(self) -> None:
        """Let the turn end within one round; its Finished still comes."""
        self._cancelled = True
        self._source.cancel()

    def __iter__(self) -> Iterator[Event]:
        """Leaving the loop abandons the turn. Raises what the turn failed with."""
        begun = False
        try:
            for event in self._source:
                begun = True
                yield event
            return
        except Unreadable as error:
            if begun or self._cancelled:
                raise
            _say(f"the model is loaded in this process: {error}")
        self._source = _here(self._request, self._stays)
        yield from self._source


def stream(request: Request, stays: bool) -> EventStream | Attached:
    """The events of a turn, which can be cancelled. For a reader in a thread.

    ``stays``: this process will have more turns of the conversation.
    """
    attached = attach(request)
    if attached is not None:
        return Attached(attached, request, stays)
    return _here(request, stays)


def _here(request: Request, stays: bool) -> EventStream:
    engine = shared_engine()
    engine.stays |= stays
    return engine.stream(request)


async def astream(request: Request) -> AsyncIterator[Event]:
    """The events of a turn, for a running event loop. Leaving the loop abandons the turn."""
    try:
        attached = await asyncio.to_thread(attach, request)
    except RuntimeError:  # the interpreter is ending: no thread can be had
        attached = attach(request)
    if attached is not None:
        begun = False
        try:
            async with aclosing(attached.__aiter__()) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except Unreadable as error:
            if begun:
                raise
            _say(f"the model is loaded in this process: {error}")
    async with aclosing(shared_engine().astream(request).__aiter__()) as here:
        async for each in here:
            if each is not None:
                yield each
