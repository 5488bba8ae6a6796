"""A resident engine against loading anew, and the server against the engine and mlx_lm.server.

    uv run python -m benchmarks.serve --out benchmarks/results/serve.json

Everything runs as a user would start it, on the bundled model, greedily. First tokens are what a
client sees: the first byte of an answer on stdout, or the first piece of text on a stream.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.attach import Attachment, connect
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.engine.facts import facts
from llm_mtplx.engine.protocol import Finished, Request, Text

from .decode import machine

MODEL = "mtplx-demo"
LLM = [sys.executable, "-m", "llm"]
STORY = [{"role": "user", "content": "Count from 1 to 40."}]
SYSTEM = (
    "You are a helpful assistant. You answer in short and polite sentences. You are friendly, "
    "you are patient, and you say so when you do not know something. You never make things up."
)
QUESTIONS = (
    "What is the capital of France?",
    "What is the capital of Japan?",
    "What is my name?",
    "Count from 1 to 5.",
    "What is the capital of Italy?",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--peer-clients", type=int, default=4)
    parser.add_argument("--peer-turns", type=int, default=8)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLM_USER_PATH"] = home
        report = {"machine": machine(), "versions": facts()["versions"]}
        report["calls"] = calls(args.repeats)
        with ours() as address:
            report["per_token"] = per_token(address, args.repeats)
            report["many"] = crowd(address, MODEL, args.clients, args.turns)
            with theirs() as peer:
                report["peer"] = against(address, peer, args.peer_clients, args.peer_turns)
    print(json.dumps(report, indent=2))
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n")


@contextlib.contextmanager
def ours(*options: str) -> Iterator[str]:
    command = [*LLM, "mtplx", "serve", "--port", "0", "--max-waiting", "1000", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().split(" at ")[-1].split(". ")[0]
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def theirs() -> Iterator[str]:
    """mlx_lm.server, which loads its model at the first request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlx_lm", "server", "--model", str(MODEL_DIR), "--port", str(port)],
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/health").close()
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def first_output_s(*args: str) -> float:
    """From starting llm to the first byte it writes."""
    began = time.perf_counter()
    process = subprocess.Popen([*LLM, *args], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.read(1)
    took = time.perf_counter() - began
    process.stdout.read()
    assert process.wait() == 0
    return took


def calls(repeats: int) -> dict[str, Any]:
    """``llm -c`` with and without a resident engine, and ``llm --help``, in turn."""
    first_output_s("-m", MODEL, "My name is Tamsin.", "-s", SYSTEM)
    took: dict[str, list[float]] = {"help": [], "attached": [], "not_attached": []}
    goes_on = ("-c", "What is my name?")
    for _ in range(repeats):
        took["help"].append(first_output_s("--help"))
        took["not_attached"].append(first_output_s(*goes_on))
        with ours("--no-http"):
            first_output_s(*goes_on)
            took["attached"].append(first_output_s(*goes_on))
    medians = {name: statistics.median(times) for name, times in took.items()}
    return {
        "first_output_s": {name: round(value, 3) for name, value in medians.items()},
        "attached_to_help": round(medians["attached"] / medians["help"], 2),
        "attached_to_not": round(medians["attached"] / medians["not_attached"], 2),
    }


def per_token(address: str, repeats: int) -> dict[str, Any]:
    """Milliseconds between the first and the last token of one answer, a token."""
    ways: dict[str, Any] = {
        "engine": lambda: _events_ms(shared_engine().stream(_request())),
        "attached": lambda: _events_ms(Attachment(connect(), _request())),
        "http": lambda: _http_ms(address),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):
        for way, measure in ways.items():
            value = measure()
            if repeat:  # the first is a warm-up
                took[way].append(value)
    medians = {way: statistics.median(values) for way, values in took.items()}
    return {
        "ms": {way: round(value, 3) for way, value in medians.items()},
        "over_engine": {
            way: round(medians[way] / medians["engine"] - 1, 3) for way in ("attached", "http")
        },
    }


def _request() -> Request:
    return Request(MODEL, MODEL_DIR, STORY, temperature=0, depth=0)


def _events_ms(events: Any) -> float:
    first = last = 0.0
    for event in events:
        last = time.perf_counter()
        if isinstance(event, Text) and not first:
            first = last
        if isinstance(event, Finished):
            return (last - first) / (event.output_tokens - 1) * 1000
    raise AssertionError


def _http_ms(address: str) -> float:
    asked = {"model": MODEL, "messages": STORY, "temperature": 0}
    turn = Conversation(address, MODEL).send(asked)
    return turn["decode_s"] / (turn["output"] - 1) * 1000


class Conversation:
    """One client that asks and goes on."""

    def __init__(self, address: str, model: str, name: str = "") -> None:
        self._host = urlsplit(address).netloc
        self._model = model
        self._name = name
        self._said: list[dict[str, str]] = [{"role": "system", "content": SYSTEM}]

    def ask(self, text: str) -> dict[str, Any]:
        self._said.append({"role": "user", "content": text})
        asked = {
            "model": self._model,
            "messages": self._said,
            "temperature": 0,
            "max_tokens": 24,
        }
        turn = self.send(asked)
        self._said.append({"role": "assistant", "content": turn["text"]})
        return turn

    def send(self, asked: dict[str, Any]) -> dict[str, Any]:
        body = {**asked, "stream": True, "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(self._host, timeout=600)
        began = time.perf_counter()
        headers = {"content-type": "application/json", "x-session-id": self._name}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        text, first, usage = "", 0.0, None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            told = json.loads(line[6:])
            usage = told.get("usage") or usage
            piece = "".join(c["delta"].get("content") or "" for c in told["choices"])
            if piece and not first:
                first = time.perf_counter()
            text += piece
        ended = time.perf_counter()
        connection.close()
        assert usage
        return {
            "text": text,
            "first_s": (first or ended) - began,
            "decode_s": ended - (first or ended),
            "whole_s": ended - began,
            "prompt": usage["prompt_tokens"],
            "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
            "output": usage["completion_tokens"],
        }


def crowd(address: str, model: str, clients: int, turns: int, names: str = "N") -> dict[str, Any]:
    """Clients that all talk at once, each with a name of its own and one system prompt."""
    Conversation(address, model).ask("Hello")  # loads the model
    done: list[list[dict[str, Any]]] = [[] for _ in range(clients)]

    def talk(number: int) -> None:
        talk = Conversation(address, model, f"{names}{number}")
        for turn in range(turns):
            question = QUESTIONS[(number + turn) % len(QUESTIONS)]
            done[number].append(talk.ask(f"My name is {names}{number}. {question}"))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    every = [turn for client in done for turn in client]
    per_client = sorted(sum(turn["whole_s"] for turn in client) for client in done)
    firsts = sorted(turn["first_s"] for turn in every)
    prompt = sum(turn["prompt"] for turn in every)
    return {
        "clients": clients,
        "turns": turns,
        "answered": len(every),
        "seconds": round(wall, 1),
        "tokens_per_s": round(sum(turn["output"] for turn in every) / wall, 1),
        "first_token_p50_s": round(statistics.median(firsts), 3),
        "first_token_p95_s": round(firsts[int(len(firsts) * 0.95)], 3),
        "slowest_to_median_client": round(per_client[-1] / statistics.median(per_client), 2),
        "cached_share": round(sum(turn["cached"] for turn in every) / prompt, 3),
    }


def against(address: str, peer: str, clients: int, turns: int) -> dict[str, Any]:
    """The same conversations on this server and on mlx_lm.server, one after the other."""
    return {
        "llm-mtplx": crowd(address, MODEL, clients, turns, "P"),
        "mlx_lm.server": crowd(peer, str(MODEL_DIR), clients, turns, "P"),
    }


if __name__ == "__main__":
    main()
