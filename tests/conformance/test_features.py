"""Tools, reasoning, chat and counting through llm itself."""

import asyncio
import json
from pathlib import Path

import llm
import pytest

from llm_mtplx.engine import loaded_models as residents
from llm_mtplx.engine.engine import shared_engine

from ..folders import copy_demo, edit_json, save_random_model
from ..llm_command import MODEL, invoke, logs, ok

ADD = """
def add(a: int, b: int) -> int:
    "Add two numbers"
    return a + b
"""
SUM = "What is 31 + 14?"
VERSION = "What version of llm is this?"
FRANCE = "What is the capital of France?"


def add(a: int, b: int) -> int:
    "Add two numbers"
    return a + b


# Tools


def test_a_function_is_called_and_its_result_used() -> None:
    for how in ([], ["--async"], ["--no-stream"]):
        assert ok("-m", MODEL, SUM, "--functions", ADD, *how).strip() == "The result is 45."
        check_sum()


def check_sum() -> None:
    called, answered = logs(2)
    (call,) = called["tool_calls"]
    assert (call["name"], call["arguments"]) == ("add", {"a": 31, "b": 14})
    (result,) = answered["tool_results"]
    assert (result["output"], result["tool_call_id"]) == ("45", call["tool_call_id"])
    assert called["response_json"]["finish_reason"] == "tool_calls"
    assert answered["response_json"]["finish_reason"] == "eos"
    assert answered["response_json"]["cache"]["restored"] > called["input_tokens"]


def test_a_registered_tool_stays_offered_on_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_engine(), "stays", False)  # as in a process of one command
    assert llm.get_plugins() is not None
    assert "The installed version of llm is" in ok("-m", MODEL, VERSION, "-T", "llm_version")
    assert "Paris" in ok("-c", FRANCE)
    asked = logs(1)[0]
    assert [tool["name"] for tool in asked["tools"]] == ["llm_version"]
    # The template leaves the think blocks of the tool rounds out: back to the question's end.
    assert asked["response_json"]["cache"]["miss_reason"] == "template_rewrites"
    assert asked["response_json"]["cache"]["restored"] > 90


def test_functions_that_are_lost_on_continue_are_named_and_nothing_breaks() -> None:
    ok("-m", MODEL, SUM, "--functions", ADD)
    result = invoke("-c", FRANCE)
    assert "Paris" in result.stdout
    assert "called 'add', which this prompt does not offer" in result.stderr
    again = invoke("-c", "What is 12 + 30?", "--functions", ADD)
    assert again.exit_code == 0
    assert "does not offer" not in again.stderr


LAMP = "def set_lamp(on: bool) -> str:\n    return 'done'"


def test_a_function_that_the_model_made_up_is_not_to_be_passed_again() -> None:
    first = invoke("-m", MODEL, "What is the weather in Paris?", "--functions", LAMP)
    # The bundled model calls what it knows.
    assert {call["name"] for log in logs(2) for call in log["tool_calls"]} == {"get_weather"}
    second = invoke("-c", FRANCE)
    assert "Paris" in second.stdout
    assert "does not offer" not in first.stderr + second.stderr


def test_calls_can_be_approved() -> None:
    ok("chat", "-m", MODEL, "--functions", ADD, "--ta", input=f"{SUM}\ny\n{SUM}\nn\nexit\n")
    outputs = [result["output"] for log in logs(4) for result in log["tool_results"]]
    assert outputs[0] == "45"
    assert outputs[1].startswith("Cancelled: ")


def test_tools_in_chat() -> None:
    out = ok("chat", "-m", MODEL, "--functions", ADD, input=f"{SUM}\nWhat is 7 + 12?\nexit\n")
    assert "45" in out and "19" in out
    assert "tool_call" not in out


class Sums(llm.Toolbox):
    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def add(self, a: int, b: int) -> int:
        "Add two numbers"
        self.made.append((a, b))
        return a + b


def test_a_toolbox_and_a_chain_in_python() -> None:
    model = llm.get_model(MODEL)
    box = Sums()
    chain = model.conversation(tools=[box]).chain("What is Sums_add of 31 and 14? Add 31 and 14.")
    chain.text()
    assert [tool.name for tool in chain._responses[0].prompt.tools] == ["Sums_add"]
    conversation = model.conversation(tools=[add])
    assert conversation.chain(SUM).text().strip() == "The result is 45."
    assert "Paris" in conversation.prompt(FRANCE).text()


