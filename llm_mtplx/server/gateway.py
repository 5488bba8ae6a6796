"""From a route to the engine: which model, whose turn, how many may wait, who still listens."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..catalog.entries import Entry, find_entry
from ..engine.engine import Engine
from ..engine.streams import AsyncEventStream
from ..errors import Interrupted, MtplxError
from ..protocol import (
    Event,
    Finished,
    Notice,
    Progress,
    Reasoning,
    Request,
    Restored,
    Text,
    Token,
    ToolCall,
)
from ..settings import is_logging
from .errors import ApiError, of_turn

ALIVE_S = 5.0  # between signs of life on a stream
HINTS = ("x-session-id", "x-session-affinity")


@dataclass
class Answer:
    """A whole answer."""

    finished: Finished
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)  # of the text, where asked for


class About(Protocol):
    """One API's way of telling a turn."""

    def whole(self, answer: Answer) -> dict[str, Any]: ...

    def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]: ...


class Gateway:
    def __init__(self, engine: Engine, max_waiting: int, timeout_s: float) -> None:
        """``timeout_s``: what a turn may take, its waiting included; 0 for any time."""
        self.engine = engine
        self._max_waiting = max_waiting
        self._timeout_s = timeout_s

    def entry(self, model: str) -> Entry:
        entry = find_entry(model)
        if entry is not None:
            return _here(entry)
        raise ApiError(
            404,
            f"The model {model!r} does not exist here; GET /v1/models lists the available models.",
            param="model",
            code="model_not_found",
        )

    def check_room(self) -> None:
        """Also before a body is read: nothing is done for who cannot be answered."""
        if self.engine.waiting >= self._max_waiting:
            raise ApiError(
                429,
                f"{self._max_waiting} requests are already waiting.",
                code="queue_full",
                headers={"Retry-After": str(self._retry_after())},
            )

    def begin(self, http: HttpRequest, request: Request, hint: str | None) -> "Live":
        """Queue a turn. ``hint`` names its conversation where the client has said it."""
        self.check_room()
        salt = http.scope["state"]["salt"]
        host = http.client.host if http.client else ""
        request = replace(
            request,
            salt=salt,
            # Others' conversations, and llm's own, have other names.
            conversation=f"api:{salt}:{hint}" if hint else None,
            persist=is_logging(),
        )
        try:
            client = f"{salt} {hint or host}"
            events = self.engine.astream(request, client, ALIVE_S, self._timeout_s)
        except MtplxError as error:
            raise of_turn(error) from None
        return Live(events, http)

    def _retry_after(self) -> int:
        """Seconds until about a place is free, by what turns have taken so far."""
        totals = self.engine.observer.totals
        turns = sum(totals.turns.values()) or 1
        return max(1, round((totals.prefill_s + totals.decode_s) / turns))


def _here(entry: Entry) -> Entry:
    """``entry`` with its folder, which is looked for once."""
    try:
        return entry._replace(folder=entry.path)
    except MtplxError as error:
        raise ApiError(404, str(error), param="model", code="model_not_found") from None


def hint(http: HttpRequest, metadata: Mapping[str, Any] | None, *others: str | None) -> str | None:
    """The name of the conversation, if the client tells one."""
    told = [http.headers.get(name) for name in HINTS]
    for name in ("session_id", "conversation_id", "chat_id", "user_id"):
        value = (metadata or {}).get(name)
        told.append(value if isinstance(value, str) else None)
    return next((value for value in [*told, *others] if value), None)


async def _complete(events: AsyncEventStream) -> AsyncGenerator[Event | None, None]:
    """The events; an answer that was cut off ends with an error, whatever cut it."""
    async with contextlib.aclosing(events.__aiter__()) as reading:
        async for event in reading:
            if isinstance(event, Finished) and event.finish_reason == "interrupted":
                raise Interrupted("The answer was cut off. Ask again.")
            yield event


class Live:
    """A turn whose answer somebody waits for; it ends within a round if they leave."""

    def __init__(self, events: AsyncEventStream, http: HttpRequest) -> None:
        self._events = events
        self._reading = _complete(events)
        self._http = http

    async def answer(self, about: "About", stream: bool) -> Response:
        """The turn as a stream of frames or as one document."""
        if stream:
            return await self.stream(about.frames)
        return JSONResponse(about.whole(await self.whole()))

    async def whole(self) -> Answer:
        text, reasoning, calls, tokens = [], [], [], list[Token]()
        async with self._watched():
            async for event in self._reading:
                if isinstance(event, Text):
                    text.append(event.text)
                    tokens += event.tokens
                elif isinstance(event, Reasoning):
                    reasoning.append(event.text)
                elif isinstance(event, ToolCall):
                    calls.append(event)
                elif isinstance(event, Finished):
                    return Answer(event, "".join(text), "".join(reasoning), calls, tokens)
        raise AssertionError("a turn ends with Finished or an error")

    async def stream(
        self, frames: Callable[[AsyncIterator[Event | None]], AsyncGenerator[bytes, None]]
    ) -> StreamingResponse:
        """What ``frames`` makes of the events; None among them asks for a sign of life.

        What fails before there is anything to tell is an answer of its own; afterwards it is up
        to ``frames``.
        """
        begun: list[Event | None] = []
        async with self._watched():
            async for event in self._reading:
                if isinstance(event, Progress | Notice):
                    continue
                begun.append(event)
                if not isinstance(event, Restored):
                    break

        async def events() -> AsyncIterator[Event | None]:
            for event in begun:
                yield event
            if not isinstance(begun[-1], Finished):
                async for event in self._reading:
                    yield event

        async def sent() -> AsyncIterator[bytes]:
            try:
                async for frame in frames(events()):
                    yield frame
            finally:
                self._events.abandon()

        return StreamingResponse(
            sent(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._abandon_when_gone())
        try:
            yield
        except MtplxError as error:
            raise of_turn(error) from None
        finally:
            watching.cancel()

    async def _abandon_when_gone(self) -> None:
        receive: Callable[[], Awaitable[Any]] = self._http.receive
        while (await receive())["type"] != "http.disconnect":
            pass
        self._events.abandon()
