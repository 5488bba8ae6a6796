"""``llm -c`` in a new process goes on from the SSD."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = "mtplx-demo"
TOLD = "My name is Tamsin. I live in Porto. What is the capital of France?"
SYSTEM = (
    "You are a helpful assistant. You answer in short and polite sentences. You are friendly, "
    "you are patient, and you say so when you do not know something. You never make things up."
)


def llm(*args: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_cache() -> dict:
    return json.loads(llm("logs", "--json", "-n", "1"))[0]["response_json"]["cache"]


def stored_files(user_path: Path) -> list[Path]:
    return [p for p in (user_path / "mtplx" / "cache").rglob("*") if p.suffix in (".kv", ".st")]


def test_a_conversation_goes_on_in_new_processes(user_path: Path) -> None:
    llm("-m", MODEL, TOLD, "-s", SYSTEM)
    assert "Tamsin" in llm("-c", "What is my name?")
    restored = last_cache()
    assert restored["source"] == "ssd"
    assert restored["restored"] > 40
    assert restored["prefilled"] < restored["restored"]
    warm = llm("-c", "Do you remember my name?")
    assert last_cache()["restored"] > restored["restored"]
    # The same conversation without anything kept.
    cold = llm("-c", "Do you remember my name?", "-o", "cache", "off")
    assert "Tamsin" in warm
    assert "Tamsin" in cold
    assert last_cache()["miss_reason"] == "cache_off"
    for path in stored_files(user_path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_seed_gives_one_answer_in_every_process(user_path: Path) -> None:
    """Cold and warm, drafted and not; and a seed that was drawn gives its answer again."""

    def answer(*options: str) -> tuple[str, dict]:
        asked = ("-m", MODEL, TOLD, "-s", SYSTEM, "-o", "temperature", "3", "-o", "top_k", "0")
        text = llm(*asked, "-o", "max_tokens", "24", *options, LLM_MTPLX_BLAS="off")
        return text, json.loads(llm("logs", "--json", "-n", "1"))[0]["response_json"]

    drawn, first = answer()
    assert first["cache"]["restored"] == 0
    seed = ("-o", "seed", str(first["seed"]))
    warm, second = answer(*seed, "-o", "draft", "0")
    assert second["cache"]["source"] == "ssd"
    cold, third = answer(*seed, "-o", "draft", "3", "-o", "cache", "off")
    assert third["cache"]["restored"] == 0 < third["mtp"]["drafted"][0]
    assert drawn == warm == cold
    assert "Paris" not in drawn, "so hot that no two seeds say the same"


@pytest.mark.parametrize("how", ["-n", "logs off", "LLM_MTPLX_CACHE"])
def test_nothing_is_written_where_nothing_is_logged(user_path: Path, how: str) -> None:
    if how == "logs off":
        llm("logs", "off")
    environment = {"LLM_MTPLX_CACHE": "off"} if how == "LLM_MTPLX_CACHE" else {}
    flags = ["-n"] if how == "-n" else []
    assert "Paris" in llm("-m", MODEL, TOLD, "-s", SYSTEM, *flags, **environment)
    assert stored_files(user_path) == []


def test_a_store_that_cannot_be_used_is_a_miss(user_path: Path) -> None:
    (user_path / "mtplx" / "cache").mkdir(parents=True)
    (user_path / "mtplx" / "cache" / "sessions-v1").write_text("in the way")
    llm("-m", MODEL, TOLD, "-s", SYSTEM)
    assert "Tamsin" in llm("-c", "What is my name?")
    cache = last_cache()
    assert cache["restored"] == 0
    assert cache["miss_reason"] in ("store_unavailable", "not_a_store")


def test_status_shows_and_forget_removes_a_conversation(user_path: Path) -> None:
    llm("-m", MODEL, TOLD, "-s", SYSTEM)
    llm("-c", "What is my name?")
    report = json.loads(llm("mtplx", "status", "--json"))["ssd_session_cache"]
    (kept,) = report["conversations"]
    assert kept["name"].startswith("My name is Tamsin.")
    assert kept["tokens"] > 40
    assert report["physical_bytes"] >= kept["bytes"] > 0
    assert kept["name"] in llm("mtplx", "status")
    assert "Forgot 1 conversations" in llm("mtplx", "forget", kept["conversation"])
    assert stored_files(user_path) == []
    assert "No conversation is saved." in llm("mtplx", "status")
    assert "Tamsin" in llm("-c", "What is my name?")
    assert last_cache()["restored"] == 0
