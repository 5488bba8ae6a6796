"""Tool rounds, and what follows them, go on from what was read before."""

import pytest

from llm_mtplx.chat.tools import declare
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.reasons import Reason

from ..dictated import LIMITS, small_model
from .talk import Clock, Talk

SYSTEM = {"role": "system", "content": "You answer in short sentences and you are never rude."}
TOOLS = [declare("f", "Find it", {"type": "object", "properties": {"n": {"type": "integer"}}})]
ROUNDS = 10


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


@pytest.fixture
def bank() -> Bank:
    return Bank(LIMITS, Clock())


def call(model: LoadedModel, *numbers: int, text: str = "") -> list[int]:
    """The ids of an answer that calls ``f``."""
    calls = "\n".join(
        f"<tool_call>\n<function=f>\n<parameter=n>\n{n}\n</parameter>\n</function>\n</tool_call>"
        for n in numbers
    )
    (eos,) = model.eos_ids
    return [*model.tokenizer.encode(f"{text}\n\n{calls}" if text else calls), eos]


def shared(before: list[int], prompt: list[int]) -> int:
    """What of the line before the prompt begins with."""
    return next(
        (i for i, pair in enumerate(zip(before, prompt, strict=False)) if pair[0] != pair[1]),
        min(len(before), len(prompt)),
    )


@pytest.mark.parametrize("preserve", [False, True])
def test_a_long_chain_and_the_question_after_it_read_only_what_is_new(
    model, bank, preserve
) -> None:
    talk = Talk(
        model, bank, template={"tools": TOOLS, "preserve_thinking": preserve}, messages=[SYSTEM]
    )
    question = "Find the ten numbers that I have lost, one after the other, and add them all up."
    talk.say(question, dictated=call(model, 0), max_tokens=99, depth=3)
    reusable = restored = 0
    for number in range(1, ROUNDS + 1):
        before = talk.turn.decoder.state.ids
        answer = call(model, number) if number < ROUNDS else None
        done = talk.results(f"found {number}", dictated=answer, max_tokens=99 if answer else 12)
        reusable += shared(before, talk.turn.prompt)
        restored += done.restored
    before = talk.turn.decoder.state.ids
    done = talk.say("And now?")
    reusable += shared(before, talk.turn.prompt)
    restored += done.restored
    assert restored >= 0.95 * reusable
    assert done.restored >= 0.95 * shared(before, talk.turn.prompt)
    assert done.miss_reason == (None if preserve else Reason.TEMPLATE_REWRITES)
    assert len(bank.sessions) == 1


def test_a_call_is_gone_on_from_in_its_own_ids(model, bank) -> None:
    talk = Talk(model, bank, template={"tools": TOOLS})
    spelled = [token for letter in "capital" for token in model.tokenizer.encode(letter)]
    dictated = [*spelled, *model.tokenizer.encode("\n\n"), *call(model, 7, 8)]
    assert model.tokenizer.encode(model.tokenizer.decode(dictated)) != dictated
    first = talk.say("One.", dictated=dictated, max_tokens=99)
    assert first.finish_reason == "tool_calls"
    assert [c.arguments for c in talk.turn.answer.calls] == [{"n": 7}, {"n": 8}]
    whole = talk.turn.decoder.state.position
    done = talk.results("a", "b")
    assert (done.restored, done.miss_reason) == (whole, None)


@pytest.mark.parametrize(
    "markup",
    [
        '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>',
        "<tool_call><function=f><parameter=n>1</parameter></function></tool_call>",
    ],
)
def test_a_call_in_other_words_than_the_templates_is_read_again(model, bank, markup: str) -> None:
    talk = Talk(model, bank, template={"tools": TOOLS})
    (eos,) = model.eos_ids
    talk.say("One.", dictated=[*model.tokenizer.encode(markup), eos], max_tokens=99)
    assert [c.arguments for c in talk.turn.answer.calls] == [{"n": 1}]
    done = talk.results("a")
    assert done.miss_reason == Reason.TEMPLATE_REWRITES
    assert done.restored > 0


def test_an_edited_call_is_told_from_a_rewritten_one(model, bank) -> None:
    talk = Talk(model, bank, template={"tools": TOOLS})
    talk.say("One.", dictated=call(model, 1), max_tokens=99)
    talk.messages[-1]["tool_calls"][0]["function"]["arguments"] = {"n": 2}
    assert talk.results("a").miss_reason == Reason.HISTORY_EDITED
