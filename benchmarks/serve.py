"""A resident engine against loading anew, and the server against the engine and mlx_lm.server.

    uv run python -m benchmarks.serve --out benchmarks/results/serve.json

Everything runs as a user would start it, on the bundled model, greedily. First tokens are what a
client sees: the first byte of an answer on stdout, or the first piece of text on a stream.

Both servers get the same requests, on the bundled model and on it widened to 320 MB: conversations
that an engine has had before, alone, whose answers are nearly all as long as they may be. So
neither has said less, or something else. Both have the same BLAS, and neither thinks, which
mlx_lm.server does where it is not told.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llm_mtplx.architectures.runtime import facts
from llm_mtplx.attach.client import Attachment, connect
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.protocol import Finished, Request, Text

from .decode import machine
from .load import bytecode_in

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
BLAS = "libopenblas.so.0"
Turn = dict[str, Any]
Messages = list[dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--peer-clients", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--peer-turns", type=int, default=4)
    parser.add_argument("--peer-tokens", type=int, nargs="*", default=[48, 256])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="parts that are not measured stay as they are")
    args = parser.parse_args()
    report = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    report |= {"machine": machine(), "versions": facts()["versions"]}
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"LLM_USER_PATH": home, "LLM_MTPLX_BLAS": BLAS, **bytecode_in(Path(home))}
        for part in args.parts:
            report[part] = PARTS[part](args)
            print(part, json.dumps(report[part], indent=2))
            if args.out:
                args.out.write_text(json.dumps(report, indent=2) + "\n")


def run_python(*args: str) -> None:
    subprocess.run([sys.executable, "-m", *args], check=True, stdout=subprocess.DEVNULL)


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
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(MODEL_DIR)]
    command += ["--port", str(port), "--chat-template-args", '{"enable_thinking": false}']
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env={**os.environ, "LD_PRELOAD": BLAS}
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


def calls(args: argparse.Namespace) -> dict[str, Any]:
    """``llm -c`` with and without a resident engine, and ``llm --help``, in turn."""
    first_output_s("-m", MODEL, "My name is Tamsin.", "-s", SYSTEM)
    took: dict[str, list[float]] = {"help": [], "attached": [], "not_attached": []}
    goes_on = ("-c", "What is my name?")
    for _ in range(args.repeats):
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


def per_token(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds between the first and the last token of one answer, a token."""
    with ours() as address:
        return _per_token(address, args.repeats)


def _per_token(address: str, repeats: int) -> dict[str, Any]:
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
    turn = send(address, {"model": MODEL, "messages": STORY, "temperature": 0})
    return float(turn["decode_s"] / (turn["output"] - 1) * 1000)


def send(address: str, asked: dict[str, Any], client: str = "") -> Turn:
    """One request and what came of it."""
    body = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=600)
    began = time.perf_counter()
    headers = {"content-type": "application/json", "x-session-id": client}
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


def crowd(args: argparse.Namespace) -> dict[str, Any]:
    """Clients that all talk at once, each with a name of its own and one system prompt."""
    with ours() as address:
        send(address, {"model": MODEL, "messages": STORY})  # loads the model
        return _crowd(address, args.clients, args.turns)


def _crowd(address: str, clients: int, turns: int) -> dict[str, Any]:
    def talk(number: int) -> Iterator[Turn]:
        said: Messages = [{"role": "system", "content": SYSTEM}]
        for turn in range(turns):
            question = QUESTIONS[(number + turn) % len(QUESTIONS)]
            said.append({"role": "user", "content": f"My name is N{number}. {question}"})
            asked = {"model": MODEL, "messages": said, "temperature": 0, "max_tokens": 24}
            yield (told := send(address, asked, f"N{number}"))
            said.append({"role": "assistant", "content": told["text"]})

    return together([partial(talk, number) for number in range(clients)])