def test_calls_without_a_chain_in_python() -> None:
    response = llm.get_model(MODEL).prompt(SUM, tools=[add])
    assert response.text() == ""
    (call,) = response.tool_calls()
    assert (call.name, call.arguments) == ("add", {"a": 31, "b": 14})
    (part,) = [p for m in response._messages_now() for p in m.parts if hasattr(p, "arguments")]
    assert part.tool_call_id == call.tool_call_id
    (result,) = response.execute_tool_calls()
    assert result.output == "45"
    assert response.reply(tool_results=[result]).text() == "The result is 45."


def test_async_chain_in_python() -> None:
    async def main() -> tuple[str, str]:
        conversation = llm.get_async_model(MODEL).conversation()
        answer = await conversation.chain(SUM, tools=[add]).text()
        return answer.strip(), await conversation.prompt(FRANCE).text()

    answer, later = asyncio.run(main())
    assert answer == "The result is 45."
    assert "Paris" in later


def test_the_same_tools_give_the_same_prompt() -> None:
    first = json.loads(ok("mtplx", "count", "-m", MODEL, SUM, "-T", "llm_version", "-T", "llm_time",
                          "--json"))  # fmt: skip
    other = json.loads(ok("mtplx", "count", "-m", MODEL, SUM, "-T", "llm_time", "-T", "llm_version",
                          "--json"))  # fmt: skip
    assert first == other
    ok("-m", MODEL, "Hi", "-T", "llm_version", "-T", "llm_time")
    ok("-m", MODEL, "Hi", "-T", "llm_time", "-T", "llm_version")
    cache = logs(1)[0]["response_json"]["cache"]
    assert cache["prefilled"] < 10


# Reasoning


def test_reasoning_is_kept_whether_shown_or_not() -> None:
    for how in ([], ["-R"], ["--async"], ["--no-stream"]):
        result = invoke("-m", MODEL, "What is the opposite of hot?", "-o", "thinking", "on", *how)
        (log,) = logs(1)
        assert log["reasoning"] == "For hot it is cold."
        assert (log["reasoning"] in result.stderr) is (how in ([], ["--async"]))
        assert result.stdout.strip() == log["response"]
        assert json.loads(log["token_details"])["reasoning"] > 0


def test_a_thinking_budget() -> None:
    question = "What is the opposite of hot?"
    out = ok("-m", MODEL, question, "-o", "thinking", "on", "-o", "thinking_budget", "4")
    (log,) = logs(1)
    assert log["reasoning"] == "For hot it is"
    assert "cold" in out
    # What was made to be said is as true a state as any.
    warm = ok("-c", "Thank you!", "-o", "thinking", "on")
    assert logs(1)[0]["response_json"]["cache"]["restored"] > 0
    tokens = logs(1)[0]["output_tokens"]
    assert ok("--cid", log["conversation_id"], "Thank you!", "-o", "cache", "off", "-o", "thinking",
              "on")  # fmt: skip
    assert warm and tokens


# Chat, templates, fragments


def test_a_chat_loads_its_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok("mtplx", "add", str(copy_demo(tmp_path / "acme" / "once")), "-a", "once")
    loads: list[Path] = []
    load = residents.load_inspected

    def counted(folder, *args):
        loads.append(folder.path)
        return load(folder, *args)

    monkeypatch.setattr(residents, "load_inspected", counted)
    ok("chat", "-m", "once", input=f"Hello!\n{FRANCE}\nTell me a joke.\nexit\n")
    assert len(loads) == 1
    ok("-m", "once", FRANCE)
    assert len(loads) == 1


def test_chat_multi_and_fragment(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("My name is Zorblat.")
    said = f"!multi\nMy name is Quilfor.\nHello!\n!end\nWhat is my name?\n!fragment {note}\nexit\n"
    out = ok("chat", "-m", MODEL, input=said)
    assert "Quilfor" in out
    assert "Zorblat" in out


def test_templates_fragments_and_their_system_prompts(user_path: Path, tmp_path: Path) -> None:
    templates = user_path / "templates"
    templates.mkdir()
    (templates / "ada.yaml").write_text("system: Your name is Ada.\n")
    fragment = tmp_path / "told.txt"
    fragment.write_text("My name is Zorblat.")
    assert "Ada" in ok("-m", MODEL, "-t", "ada", "What is your name?")
    assert "Ada" in ok("-c", "-t", "ada", "What is your name?")
    ok("-m", MODEL, "-f", str(fragment))
    assert "Zorblat" in ok("-c", "What is my name?")


# Counting


def test_count_is_what_the_model_reads(user_path: Path, tmp_path: Path) -> None:
    (user_path / "templates").mkdir()
    (user_path / "templates" / "polite.yaml").write_text("system: Be polite.\n")
    fragment = tmp_path / "fragment.txt"
    fragment.write_text("My name is Zorblat.")
    for args in (
        [FRANCE],
        [FRANCE, "-s", "You are polite.", "-o", "thinking", "on"],
        [FRANCE, "-T", "llm_version", "-T", "llm_time"],
        [FRANCE, "--functions", ADD],
        [FRANCE, "-t", "polite"],
        ["What is my name?", "-f", str(fragment)],
    ):
        counted = json.loads(ok("mtplx", "count", "-m", MODEL, *args, "--json"))
        ok("-m", MODEL, *args)
        assert counted == {"model": MODEL, "tokens": logs(1)[0]["input_tokens"]}, args


def test_count_continues_and_reads_stdin() -> None:
    ok("-m", MODEL, "My name is Zorblat.")
    told = logs(1)[0]
    counted = ok("mtplx", "count", "-c", "What is my name?")
    assert len(logs(9)) == 1  # nothing was asked or logged
    ok("-c", "What is my name?")
    asked = logs(1)[0]
    assert counted == f"{asked['input_tokens']} tokens\n"
    assert asked["input_tokens"] > told["input_tokens"]
    piped = json.loads(ok("mtplx", "count", "-m", MODEL, "--json", input=FRANCE))
    assert piped == json.loads(ok("mtplx", "count", "-m", MODEL, FRANCE, "--json"))


def test_warm_says_what_it_did(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("The fox went into the woods and met a bear. " * 20)
    first = json.loads(ok("mtplx", "warm", "-m", MODEL, "-f", str(book), "--json"))
    assert first["read"] == first["tokens"] > 100
    assert first["kept"]
    assert "were already saved" in ok("mtplx", "warm", "-m", MODEL, "-f", str(book))
    for question in (FRANCE, "1 + 1?", "(hello)"):
        ok("-m", MODEL, "-f", str(book), question)
        assert logs(1)[0]["response_json"]["cache"]["restored"] >= first["tokens"]
    assert "Not saved: " in ok("mtplx", "warm", "-m", MODEL, "-s", "Be polite.")


@pytest.mark.parametrize(("name", "keeps"), [("Qwen3.8-27B", True), ("Qwen3.6-27B", False)])
def test_a_family_may_keep_its_reasoning(tmp_path: Path, name: str, keeps: bool) -> None:
    """The same template and weights: the family is told by the folder's name."""
    ok("mtplx", "add", str(copy_demo(tmp_path / name)), "-a", "named")
    ok("-m", "named", "What is the opposite of hot?", "-o", "thinking", "on")
    first = logs(1)[0]
    counted = ok("mtplx", "count", "-c", "Thank you!", "-o", "thinking", "on")
    ok("-c", "Thank you!", "-o", "thinking", "on")
    second = logs(1)[0]
    assert counted == f"{second['input_tokens']} tokens\n"
    whole = first["input_tokens"] + first["output_tokens"]
    assert (second["response_json"]["cache"]["restored"] == whole) == keeps


def test_warm_asks_llm_once(tmp_path: Path) -> None:
    """Functions are code that is run, and fragments may be fetched."""
    ran = tmp_path / "ran"
    functions = f"with open({str(ran)!r}, 'a') as file:\n    file.write('x')\n{ADD}"
    template = tmp_path / "polite.yaml"
    template.write_text("system: Be polite.\nprompt: 'You are asked: $input. Answer in one word.'")
    told = "-m", MODEL, "-t", str(template), "--functions", functions
    warmed = json.loads(ok("mtplx", "warm", *told, "--json"))
    assert ran.read_text() == "x"
    # To where the prompts part: the tokens that follow are those of what is asked.
    counts = [json.loads(ok("mtplx", "count", *told, asked, "--json")) for asked in ("a", "1 + 1?")]
    assert warmed["tokens"] < min(each["tokens"] for each in counts)
    ok(*told, FRANCE)
    assert logs(1)[0]["response_json"]["cache"]["restored"] == warmed["tokens"] > 100


# Answers without an end


def test_an_answer_that_repeats_itself_is_noticed_once_and_ends(tmp_path: Path) -> None:
    fragment = tmp_path / "mia.txt"
    fragment.write_text("My name is Mia.\n")
    result = invoke("-m", MODEL, "-f", str(fragment), "What is my name?")
    assert result.exit_code == 0
    assert result.stderr.count("the answer repeats itself (") == 1
    turn = logs(1)[0]
    assert turn["output_tokens"] == 1024
    assert turn["response_json"]["finish_reason"] == "length"
    assert "repeats itself" not in invoke("-m", MODEL, FRANCE).stderr


@pytest.mark.parametrize(
    ("own", "asked", "tokens"),
    [(40, [], 40), (40, ["-o", "max_tokens", "60"], 60), (None, [], 150), (True, [], 150)],
)
def test_a_model_may_say_how_long_an_answer_is(
    tmp_path: Path, own: object, asked: list[str], tokens: int
) -> None:
    folder = save_random_model(tmp_path / "endless")
    edit_json(folder / "generation_config.json", lambda c: c.update(max_new_tokens=own))
    window = tokens if tokens < 100 else 0
    ok("mtplx", "add", str(folder), "-a", "endless")
    counted = json.loads(ok("mtplx", "count", "-m", "endless", "Hello", "--json"))["tokens"]
    size = counted + (4000 if window else tokens)
    edit_json(
        folder / "config.json", lambda c: c["text_config"].update(max_position_embeddings=size)
    )
    ok("-m", "endless", "Hello", *asked)
    assert logs(1)[0]["output_tokens"] == tokens


# Bad input


def call_message(name: str = "add") -> llm.Message:
    return llm.Message(
        role="assistant",
        parts=[llm.parts.ToolCallPart(name=name, arguments={"a": 1}, tool_call_id="tc_1")],
    )


def result_message(call: str) -> llm.Message:
    part = llm.parts.ToolResultPart(name="add", output="1", tool_call_id=call)
    return llm.Message(role="tool", parts=[part])


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([llm.user("x"), call_message(), llm.user("y")], "a call to 'add' without its result"),
        ([llm.user("x"), call_message(), result_message("tc_2")], "without a matching call"),
        ([llm.user("x"), result_message("tc_1")], "without a matching call"),
    ],
)
def test_a_history_that_cannot_be(messages: list[llm.Message], says: str) -> None:
    with pytest.raises(llm.ModelError, match=says):
        llm.get_model(MODEL).prompt(messages=messages, tools=[add]).text()


