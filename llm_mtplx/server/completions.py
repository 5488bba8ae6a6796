"""POST /v1/completions: a prompt as it stands, without a template."""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..engine.protocol import Event, Finished, Reasoning, Request, Text
from ..errors import MtplxError
from .body import read
from .errors import of_turn, openai_shape
from .gateway import Answer, Gateway, hint
from .sampling import Sampling, Stops, StreamOptions, stops
from .sse import ALIVE, DONE, frame
from .usage import OPENAI_FINISH, openai_usage

IGNORED = ("service_tier", "store")

Prompt = Annotated[str, Field(min_length=1)]


class Completion(Sampling):
    prompt: Prompt | Annotated[list[Prompt], Field(min_length=1, max_length=1)]
    max_tokens: int = Field(16, ge=1)
    stop: Stops = None
    n: Literal[1] = 1
    best_of: Literal[1] = 1
    echo: Literal[False] = False
    stream_options: StreamOptions = StreamOptions()
    user: str | None = None


async def completions(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    body = await read(http, Completion, IGNORED)
    entry = gateway.entry(body.model)
    request = Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=[],
        prompt=body.prompt if isinstance(body.prompt, str) else body.prompt[0],
        stop=stops(body.stop),
        max_tokens=body.max_tokens,
        **body.sampling(),
    )
    live = gateway.begin(http, request, hint(http, None, body.user))
    return await live.answer(_About(entry.model_id, body.stream_options.include_usage), body.stream)


class _About:
    """One completion's id, model and time, and what is to be told of it."""

    def __init__(self, model: str, with_usage: bool) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._with_usage = with_usage

    def whole(self, answer: Answer) -> dict[str, Any]:
        finish = OPENAI_FINISH[answer.finished.finish_reason]
        return {
            **self._head,
            "choices": [_choice(answer.reasoning + answer.text, finish)],
            "usage": openai_usage(answer.finished),
        }

    async def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]:
        try:
            async for event in events:
                if event is None:
                    yield ALIVE
                elif isinstance(event, Text | Reasoning):
                    yield frame({**self._head, "choices": [_choice(event.text)]})
                elif isinstance(event, Finished):
                    finish = OPENAI_FINISH[event.finish_reason]
                    yield frame({**self._head, "choices": [_choice("", finish)]})
                    if self._with_usage:
                        yield frame({**self._head, "choices": [], "usage": openai_usage(event)})
        except MtplxError as error:
            yield frame(openai_shape(of_turn(error)))
        yield DONE


def _choice(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
