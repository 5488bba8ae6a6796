"""Programs that are driven over their standard input and output, as editors drive them: one
JSON-RPC message a line. What their command lines print whole comes piece by piece there."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from .conftest import running

Message = dict[str, Any]


class Rpc:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._in, self._out = process.stdin, process.stdout
        self._calls = 0

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def begin(self, method: str, **params: Any) -> int:
        """A call's id; its answer comes among what is read next."""
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        return self._calls

    def call(self, method: str, **params: Any) -> Message:
        return self.answer(self.begin(method, **params))

    def answer(self, call: int) -> Message:
        """The result of a call."""
        message = self.read(lambda m: m.get("id") == call and "method" not in m)
        assert "result" in message, message
        result: Message = message["result"]
        return result

    def read(self, wanted: Callable[[Message], bool]) -> Message:
        """The next message that is ``wanted``."""
        for line in self._out:
            message: Message = json.loads(line)
            if wanted(message):
                return message
        raise AssertionError("it ended before it said what was waited for")

    def read_text(self, piece_of: Callable[[Message], str | None], length: int) -> list[str]:
        """The next pieces of an answer, until they have ``length`` characters."""
        pieces: list[str] = []
        while len("".join(pieces)) < length:
            message = self.read(lambda m: piece_of(m) is not None)
            pieces.append(piece_of(message) or "")
        return pieces

    def _send(self, message: Message) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._in.flush()


@contextlib.contextmanager
def driven(command: list[str]) -> Iterator[Rpc]:
    with running(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield Rpc(process)
