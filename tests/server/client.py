"""Requests as they stand, for what the real clients would never send."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 120


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


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