def test_options_that_cannot_be() -> None:
    for args, says in (
        (["-o", "thinking", "off", "-o", "thinking_budget", "9"], "contradict each other"),
        (["-o", "thinking", "off", "-o", "reasoning_effort", "low"], "contradict each other"),
        (["-o", "reasoning_effort", "huge"], "reasoning_effort"),
        (["-o", "thinking_budget", "-1"], "thinking_budget"),
    ):
        result = invoke("-m", MODEL, FRANCE, *args)
        assert result.exit_code == 1
        assert says in result.stderr
        assert "Traceback" not in result.stderr


def test_counting_and_warming_what_cannot_be() -> None:
    for args, says in (
        (["count", "-m", "gpt-4o-mini", "x"], "is not an llm-mtplx model"),
        (["count", "-m", "nobody", "x"], "Unknown model"),
        (["count", "-m", MODEL, ""], "The prompt is empty"),
        (["count", "-m", MODEL, "x", "-t", "nosuch"], "nosuch"),
        (["warm", "-m", "gpt-4o-mini", "-s", "x"], "is not an llm-mtplx model"),
        (["warm", "-m", MODEL, "-s", "word " * 9000], "accepts at most"),
    ):
        result = invoke("mtplx", *args)
        assert result.exit_code == 1, result.output
        assert says in result.stderr
        assert "Traceback" not in result.stderr


def test_nothing_is_warmed_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("logs", "off")
    assert "Logging is off" in invoke("mtplx", "warm", "-m", MODEL, "-s", "x").stderr
    monkeypatch.setenv("LLM_MTPLX_CACHE", "off")
    assert "LLM_MTPLX_CACHE is off" in invoke("mtplx", "warm", "-m", MODEL, "-s", "x").stderr


def test_features_are_listed() -> None:
    listed = ok("models", "--options", "-m", MODEL)
    assert "tools" in listed
    for option in ("thinking", "reasoning_effort", "thinking_budget"):
        assert f"{option}:" in listed


@pytest.mark.parametrize("first", [True, False], ids=["first turn", "later turn"])
def test_a_failed_turn_does_not_poison_the_chat(first: bool) -> None:
    """Its question stays in llm's history, where it would fail every later turn as well."""
    too_long = "!multi\n" + "word " * 9_000 + "\n!end\n"
    before = "" if first else "My name is Tamsin.\n"
    result = invoke(
        "chat", "-m", MODEL, "-s", "You are kind.", input=f"{before}{too_long}{FRANCE}\nexit\n"
    )
    assert result.exit_code == 0
    assert result.stderr.count("Error: The prompt has ") == 1
    assert "left out of the history: 1 earlier message" in result.stderr
    assert "Paris" in result.stdout
    # Nor what goes on from its log.
    if first:
        assert "Paris" in ok("-c", FRANCE)
    else:
        assert "Tamsin" in ok("-c", "What is my name?")
