"""What goes wrong, in the shape that each API has for it."""

import json
from typing import Any

from starlette.responses import Response

from ..errors import EngineError, Interrupted, MtplxError, PromptTooLong, TimedOut

_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
}
_OPENAI_KINDS = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "server_error",
}


class ApiError(Exception):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}
        self.details = details  # in Anthropic's shape alone
        self.anthropic_message = message


class TooLong(ApiError):
    """A prompt that is too long, in the words by which clients know to shorten it."""

    def __init__(self, error: PromptTooLong) -> None:
        super().__init__(
            400,
            f"This model's maximum context length is {error.limit + 1} tokens. However, your "
            f"messages resulted in {error.tokens} tokens. Please reduce the length of the "
            f"messages: a prompt takes at most {error.limit} tokens, as the answer needs one.",
            param="messages",
            code="context_length_exceeded",
        )
        self.anthropic_message = (
            f"prompt is too long: {error.tokens} tokens > {error.limit} maximum"
        )


def of_turn(error: MtplxError) -> ApiError:
    """What a turn failed with: the engine's fault or the request's."""
    if isinstance(error, PromptTooLong):
        return TooLong(error)
    if isinstance(error, TimedOut):
        return ApiError(504, str(error), code="timeout")
    if isinstance(error, Interrupted):
        return ApiError(503, str(error), code="interrupted")
    return ApiError(500 if isinstance(error, EngineError) else 400, str(error))


def openai_shape(error: ApiError) -> dict[str, Any]:
    kind = _OPENAI_KINDS.get(error.status, "invalid_request_error")
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.code,
        }
    }


def anthropic_shape(error: ApiError) -> dict[str, Any]:
    kind = _ANTHROPIC_KINDS.get(error.status, "invalid_request_error")
    told: dict[str, Any] = {"type": kind, "message": error.anthropic_message}
    if error.details is not None:
        told["details"] = error.details
    return {"type": "error", "error": told}


def shape(path: str, error: ApiError) -> dict[str, Any]:
    if path.startswith("/v1/messages"):
        return anthropic_shape(error)
    told = openai_shape(error)
    if isinstance(error, TooLong) and path != "/v1/chat/completions":
        told["error"]["param"] = "input" if path == "/v1/responses" else "prompt"
    return told


def response(path: str, error: ApiError) -> Response:
    return Response(
        json.dumps(shape(path, error)),
        error.status,
        media_type="application/json",
        headers=error.headers,
    )
