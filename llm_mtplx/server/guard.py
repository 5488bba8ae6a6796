"""Who may ask: checked before any route, for every one of them."""

import asyncio
import base64
import ipaddress
import re
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .errors import ApiError
from .guesses import Guesses
from .ignored import HEADER, Ignored
from .keys import matching, salt

MAX_BODY = 64 << 20  # bytes

_HOST = re.compile(r"(?:\[(?P<address>[^\[\]@/\s]+)\]|(?P<name>[^\[\]:@/,\s]+))(?::[0-9]*)?")


class Guard:
    """Host and Origin against pages of others and DNS rebinding, the API key, and sizes.

    A name that is not the machine's own could have been bound to its address by anybody; an
    address could not.
    """

    def __init__(self, app: ASGIApp, keys: list[str], hosts: Sequence[str]) -> None:
        self._app = app
        self._keys = keys
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        state = scope.setdefault("state", {})
        try:
            state["salt"] = self._check(Headers(scope=scope))
        except ApiError as error:
            if error.status == 401 and _offered(Headers(scope=scope)):
                error = await self._slowed(scope, error)
            await errors.response(scope["path"], error)(scope, receive, send)
            return

        async def send_named(message: Message) -> None:
            """What of the request was ignored is known by the time its answer begins."""
            ignored: Ignored | None = state.get("ignored")
            if message["type"] == "http.response.start" and ignored is not None and ignored.names:
                MutableHeaders(scope=message)[HEADER] = ignored.header
            await send(message)

        await self._app(scope, receive, send_named)

    def _check(self, headers: Headers) -> str:
        """The salt of the key; empty where none is asked for."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise ApiError(
                403, f"The host {host!r} is not served. Allow it with 'serve --allow-host'."
            )
        origin = headers.get("origin")
        if origin is not None and not _is_at(origin, host):
            raise ApiError(403, f"Requests from pages of {origin!r} are not allowed.")
        key = self._key(headers)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > MAX_BODY:
            raise ApiError(413, f"The request is larger than {MAX_BODY:,} bytes.")
        return key

    async def _slowed(self, scope: Scope, error: ApiError) -> ApiError:
        """A wrong key is answered late; a right one never is, whoever else guesses."""
        client = scope.get("client")
        delay = self._guesses.delay(client[0] if client else "", time.monotonic())
        if delay is None:
            wait = {"Retry-After": str(round(self._guesses.LONGEST_S))}
            return ApiError(429, "Too many wrong API keys.", headers=wait)
        if delay:
            await asyncio.sleep(delay)
        return error

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found["address"] or found["name"]).lower()
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _key(self, headers: Headers) -> str:
        if not self._keys:
            return ""
        key = matching(_offered(headers), self._keys)
        if key is None:
            raise ApiError(
                401,
                "The API key is missing or wrong.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": 'Basic realm="llm-mtplx"'},
            )
        return salt(key)


def _is_at(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _offered(headers: Headers) -> str:
    """As OpenAI's clients give it, as Anthropic's do, or as a browser asks for it: the password,
    with any user name."""
    if "x-api-key" in headers:
        return headers["x-api-key"]
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return value.strip()
    try:
        return base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return ""