def together(talks: Sequence[Callable[[], Iterator[Turn]]]) -> dict[str, Any]:
    """All conversations at once, each in a thread."""
    done: list[list[Turn]] = [[] for _ in talks]
    threads = [
        threading.Thread(target=lambda turns, talk: turns.extend(talk()), args=each)
        for each in zip(done, talks, strict=True)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    every = [turn for turns in done for turn in turns]
    per_client = sorted(sum(turn["whole_s"] for turn in turns) for turns in done)
    firsts = sorted(turn["first_s"] for turn in every)
    prompt, output = (sum(turn[name] for turn in every) for name in ("prompt", "output"))
    return {
        "clients": len(talks),
        "turns": len(done[0]),
        "answered": len(every),
        "seconds": round(wall, 1),
        "prompt_tokens": round(prompt / len(every)),
        "tokens": output,
        "tokens_per_s": round(output / wall, 1),
        "first_token_p50_s": round(statistics.median(firsts), 3),
        "first_token_p95_s": round(firsts[int(len(firsts) * 0.95)], 3),
        "slowest_to_median_client": round(per_client[-1] / statistics.median(per_client), 2),
        "cached_share": round(sum(turn["cached"] for turn in every) / prompt, 3),
    }


def peer(args: argparse.Namespace) -> list[dict[str, Any]]:
    """This server and mlx_lm.server, on the demo model and on it widened to 320 MB."""
    with tempfile.TemporaryDirectory() as scratch:
        wide = Path(scratch) / "wide"
        run_python("benchmarks.load", "--task", "save", "--folder", str(wide))
        run_python("llm", "mtplx", "add", str(wide), "--alias", "wide")
        with ours() as address, theirs() as other:
            return [
                {"model": model, **run}
                for model, name, folder in (("demo", MODEL, MODEL_DIR), ("320MB", "wide", wide))
                for run in against(address, other, name, folder, args)
            ]


def against(
    address: str, peer: str, model: str, folder: Path, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """The same requests to both servers, one after the other."""
    servers = {"llm-mtplx": (address, model), "mlx_lm.server": (peer, str(folder))}
    for server, name in servers.values():  # loads the model
        send(server, {"model": name, "messages": STORY, "max_tokens": 4})
    runs = []
    for tokens in args.peer_tokens:
        limits = {"temperature": 0, "max_tokens": tokens}
        # Long answers take few turns to tell.
        turns = max(args.peer_turns * min(args.peer_tokens) // tokens, 2)
        for clients in args.peer_clients:
            request = Request(model, folder, [], temperature=0, max_tokens=tokens)
            names = [f"P{clients}{tokens}{number}" for number in range(clients)]
            write = partial(script, request, turns)
            with ThreadPoolExecutor(clients) as pool:
                scripts = list(pool.map(write, names))
            for server, (where, name) in servers.items():
                talks = [partial(replay, where, name, each, limits) for each in scripts]
                runs.append({"server": server, "max_tokens": tokens, **together(talks)})
                print(model, runs[-1], flush=True)
    return runs


def script(request: Request, turns: int, name: str) -> list[Messages]:
    """The requests of a conversation, each with the answers to those before."""
    said: Messages = [{"role": "system", "content": SYSTEM}]
    requests = []
    for turn in range(turns):
        question = f"My name is {name}. Count from {turn + 1} to {turn + 40}."
        said.append({"role": "user", "content": question})
        requests.append(list(said))
        events = shared_engine().stream(replace(request, messages=list(said), persist=False))
        answer = "".join(event.text for event in events if isinstance(event, Text))
        said.append({"role": "assistant", "content": answer})
    return requests


def replay(
    server: str, model: str, requests: list[Messages], limits: dict[str, Any]
) -> Iterator[Turn]:
    name = requests[0][-1]["content"]
    for messages in requests:
        yield send(server, {"model": model, "messages": messages, **limits}, name)


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "calls": calls,
    "per_token": per_token,
    "many": crowd,
    "peer": peer,
}


if __name__ == "__main__":
    main()
