"""The ASGI app."""

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..engine.engine import Engine, shared_engine
from . import errors
from .chat_completions import chat_completions
from .completions import completions
from .errors import ApiError
from .gateway import Gateway
from .guard import Guard
from .health import Health, health, recent
from .keys import read_keys
from .messages import count, messages
from .metrics import metrics
from .models import model, models
from .openapi import openapi
from .responses import responses

PAGE = Path(__file__).parent / "dashboard.html"


def create_app(
    engine: Engine | None = None,
    *,
    require_key: bool = True,
    hosts: Sequence[str] = (),
    max_waiting: int = 64,
    timeout_s: float = 0,
) -> Starlette:
    """``hosts``: names besides localhost by which clients may call this machine. Without
    ``require_key`` whoever reaches it is served. ``timeout_s``: what a turn may take, its waiting
    included; 0 for any time."""
    engine = engine or shared_engine()
    keys = read_keys() if require_key else []
    if require_key and not keys:
        raise ValueError("there is no API key yet; create one with 'llm mtplx serve --require-key'")
    app = Starlette(
        routes=[
            Route("/", page),
            Route("/health", health),
            Route("/health/recent", recent),
            Route("/metrics", metrics),
            Route("/openapi.json", openapi),
            Route("/v1/models", models),
            Route("/v1/models/{model:path}", model),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, keys=keys, hosts=hosts)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            Exception: _surprise,
        },
    )
    app.state.gateway = Gateway(engine, max_waiting, timeout_s)
    app.state.health = Health(engine)
    return app


async def page(http: HttpRequest) -> Response:
    return FileResponse(
        PAGE, headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
    )


async def _api_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return errors.response(http.url.path, error)


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = ApiError(error.status_code, str(error.detail), headers=dict(error.headers or {}))
    return errors.response(http.url.path, told)


async def _surprise(http: HttpRequest, error: Exception) -> Response:
    return errors.response(http.url.path, ApiError(500, f"The server failed: {error!r}"))
