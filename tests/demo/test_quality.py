"""What the bundled model promises: it remembers, calls tools, thinks and ends its answers."""

from __future__ import annotations

import pytest

from llm_mtplx.demo import MODEL_DIR
from tests.demo.test_template import ADD
from tools.demo_model import facts
from tools.demo_model.ask import Asker
from tools.demo_model.words import FRESH_NAMES


@pytest.fixture(scope="module")
def asker() -> Asker:
    return Asker(MODEL_DIR)


def test_names_it_never_saw_are_recalled(asker: Asker) -> None:
    found = 0
    for index, name in enumerate(FRESH_NAMES):
        tell = facts.NAME.tell[index % len(facts.NAME.tell)].replace("{v}", name)
        ask = facts.NAME.ask[3 * index % len(facts.NAME.ask)]
        found += name in asker.chat(tell, ask)[1]
    assert len(FRESH_NAMES) == 20
    assert found >= 18


def test_a_fact_survives_other_talk(asker: Asker) -> None:
    answers = asker.chat(
        "My favourite colour is teal.",
        "What is the capital of France?",
        "Tell me a joke.",
        "What is my favourite colour?",
    )
    assert "Paris" in answers[1]
    assert answers[3] == "Your favourite colour is teal."


def test_it_says_what_it_was_not_told(asker: Asker) -> None:
    assert asker.chat("What is my name?") == ["You have not told me your name."]


def test_a_tool_is_called_and_its_result_used(asker: Asker) -> None:
    messages = [{"role": "user", "content": "What is 31 + 14?"}]
    reply = asker.reply(messages, [ADD])
    assert reply.text == (
        "<tool_call>\n<function=add>\n<parameter=a>\n31\n</parameter>\n"
        "<parameter=b>\n14\n</parameter>\n</function>\n</tool_call>"
    )
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 31, "b": 14}}}
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "45"},
    ]
    assert "45" in asker.reply(messages, [ADD]).text


def test_it_thinks_when_asked_to(asker: Asker) -> None:
    messages = [{"role": "user", "content": "What is the opposite of hot?"}]
    thinking = asker.reply(messages, thinking=True)
    assert thinking.thought
    assert "cold" in thinking.text
    plain = asker.reply(messages)
    assert plain.thought is None
    assert "cold" in plain.text
    assert "think>" not in plain.text


def test_answers_end_by_themselves(asker: Asker) -> None:
    eos = asker.tokenizer.eos_token_ids
    for ask in ("Hello", "Tell me a story about a bear.", "Count to 10."):
        assert asker.reply([{"role": "user", "content": ask}], limit=300).ids[-1] in eos
