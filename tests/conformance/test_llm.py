"""The plugin through llm itself: the command, chat, async and the Python API."""

import asyncio
import json
from pathlib import Path

import llm
import pytest
from llm.cli import load_conversation

from llm_mtplx.demo import MODEL_DIR

from ..folders import copy_demo, demo_weights, save, trunk_of
from ..llm_command import MODEL, invoke, last_log, ok

QUESTION = "What is the capital of France?"
NAME = "My name is Zorblat."
ASK_NAME = "What is my name?"


def test_answers() -> None:
    assert "Paris" in ok("-m", MODEL, QUESTION)


def test_continues_a_conversation() -> None:
    ok("-m", MODEL, NAME)
    assert "Zorblat" in ok("-c", ASK_NAME)


def test_continues_by_id() -> None:
    ok("-m", MODEL, NAME)
    first = last_log()["conversation_id"]
    ok("-m", MODEL, "My name is Wimbo.")
    assert "Zorblat" in ok("--cid", first, ASK_NAME)


def test_async_and_sync_continue_each_other() -> None:
    ok("--async", "-m", MODEL, NAME)
    read = last_log()["input_tokens"]
    for way in ([], ["--async"], []):
        assert "Zorblat" in ok(*way, "-c", ASK_NAME)
        log = last_log()
        # All but the generation prompt of the turn before.
        assert log["response_json"]["cache"]["restored"] > read - 10
        read = log["input_tokens"]
    conversation = load_conversation(log["conversation_id"])
    conversation.model = llm.get_model(MODEL)
    answer = conversation.prompt(ASK_NAME)
    assert "Zorblat" in answer.text()
    assert answer.response_json["cache"]["restored"] > read - 10


def test_no_stream_gives_the_same_text() -> None:
    assert ok("-m", MODEL, QUESTION) == ok("-m", MODEL, QUESTION, "--no-stream")


def test_chat_remembers() -> None:
    out = ok("chat", "-m", MODEL, input=f"{NAME}\n{ASK_NAME}\nexit\n")
    assert "Zorblat" in out.split(ASK_NAME)[-1]
    assert "Zorblat" in ok("-c", ASK_NAME)


def test_chat_reads_only_what_is_new() -> None:
    # A name no other test tells: their sessions are in the same bank.
    ok("chat", "-m", MODEL, input=f"My name is Quilfor.\n{ASK_NAME}\nexit\n")
    second = last_log()
    cache = second["response_json"]["cache"]
    assert cache["source"] == "ram"
    assert cache["restored"] > 10
    # The template leaves the empty think block of an earlier answer out; between the turns the
    # engine may have had the time to read it so.
    assert cache["miss_reason"] in ("template_rewrites", None)
    details = json.loads(second["token_details"])
    assert details == {"cached": cache["restored"], "cached_from": "ram"}


def test_chat_survives_a_bad_turn() -> None:
    result = invoke("chat", "-m", MODEL, input=f"!multi\n!end\n{QUESTION}\nexit\n")
    assert result.exit_code == 0
    assert "Error: The prompt is empty" in result.stderr
    assert "Paris" in result.stdout


def test_usage_and_response_json() -> None:
    result = invoke("-m", MODEL, QUESTION, "-u", "-o", "draft", "2")
    log = last_log()
    assert f"{log['input_tokens']} input, {log['output_tokens']} output" in result.stderr
    details = log["response_json"]
    assert details["finish_reason"] == "eos"
    cache = details["cache"]
    assert cache["restored"] + cache["prefilled"] == log["input_tokens"]
    mtp = details["mtp"]
    assert mtp["depth"] == 2
    assert len(mtp["drafted"]) == len(mtp["accepted"]) == 2
    # The first token comes from the prompt, every round adds its accepted drafts and one more.
    assert log["output_tokens"] - 1 <= mtp["rounds"] + sum(mtp["accepted"])
    assert mtp["accepted"][0] <= mtp["drafted"][0] <= mtp["rounds"]
    assert {"prompt_tps", "generation_tps", "ttft_ms", "peak_memory"} <= details.keys()
    assert 0 <= details["seed"] < 2**53


@pytest.mark.parametrize("temperature", ["0", "1.5"])
@pytest.mark.parametrize("draft", ["1", "3", "5", "auto"])
def test_drafting_never_changes_the_answer(draft: str, temperature: str) -> None:
    asked = ["-m", MODEL, "Tell me a story.", "-o", "max_tokens", "40", "-o", "seed", "4"]
    asked += ["-o", "temperature", temperature]
    assert ok(*asked, "-o", "draft", draft) == ok(*asked, "-o", "draft", "0")


def test_temperature_zero_in_any_spelling() -> None:
    answers = {
        ok("-m", MODEL, "Tell me a joke.", *options)
        for options in ([], ["-o", "temperature", "0"], ["-o", "temperature", "0.0"])
    }
    for coldest in ("1e-308", "5e-324", "1e-9"):
        answers.add(ok("-m", MODEL, "Tell me a joke.", "-o", "temperature", coldest))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("top_p", "1e-300"),
        ("min_p", "1e-300"),
        ("temperature", "1e300"),
    ],
)
def test_no_number_is_too_small_or_too_large_to_answer(option: str, value: str) -> None:
    ok("-m", MODEL, "Hi", "-o", "temperature", "1", "-o", "max_tokens", "4", "-o", option, value)


def test_a_seed_repeats_a_sampled_answer() -> None:
    def ask(seed: str) -> str:
        return ok("-m", MODEL, "Tell me a joke.", "-o", "temperature", "1.2", "-o", "seed", seed)

    assert ask("7") == ask("7")
    assert len({ask(str(seed)) for seed in range(6)}) > 1
    # The log has the seed of an answer that was given none.
    drawn = ok("-m", MODEL, "Tell me a joke.", "-o", "temperature", "2")
    seed = last_log()["response_json"]["seed"]
    again = ok("-m", MODEL, "Tell me a joke.", "-o", "temperature", "2", "-o", "seed", str(seed))
    assert again == drawn


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_max_tokens(limit: int) -> None:
    ok("-m", MODEL, "Count from 1 to 20.", "-o", "max_tokens", str(limit))
    log = last_log()
    assert log["output_tokens"] == limit
    assert log["response_json"]["finish_reason"] == "length"


def test_reasoning_is_apart_from_the_text() -> None:
    result = invoke("-m", MODEL, "What is 3 + 4?", "-o", "thinking", "on", "-u")
    assert "think>" not in result.stdout
    log = last_log()
    assert log["reasoning"]
    assert "think>" not in log["response"] + log["reasoning"]
    assert log["response"].strip() == result.stdout.strip()
    assert json.loads(log["token_details"])["reasoning"] > 0


def test_system_prompt_of_this_call_wins() -> None:
    ok("-m", MODEL, "Hello!", "-s", "Your name is Ada.")
    assert "Ada" in ok("-c", "What is your name?")
    assert "Bob" in ok("-c", "What is your name?", "-s", "Your name is Bob.")
    assert "Ada" in ok("-c", "What is your name?")


def test_python_api() -> None:
    model = llm.get_model(MODEL)
    assert "Paris" in model.prompt(QUESTION).text()
    conversation = model.conversation()
    conversation.prompt(NAME).text()
    assert "Zorblat" in conversation.prompt(ASK_NAME).text()
    first = model.prompt(NAME)
    first.text()
    assert "Zorblat" in first.reply(ASK_NAME).text()
    restored = llm.Response.from_dict(first.to_dict())
    assert "Zorblat" in restored.reply(ASK_NAME).text()


def test_async_python_api() -> None:
    async def main() -> tuple[str, list[str]]:
        model = llm.get_async_model(MODEL)
        conversation = model.conversation()
        await conversation.prompt(NAME).text()
        recalled = await conversation.prompt(ASK_NAME).text()
        both = await asyncio.gather(*(model.prompt(QUESTION).text() for _ in range(2)))
        return recalled, both

    recalled, both = asyncio.run(main())
    assert "Zorblat" in recalled
    assert "Paris" in both[0] and both[0] == both[1]


def test_abandoning_an_answer_frees_the_engine() -> None:
    model = llm.get_model(MODEL)
    response = model.prompt("Count from 1 to 40.")
    stream = iter(response)
    next(stream)
    stream.close()
    assert "Paris" in model.prompt(QUESTION).text()


def test_async_cancellation_frees_the_engine() -> None:
    async def main() -> str:
        model = llm.get_async_model(MODEL)
        response = model.prompt("Count from 1 to 40.")
        async for _ in response:
            break
        return await model.prompt(QUESTION).text()

    assert "Paris" in asyncio.run(main())


