"""The chat templates that Qwen publishes: what they trim, refuse and leave out costs no prefix that
is still true, and never changes an answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_mtplx.chat.tokenizer import ChatTokenizer

from ..llm_command import invoke, logs, ok
from ..published import OldReasoning, copy_demo_with_published_template

MODEL = "published"
ADD = 'def add(a: int, b: int) -> int:\n    "Add two numbers"\n    return a + b\n'
SYSTEM = "Your name is Ada. You answer in one short sentence. " * 6
KINDS: tuple[OldReasoning, ...] = ("kept", "dropped", "emptied")
EMPTY = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
OPEN = "<|im_start|>assistant\n<think>\n"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> OldReasoning:
    folder = copy_demo_with_published_template(tmp_path / "model", request.param)
    ok("mtplx", "add", str(folder), "-a", MODEL)
    return request.param


def in_new_process(*args: str) -> str:
    """What ``llm`` prints in a process that has nothing in RAM."""
    code = "from llm.cli import cli; cli()"
    environment = {**os.environ, "LLM_MTPLX_MIN_TOKENS": "8"}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tokens_of(text: str, folder: Path) -> int:
    return len(ChatTokenizer(folder).encode(text))


def cache_of(turn: dict) -> dict:
    return turn["response_json"]["cache"]


@pytest.mark.parametrize("thinking", ["off", "on"])
def test_a_conversation_goes_on_where_it_is_still_the_same(
    kind: OldReasoning, thinking: str, tmp_path: Path
) -> None:
    options = "-m", MODEL, "-o", "thinking", thinking
    in_new_process(*options, "-s", SYSTEM, "\n  What is the opposite of hot? \n")
    in_new_process("-c", *options, " What is your name?\n\n")
    first, warm = logs(2)
    whole = first["input_tokens"] + first["output_tokens"]
    header = first["input_tokens"] - tokens_of(
        OPEN if thinking == "on" else EMPTY, tmp_path / "model"
    )
    stays = kind == "kept" or (kind == "emptied" and thinking == "off")
    assert cache_of(warm)["source"] == "ssd"
    assert cache_of(warm)["restored"] == (whole if stays else header)


@pytest.mark.parametrize("thinking", ["off", "on"])
def test_a_warm_answer_is_the_cold_one(kind: OldReasoning, thinking: str) -> None:
    options = "-m", MODEL, "-o", "thinking", thinking
    texts = {}
    for cache in ("on", "off"):
        ok(*options, "-o", "cache", cache, "-s", SYSTEM, " My name is Zorblat.  ")
        texts[cache] = ok("-c", *options, "-o", "cache", cache, "What is my name?")
        assert (cache_of(logs(1)[0])["restored"] > 0) == (cache == "on")
    assert texts["on"] == texts["off"]


def test_tools_are_called_and_their_results_read(kind: OldReasoning) -> None:
    told = "-m", MODEL, "--functions", ADD, "-o", "thinking", "off"
    assert "5" in ok(*told, " What is 2 + 3? Use the tool. ")
    call, results = logs(2)
    assert [each["name"] for each in call["tool_calls"]] == ["add"]
    # The round goes on in the same turn: nothing before the results is read again.
    whole = call["input_tokens"] + call["output_tokens"]
    assert cache_of(results)["restored"] in (whole, whole - 1)
    ok("-c", *told, "What is 4 + 4? Use the tool.")
    assert cache_of(logs(2)[0])["restored"] > 0


@pytest.mark.parametrize(
    "beginning",
    [["-s", SYSTEM], ["-s", f"\n {SYSTEM} \n"], ["--functions", ADD], ["-T", "llm_time"]],
    ids=["system", "trimmed", "functions", "tool"],
)
def test_a_beginning_is_counted_as_it_is_warmed(kind: OldReasoning, beginning: list[str]) -> None:
    counted = json.loads(ok("mtplx", "count", "-m", MODEL, *beginning, "--json"))
    warmed = json.loads(ok("mtplx", "warm", "-m", MODEL, *beginning, "--json"))
    assert counted["tokens"] == warmed["tokens"] and warmed["kept"]
    ok("-m", MODEL, *beginning, "1 + 1?")
    assert cache_of(logs(1)[0])["restored"] >= warmed["tokens"]


def test_what_the_template_refuses_is_said(kind: OldReasoning) -> None:
    result = invoke("-m", MODEL, "-s", "Be polite.")
    assert result.exit_code == 1 and "No user query found" in result.stderr
    assert "Traceback" not in result.stderr
