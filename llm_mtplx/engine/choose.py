"""Where a turn runs: on this user's resident engine if there is one, else in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from ..debug import debug
from ..errors import EngineError
from .attach import Attachment, NoEngine, connect
from .engine import shared_engine, started_engine
from .keepalive import keep_alive_options, start_engine, wanted
from .protocol import Event, Request
from .streams import AsyncEventStream, EventStream


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
    except (NoEngine, EngineError) as error:
        debug(f"the model is loaded in this process: {error}")
        return None


def stream(request: Request, stays: bool) -> EventStream | Attachment:
    """The events of a turn, which can be cancelled. For a reader in a thread.

    ``stays``: this process will have more turns of the conversation.
    """
    attached = attach(request)
    if attached is not None:
        return attached
    engine = shared_engine()
    engine.stays |= stays
    return engine.stream(request)


async def astream(request: Request) -> AsyncIterator[Event]:
    """The events of a turn, for a running event loop. Leaving the loop abandons the turn."""
    attached = await asyncio.to_thread(attach, request)
    source: Attachment | AsyncEventStream = attached or shared_engine().astream(request)
    async with aclosing(source.__aiter__()) as events:
        async for event in events:
            if event is not None:
                yield event
