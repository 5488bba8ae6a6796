"""GET /openapi.json, made of what the routes check."""

from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from .body import Body
from .chat_completions import ChatCompletion
from .completions import Completion
from .messages import CountTokens, CreateMessage
from .responses import CreateResponse

POSTS: dict[str, type[Body]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/responses": CreateResponse,
    "/v1/messages": CreateMessage,
    "/v1/messages/count_tokens": CountTokens,
}
GETS = ("/health", "/metrics", "/v1/models")

_ANSWERS = {
    "200": "An answer, or a stream of server-sent events",
    "400": "The request was refused; the message names the field",
    "401": "The API key is missing or wrong",
    "403": "The host or origin is not allowed",
    "404": "The model does not exist",
    "413": "The request is too large",
    "429": "Too many requests are waiting",
    "500": "The engine failed",
    "503": "The answer was cut off because the server is stopping",
    "504": "The answer took longer than the server allows",
}


async def openapi(http: HttpRequest) -> Response:
    return JSONResponse(document())


@cache
def document() -> dict[str, Any]:
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in POSTS.values()],
        ref_template="#/components/schemas/{model}",
    )
    answers = {status: {"description": meaning} for status, meaning in _ANSWERS.items()}
    paths: dict[str, Any] = {path: {"get": {"responses": answers}} for path in GETS}
    for path, kind in POSTS.items():
        schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths[path] = {"post": {"requestBody": body, "responses": answers}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "llm-mtplx", "version": version("llm-mtplx")},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }
