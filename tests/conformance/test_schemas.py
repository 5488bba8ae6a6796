"""Schemas through llm: the command, templates, the Python API, and what comes after."""

import asyncio
import json
from pathlib import Path

import jsonschema
import llm
import pytest
from pydantic import BaseModel

from benchmarks.schemas import SCHEMAS
from llm_mtplx.sessions.bank import Bank

from ..dictated import LIMITS, small_model
from ..folders import edit_json, save_random_model
from ..llm_command import MODEL, invoke, last_log, ok
from ..sessions.talk import Talk

INTRODUCTION = "My name is Tamsin and I am 31 years old."
TAMSIN = {"name": "Tamsin", "age": 31}
DSL = "name, age int"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


class Person(BaseModel):
    name: str
    age: int


@pytest.mark.parametrize("options", [[], ["--no-stream"], ["--async"]])
def test_schema(options: list[str]) -> None:
    assert json.loads(ok("-m", MODEL, INTRODUCTION, "--schema", DSL, *options)) == TAMSIN
    log = last_log()
    assert json.loads(log["response"]) == TAMSIN
    assert log["response_json"]["finish_reason"] == "eos"


def test_a_template_may_hold_the_schema() -> None:
    ok("-m", MODEL, "--schema", DSL, "--save", "person")
    assert json.loads(ok("-t", "person", INTRODUCTION)) == TAMSIN


def test_thinking_comes_before_the_json() -> None:
    result = invoke("-m", MODEL, INTRODUCTION, "--schema", DSL, "-o", "thinking", "on")
    assert json.loads(result.stdout) == TAMSIN
    log = last_log()
    assert log["reasoning"] and "{" not in log["reasoning"]


@pytest.mark.parametrize("draft", ["0", "1", "4"])
@pytest.mark.parametrize("temperature", ["0", "1.3"])
def test_drafts_keep_to_the_schema(draft: str, temperature: str) -> None:
    options = ["-o", "temperature", temperature, "-o", "seed", "5", "-o", "draft", draft]
    ask = ["-m", MODEL, INTRODUCTION, "--schema", DSL, "-o", "max_tokens", "400", *options]
    text = ok(*ask)
    jsonschema.validate(json.loads(text), PERSON)
    assert ok(*ask) == text
    if temperature == "0":
        assert json.loads(text) == TAMSIN


@pytest.mark.parametrize("name", SCHEMAS)
def test_sampled_answers_are_valid(name: str) -> None:
    schema, ask = SCHEMAS[name]
    model = llm.get_model(MODEL)
    for seed in range(2):
        options = {"temperature": 1.3, "seed": seed, "max_tokens": 2000, "draft": 2}
        answer = json.loads(model.prompt(ask, schema=schema, **options).text())
        jsonschema.validate(answer, schema)


def test_python_models() -> None:
    async def later() -> str:
        return await llm.get_async_model(MODEL).prompt(INTRODUCTION, schema=Person).text()

    now = llm.get_model(MODEL).prompt(INTRODUCTION, schema=Person).text()
    for text in (now, asyncio.run(later())):
        assert Person.model_validate_json(text) == Person(**TAMSIN)


def test_the_conversation_goes_on_from_the_json() -> None:
    ok("-m", MODEL, "My name is Wenzolt and I am 44 years old.", "--schema", DSL)
    first = last_log()
    assert "Wenzolt" in ok("-c", "What is my name?")
    cache = last_log()["response_json"]["cache"]
    # All but the generation prompt of the first turn, which the template renders otherwise now.
    assert cache["restored"] >= first["input_tokens"] - 8
    ok("-c", "And again?", "--schema", DSL)
    assert json.loads(last_log()["response"]).keys() == TAMSIN.keys()


def test_an_answer_cut_short_is_an_error() -> None:
    ask = ["-m", MODEL, INTRODUCTION, "--schema-multi", DSL, "-o", "max_tokens", "12"]
    result = invoke(*ask)
    assert result.exit_code == 1
    assert result.stdout.startswith('{"items": [')
    assert "Error: The answer reached its limit of 12 tokens" in result.stderr
    thinking = ["-o", "thinking", "on", "-o", "max_tokens", "3"]
    result = invoke("-m", MODEL, INTRODUCTION, "--schema", DSL, *thinking)
    assert result.exit_code == 1 and "Error: The answer reached" in result.stderr
    # What was read and kept before is as it was.
    assert json.loads(ok("-m", MODEL, INTRODUCTION, "--schema", DSL)) == TAMSIN


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (["-o", "max_tokens", "12"], "Raise max_tokens, or limit the schema's strings and arrays"),
        (
            ["-o", "thinking", "on", "-o", "max_tokens", "5"],
            "5 of these tokens are reasoning. Raise max_tokens, set thinking_budget, or turn",
        ),
        ([], "It repeats itself (the same 64 tokens "),
    ],
    ids=["short", "thinking", "repeats"],
)
def test_the_error_names_what_took_the_room(ask: list[str], says: str) -> None:
    animals = "List three animals", "--schema-multi", "name, age int, bio"
    result = invoke("-m", MODEL, *animals, *ask)
    assert result.exit_code == 1
    assert says in result.stderr
    assert ("max_tokens" in result.stderr.split("Error: ")[1]) == bool(ask)


def test_a_full_context_is_named(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path / "endless")
    edit_json(folder / "config.json", lambda c: c["text_config"].update(max_position_embeddings=99))
    ok("mtplx", "add", str(folder), "-a", "endless")
    schema = json.dumps({"type": "string"})
    result = invoke("-m", "endless", "Hello!", "--schema", schema)
    assert result.exit_code == 1
    assert "reached the end of the context, 99 tokens, before its JSON was" in result.stderr
    assert "Shorten the prompt, or start a new conversation" in result.stderr


def test_what_cannot_be_used_is_one_line() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "strin"}}}
    result = invoke("-m", MODEL, "Hello!", "--schema", json.dumps(bad))
    assert result.exit_code == 1
    wanted = "Error: This schema cannot be used, at $.properties.a: Invalid type: strin\n"
    assert result.stderr == wanted


@pytest.mark.parametrize(("depth", "temperature"), [(2, 0), (0, 1.3), (3, 1.3)])
def test_the_state_after_json_is_that_of_a_cold_prefill(depth: int, temperature: float) -> None:
    """Talk compares ids and arrays of every turn with those of a turn that reads all again."""
    schema, _ = SCHEMAS["event"]
    talk = Talk(small_model(), Bank(LIMITS, lambda: 0.0))
    options = {"temperature": temperature, "seed": 3, "depth": depth, "max_tokens": 200}
    talk.say(INTRODUCTION, schema=schema, **options)
    jsonschema.validate(json.loads(talk.turn.answer.text), schema)
    told = talk.say("What is my name?", **{**options, "max_tokens": 5})
    assert told.restored > 10
    talk.say("As JSON.", schema=schema, **options)
    jsonschema.validate(json.loads(talk.turn.answer.text), schema)


def test_thinking_may_be_cut_short_before_the_json() -> None:
    options = ["-o", "thinking", "on", "-o", "thinking_budget", "3", "-o", "draft", "3"]
    assert json.loads(ok("-m", MODEL, INTRODUCTION, "--schema", DSL, *options)) == TAMSIN
    # The newline before the closing tag is one more than the budget.
    assert json.loads(last_log()["token_details"])["reasoning"] <= 4


def test_tools_come_before_the_json() -> None:
    both = invoke("-m", MODEL, INTRODUCTION, "--schema", DSL, "-T", "llm_version")
    assert both.exit_code == 1
    assert both.stderr.startswith("Error: A schema and tools cannot be used together")
    ok("-m", MODEL, "What version of llm is this?", "-T", "llm_version")
    assert last_log()["prompt"] == ""  # the round after the call
    assert json.loads(ok("-c", INTRODUCTION, "--schema", DSL)) == TAMSIN
    assert last_log()["response_json"]["cache"]["restored"] > 80
