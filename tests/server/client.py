"""Requests as they stand, for what the real clients would never send."""

import asyncio
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp

TIMEOUT_S = 120


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


def ask(
    app: ASGIApp,
    path: str,
    body: dict[str, Any] | None = None,
    sent: Callable[[bytes], None] = lambda part: None,
    **headers: str,
) -> Answer:
    """One request to ``app`` in this process: a POST where there is a body. ``sent`` sees the parts
    of the answer as they come."""
    began: dict[str, Any] = {}
    parts: list[bytes] = []
    incoming = iter([{"type": "http.request", "body": json.dumps(body or {}).encode()}])

    async def receive() -> dict[str, Any]:
        message = next(incoming, None)
        if message is None:
            await asyncio.Event().wait()
        return message or {}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            began.update(message)
            return
        parts.append(message.get("body", b""))
        sent(parts[-1])

    told = {"host": "localhost", **headers}
    scope = {
        "type": "http",
        "method": "POST" if body else "GET",
        "path": path,
        "query_string": b"",
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in told.items()],
    }
    asyncio.run(app(scope, receive, send))
    answered = {k.decode().lower(): v.decode() for k, v in began["headers"]}
    return Answer(began["status"], answered, b"".join(parts))


class Client:
    def __init__(self, address: str) -> None:
        self.address = address

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=TIMEOUT_S)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = self.connect()
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path, raw, headers or {})
        answer = connection.getresponse()
        told = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        connection.close()
        return told

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: bytes | dict[str, Any], **headers: str) -> Answer:
        return self.send("POST", path, body, headers)

    def begin(self, path: str, body: dict[str, Any]) -> http.client.HTTPConnection:
        """A request whose answer is not waited for."""
        connection = self.connect()
        connection.request("POST", path, json.dumps(body).encode())
        return connection
