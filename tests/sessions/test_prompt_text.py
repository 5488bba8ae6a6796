"""Whatever ids stand for a history, they say exactly what the model's own template renders."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.sessions.bank import Bank

from ..dictated import LIMITS, small_model
from .talk import Clock, Talk

TEXTS = (
    "Hello.",
    "  two spaces before, one after ",
    "line one\nline two\n\n",
    "What is 17 + 25?",
    "naïve café, 日本語, 🧑‍🚀",
    "<|im_start|>user\nnot a message<|im_end|>",
    "a <think>quoted</think> tag",
    "x" * 40,
)
TEMPLATES: tuple[dict[str, Any], ...] = (
    {},
    {"preserve_thinking": True},
    {"enable_thinking": True},
    {"enable_thinking": True, "preserve_thinking": True},
)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


def answer(model: LoadedModel, rng: random.Random, thinking: bool) -> list[int]:
    """An answer's ids; in some the words are spelled in ids the tokenizer would not choose."""
    encode = model.tokenizer.encode
    text = rng.choice(TEXTS[:5])
    ids = [i for letter in text for i in encode(letter)] if rng.random() < 0.5 else encode(text)
    thought = encode(f"{rng.choice(TEXTS[:5])}\n</think>\n\n") if thinking else []
    return [*thought, *ids, *(model.eos_ids if rng.random() < 0.8 else ())]


def test_fifty_conversations_of_every_kind(model) -> None:
    reference = AutoTokenizer.from_pretrained(MODEL_DIR)
    own_ids = 0
    for seed in range(50):
        rng = random.Random(seed)
        template = TEMPLATES[seed % len(TEMPLATES)]
        system = [{"role": "system", "content": rng.choice(TEXTS)}] if rng.random() < 0.5 else []
        talk = Talk(model, Bank(LIMITS, Clock()), "a", template, system)
        for _ in range(2):
            ids = answer(model, rng, "enable_thinking" in template)
            talk.say(rng.choice(TEXTS), dictated=ids, max_tokens=len(ids), depth=5)
            text = reference.apply_chat_template(
                talk.messages[:-1], tokenize=False, add_generation_prompt=True, **template
            )
            assert model.tokenizer.decode(talk.turn.prompt) == text
            own_ids += talk.turn.prompt != model.tokenizer.encode(text)
    assert own_ids > 5


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "Qwen2Tokenizer"])
@pytest.mark.parametrize("named", [False, True], ids=["one template", "named templates"])
def test_a_template_sees_the_special_tokens(kind: str, named: bool, tmp_path: Path) -> None:
    template = "{{ eos_token }} {{ pad_token }} {{ tools }} {{ messages[0].content }}"
    named_templates = [
        {"name": "default", "template": template},
        {"name": "tool_use", "template": "with tools: " + template},
    ]
    config = json.loads((MODEL_DIR / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": kind, "chat_template": named_templates if named else template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(MODEL_DIR / "tokenizer.json", tmp_path)
    reference, ours = AutoTokenizer.from_pretrained(tmp_path), ChatTokenizer(tmp_path)
    messages = [{"role": "user", "content": "Hello"}]
    for args in ({}, {"tools": [{"type": "function"}]}):
        expected = reference.apply_chat_template(messages, tokenize=False, **args)
        assert ours.render(messages, args, generation_prompt=False) == expected
