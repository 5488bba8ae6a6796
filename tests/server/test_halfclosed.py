"""Clients that close their side once they have asked get their answer; those that left do not."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from .client import TIMEOUT_S, Client
from .test_service import CHAT, ENDLESS, HELLO, wait_until_idle


def connect(server: Client) -> socket.socket:
    where = urlsplit(server.address)
    assert where.hostname and where.port
    return socket.create_connection((where.hostname, where.port), timeout=TIMEOUT_S)


def request(body: dict, version: str = "1.1", path: str = CHAT) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def everything(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def final(raw: bytes) -> tuple[bytes, bytes]:
    """Head and body of the last response in ``raw``."""
    while raw.startswith(b"HTTP/1.1 100"):
        raw = raw.partition(b"\r\n\r\n")[2]
    head, _, body = raw.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_comes(server: Client, stream: bool, version: str) -> None:
    with connect(server) as connection:
        connection.sendall(request({**HELLO, "stream": stream}, version))
        connection.shutdown(socket.SHUT_WR)
        head, body = final(everything(connection))
    assert b" 200 " in head.splitlines()[0]
    assert (b"[DONE]" if stream else b'"usage"') in body


def test_after_an_earlier_request_on_the_connection(server: Client) -> None:
    with connect(server) as connection:
        for path in ("/health", "/v1/models"):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200 and answer.read()
        connection.sendall(request(HELLO))
        connection.shutdown(socket.SHUT_WR)
        head, body = final(everything(connection))
    assert b" 200 " in head and b'"usage"' in body


def test_half_a_request_is_none(server: Client) -> None:
    with connect(server) as connection:
        connection.sendall(request(HELLO)[:-3])
        connection.shutdown(socket.SHUT_WR)
        assert b" 200 " not in everything(connection)
    wait_until_idle(server)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_then_leaves_ends_its_turn(server: Client, stream: bool) -> None:
    connection = connect(server)
    connection.sendall(request({**ENDLESS, "stream": stream}))
    connection.shutdown(socket.SHUT_WR)
    while not server.get("/health").json["engine"]["running"]:
        pass
    connection.close()
    wait_until_idle(server)
    assert server.get("/health/recent").json["recent"][0]["finish_reason"] == "interrupted"
