"""A turn on its way through the engine, and its events for one reader."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator

from ..errors import Interrupted, TimedOut
from ..protocol import Event, Failed, Finished, Request


class Job:
    """A request on its way through the engine. ``sink`` is called on the engine's thread, and by
    ``stop`` on any other."""

    def __init__(self, request: Request, sink: Callable[[Event], None]) -> None:
        self.request = request
        self.sink = sink
        self.abandoned = False  # nobody waits for the end any more
        self._expired = False
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop within one round. Harmless after the end."""
        self._cancelled.set()

    def abandon(self) -> None:
        """As ``cancel``, and nothing of the answer is kept unless it has ended already."""
        self.abandoned = not self._expired
        self._cancelled.set()

    def expire(self) -> None:
        """As ``cancel``, and the answer so far is kept although nobody waits for the end."""
        self._expired = True
        self._cancelled.set()

    def stop(self) -> None:
        """As ``expire``, and the reader gets an error at once: an answer that is cut off must not
        look whole."""
        self.expire()
        self.sink(Failed(Interrupted("The answer was cut off: the engine is stopping. Ask again.")))

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()


class EventStream:
    """The events of one turn, for one reader; the last is Finished."""

    def __init__(self, job: Job, events: "queue.SimpleQueue[Event]") -> None:
        self._job = job
        self._events = events

    def cancel(self) -> None:
        """Let the turn end within one round; its Finished still comes."""
        self._job.cancel()

    def __iter__(self) -> Iterator[Event]:
        """Leaving the loop abandons the turn. Raises what the turn failed with."""
        try:
            while True:
                event = self._events.get()
                if isinstance(event, Failed):
                    raise event.error
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._job.abandon()


class AsyncEventStream:
    """The events of one turn, for one reader on the event loop it was started on."""

    def __init__(self, alive_s: float | None, timeout_s: float | None = None) -> None:
        """Every ``alive_s`` seconds there is a None among the events. After ``timeout_s`` the turn
        fails, wherever it is."""
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._alive_s = alive_s
        self._timeout_s = timeout_s
        self._timer = self._loop.call_later(timeout_s, self.expire) if timeout_s else None
        self.job: Job | None = None

    def sink(self, event: Event) -> None:
        # A loop that was closed has nobody left who listens.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def cancel(self) -> None:
        """Let the turn end within one round; its Finished still comes."""
        if self.job is not None:
            self.job.cancel()

    def abandon(self) -> None:
        if self.job is not None:
            self.job.abandon()

    def expire(self) -> None:
        """Its time is over: the reader need not wait for the round that runs."""
        if self.job is not None:
            self.job.expire()
        limit = f" of {self._timeout_s:g} seconds" if self._timeout_s else ""
        error = TimedOut(f"The answer was not complete within the time limit{limit}.")
        self._events.put_nowait(Failed(error))

    async def __aiter__(self) -> AsyncGenerator[Event | None, None]:
        """Leaving the loop abandons the turn. Raises what the turn failed with."""
        self._show_life()
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Failed):
                    raise event.error
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._alive_s = None
            if self._timer is not None:
                self._timer.cancel()
            self.abandon()

    def _show_life(self) -> None:
        if self._alive_s is not None:
            self._loop.call_later(self._alive_s, self._events.put_nowait, None)
            self._loop.call_later(self._alive_s, self._show_life)
