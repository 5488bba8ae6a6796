"""GET /v1/models"""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ..catalog.entries import Entry, list_entries
from .gateway import Gateway


async def models(http: HttpRequest) -> Response:
    """Those that are on this machine. Anthropic's clients say that they are such; their list has
    another shape."""
    entries = [entry for entry in list_entries()[0] if entry.here]
    if "anthropic-version" in http.headers:
        names = [entry.model_id for entry in entries]
        ends = {"first_id": names[0], "last_id": names[-1], "has_more": False}
        return JSONResponse({"data": [_anthropic(entry) for entry in entries], **ends})
    return JSONResponse({"object": "list", "data": [_openai(entry) for entry in entries]})


async def model(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    entry = gateway.entry(http.path_params["model"])
    described = _anthropic if "anthropic-version" in http.headers else _openai
    return JSONResponse(described(entry))


def _openai(entry: Entry) -> dict[str, Any]:
    return {"id": entry.model_id, "object": "model", "created": 0, "owned_by": "llm-mtplx"}


def _anthropic(entry: Entry) -> dict[str, Any]:
    return {
        "type": "model",
        "id": entry.model_id,
        "display_name": entry.model_id,
        "created_at": "1970-01-01T00:00:00Z",
    }
