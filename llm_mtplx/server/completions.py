"""POST /v1/completions: a prompt as it stands, without a template."""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..errors import MtplxError
from ..protocol import Event, Finished, Reasoning, Request, Text, Token
from .body import read
from .errors import of_turn, openai_shape
from .gateway import Answer, Gateway, hint
from .logprobs import of_completion
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
    logprobs: int | None = Field(None, ge=0, le=5)
    stream_options: StreamOptions = StreamOptions()
    user: str | None = None


async def completions(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    gateway.check_room()
    body = await read(http, Completion, IGNORED)
    entry = gateway.entry(body.model)
    request = Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=[],
        prompt=body.prompt if isinstance(body.prompt, str) else body.prompt[0],
        stop=stops(body.stop),
        max_tokens=body.max_tokens,
        logprobs=body.logprobs,
        **body.sampling(),
    )
    live = gateway.begin(http, request, hint(http, None, body.user))
    return await live.answer(_About(entry.model_id, body), body.stream)


class _About:
    """One completion's id, model and time, and what is to be told of it."""

    def __init__(self, model: str, body: Completion) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._with_usage = body.stream_options.include_usage
        self._with_logprobs = body.logprobs is not None

    def whole(self, answer: Answer) -> dict[str, Any]:
        finish = OPENAI_FINISH[answer.finished.finish_reason]
        told = self._logprobs(answer.tokens, len(answer.reasoning))
        return {
            **self._head,
            "choices": [_choice(answer.reasoning + answer.text, finish, told)],
            "usage": openai_usage(answer.finished),
        }

    async def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]:
        reasoned = 0
        try:
            async for event in events:
                if event is None:
                    yield ALIVE
                elif isinstance(event, Reasoning):
                    reasoned += len(event.text)
                    yield frame({**self._head, "choices": [_choice(event.text)]})
                elif isinstance(event, Text):
                    told = self._logprobs(event.tokens, reasoned)
                    yield frame({**self._head, "choices": [_choice(event.text, None, told)]})
                elif isinstance(event, Finished):
                    finish = OPENAI_FINISH[event.finish_reason]
                    yield frame({**self._head, "choices": [_choice("", finish)]})
                    if self._with_usage:
                        yield frame({**self._head, "choices": [], "usage": openai_usage(event)})
        except MtplxError as error:
            yield frame(openai_shape(of_turn(error)))
        else:
            yield DONE  # never after an error: who looks at nothing else must not take it for whole

    def _logprobs(self, tokens: Sequence[Token], offset: int) -> dict[str, Any] | None:
        return of_completion(tokens, offset) if self._with_logprobs else None


def _choice(
    text: str, finish: str | None = None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
