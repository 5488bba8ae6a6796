"""Tools, reasoning and warmed beginnings in new processes, with the ids of a cold run."""

import json
import subprocess
import sys
from pathlib import Path

from ..llm_command import MODEL, last_log, logs

PYTHON = """
import sys
from click.testing import CliRunner
from llm.cli import cli
result = CliRunner().invoke(cli, sys.argv[1:])
print(result.output.strip(), "mlx" in sys.modules or "mlx.core" in sys.modules)
"""


def llm(*args: str) -> str:
    return run("-m", "llm", *args)


def run(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_chain_begins_warm_and_goes_on_in_new_processes(user_path: Path) -> None:
    system = "You are a helpful assistant. " * 12
    told = ("-s", system, "-T", "llm_version")
    warmed = json.loads(llm("mtplx", "warm", "-m", MODEL, *told, "--json"))
    assert warmed["kept"] and warmed["read"] == warmed["tokens"] > 100

    first = llm("-m", MODEL, "What version of llm is this?", *told)
    assert "The installed version of llm is" in first
    chain = logs(2)
    assert chain[0]["response_json"]["cache"]["restored"] == warmed["tokens"]
    assert chain[0]["response_json"]["cache"]["source"] == "ssd"

    # On from the end of the question that the tool rounds answered, in what the next turn shares.
    question = "What is the opposite of hot?"
    thinking = ("-o", "thinking", "on", "-o", "thinking_budget", "4")
    warm = llm("--async", "-c", question, *thinking)
    went_on = last_log()
    assert went_on["response_json"]["cache"]["source"] == "ssd"
    assert went_on["response_json"]["cache"]["restored"] > warmed["tokens"]
    cold = llm("--cid", went_on["conversation_id"], question, *thinking, "-o", "cache", "off")
    assert warm == cold
    assert last_log()["reasoning"] == went_on["reasoning"] != ""


def test_after_an_answer_of_a_schema_a_new_process_goes_on(user_path: Path) -> None:
    system = "You are a helpful assistant. " * 12
    answer = llm("-m", MODEL, "Invent a person.", "-s", system, "--schema", "name,age int")
    assert json.loads(answer).keys() == {"name", "age"}
    read = last_log()["input_tokens"]
    question = ("What is the capital of France?", "-o", "temperature", "0")
    warm = llm("-c", *question)
    went_on = last_log()
    assert went_on["response_json"]["cache"]["source"] == "ssd"
    assert went_on["response_json"]["cache"]["restored"] > read - 10
    assert warm == llm("--cid", went_on["conversation_id"], *question, "-o", "cache", "off")


def test_counting_needs_no_mlx() -> None:
    assert run("-c", PYTHON, "mtplx", "count", "-m", MODEL, "Hello") == "13 tokens False\n"
