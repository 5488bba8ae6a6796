"""How much of a request is taken in, and where what grows with its size is done."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from ..catalog.architecture import text_config
from ..catalog.entries import Entry, list_entries
from ..errors import MtplxError
from .errors import ApiError
from .guard import MAX_BODY

ALWAYS = 4 << 20  # bytes that are read for every model
BYTES_PER_TOKEN = 32  # markup and escapes included, and reasoning that templates leave out
DEFAULT_WINDOW = 262_144  # tokens, of a model that does not say

P = ParamSpec("P")
T = TypeVar("T")

# One at a time: what is parsed takes many times the RAM of its text.
_apart = ThreadPoolExecutor(1, "mtplx-intake")


async def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Off the event loop, which goes on answering others meanwhile."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_apart, lambda: function(*args, **kwargs))


async def received(request: Request) -> bytes:
    """The body, no larger than what the largest context window of a model here can hold. It is
    refused before it is read where the client says how large it is."""
    limit = ALWAYS
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        limit = await apart(_limit)
        _check(int(length), limit)
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            limit = await apart(_limit)
            _check(len(raw), limit)
    return bytes(raw)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise ApiError(
            413,
            f"The request is larger than {limit:,} bytes, more than any model here can read: its "
            "prompt is too long. Shorten it, or start a new conversation.",
        )


def _limit() -> int:
    window = max(_window(entry) for entry in list_entries()[0])
    return min(max(ALWAYS, BYTES_PER_TOKEN * window), MAX_BODY)


def _window(entry: Entry) -> int:
    """Tokens of context at most; 0 for a model that is not here."""
    try:
        config = json.loads((entry.path / "config.json").read_bytes())
        window = text_config(config).get("max_position_embeddings", DEFAULT_WINDOW)
    except (MtplxError, OSError, ValueError, AttributeError, RecursionError):
        return 0
    return window if isinstance(window, int) else DEFAULT_WINDOW