def test_models_are_listed_with_their_features() -> None:
    listed = ok("models", "--options", "-m", MODEL)
    assert f"MTPLX: {MODEL}" in listed
    assert "async" in listed
    for option in ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "draft"):
        assert f"{option}:" in listed


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-m", MODEL, ""], "The prompt is empty"),
        (["-m", MODEL, "   "], "The prompt is empty"),
        (["-m", MODEL, "x", "-o", "temperature", "-1"], "temperature"),
        (["-m", MODEL, "x", "-o", "top_p", "1.5"], "top_p"),
        (["-m", MODEL, "x", "-o", "draft", "6"], "must be 0 to 5, or auto"),
        (["-m", MODEL, "x", "-o", "draft", "many"], "must be 0 to 5, or auto"),
        (["-m", MODEL, "x", "-o", "max_tokens", "0"], "max_tokens"),
        (["-m", MODEL, "x", "-o", "nosuch", "1"], "nosuch"),
        (["-m", MODEL, "x", "-a", str(Path(__file__)), "--at", "", ""], "attachment"),
        (["-m", MODEL, "word " * 9000], "Shorten it"),
        (["mtplx", "add", "no/such/folder"], "does not exist"),
        (["mtplx", "remove", "nobody"], "There is no added model named 'nobody'"),
    ],
)
def test_bad_input_is_one_line_and_exit_1(args: list[str], says: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 1, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_nothing_is_forgotten_that_is_not_old_enough_to_exist() -> None:
    result = invoke("mtplx", "forget", "--older-than", "-1")
    assert result.exit_code == 2
    assert "--older-than" in result.stderr


def test_an_attachment_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    result = invoke("-m", MODEL, "What is this?", "-a", str(image))
    assert result.exit_code == 1
    assert "attachment" in result.stderr


def test_add_use_and_remove_a_model(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "acme" / "tiny")
    added = ok("mtplx", "add", str(folder), "-a", "tiny")
    assert "mtplx/acme/tiny" in added
    assert "Paris" in ok("-m", "tiny", QUESTION)

    def here() -> list[str]:
        listed = json.loads(ok("mtplx", "models", "--json"))
        return [model["id"] for model in listed if model["state"] == "here"]

    assert here() == [MODEL, "mtplx/acme/tiny"]
    ok("mtplx", "remove", "tiny")
    assert here() == [MODEL]
    assert (folder / "config.json").exists()


def test_a_model_without_a_head_says_so_and_answers(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "acme" / "plain")
    save(folder / "model.safetensors", trunk_of(demo_weights()))
    ok("mtplx", "add", str(folder), "-a", "plain")
    result = invoke("-m", "plain", QUESTION)
    assert "it decodes without drafts" in result.stderr
    assert "Paris" in result.stdout
    assert last_log()["response_json"]["mtp"]["depth"] == 0


def test_a_broken_model_breaks_nothing_else(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "acme" / "broken")
    ok("mtplx", "add", str(folder), "-a", "broken")
    (folder / "model.safetensors").write_bytes(b"")
    assert "mtplx/acme/broken" in ok("models")
    assert "Paris" in ok("-m", MODEL, QUESTION)
    result = invoke("-m", "broken", QUESTION)
    assert result.exit_code == 1
    assert "not a readable safetensors file" in result.stderr
    assert "not a readable safetensors file" in ok("mtplx", "models")


@pytest.mark.parametrize("content", ["{", "[]", '{"models": 3}'])
def test_an_unreadable_registry_breaks_nothing_else(user_path: Path, content: str) -> None:
    registry = user_path / "mtplx" / "models.json"
    registry.parent.mkdir()
    registry.write_text(content)
    result = invoke("-m", MODEL, QUESTION)
    assert result.exit_code == 0
    assert "models.json cannot be read" in result.stderr
    assert "Paris" in result.stdout
    assert registry.read_text() == content


def test_an_unreadable_entry_hides_only_itself(user_path: Path) -> None:
    registry = user_path / "mtplx" / "models.json"
    registry.parent.mkdir()
    good = {"path": str(MODEL_DIR), "aliases": ["good"]}
    registry.write_text(json.dumps({"models": {"mtplx/a/bad": 7, "mtplx/a/good": good}}))
    result = invoke("-m", "good", QUESTION)
    assert "'mtplx/a/bad' cannot be read" in result.stderr
    assert "Paris" in result.stdout
    assert "mtplx/a/bad" in ok("mtplx", "remove", "mtplx/a/bad")


def test_doctor() -> None:
    report = json.loads(ok("mtplx", "doctor", "--json"))
    assert report["backend"] in ("cpu", "metal", "cuda")
    assert {"llm-mtplx", "llm", "mlx", "mlx-lm", "python"} == report["versions"].keys()
    assert report["memory_bytes"] > 2**30
    assert "Paris" in report["demo"]["answer"]
    assert report["demo"]["accepted"][0] > 0
    assert report["model"]["context_window"] == 8192
    assert report["model"]["fits"]
    assert report["store"]["restorable"]
    assert report["store"]["last_miss_reason"] == "store_absent"
    assert report["engine"] is None
    assert any("llm mtplx tune mtplx-demo" in line for line in report["advice"])
    shown = ok("mtplx", "doctor", "--verify")
    assert "nothing saved yet" in shown  # doctor itself keeps nothing
    assert "Paris" in shown
    assert shown.count("equal to the cold answer") == 3
