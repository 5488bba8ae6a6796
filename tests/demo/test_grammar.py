"""The data generator: from a seed, without the names kept for the evaluation, rightly marked."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer

from llm_mtplx.demo import MODEL_DIR
from tools.demo_model import numbers
from tools.demo_model.conversations import Conversation, Grammar
from tools.demo_model.packing import Marker, pack, to_text
from tools.demo_model.tokenizer import CONTROL, SPECIAL, letter_pieces
from tools.demo_model.words import FRESH_NAMES


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))


def draw(seed: int, count: int, pieces: tuple[str, ...] = ()) -> list[Conversation]:
    grammar = Grammar(seed, pieces)
    return [grammar.draw() for _ in range(count)]


def test_a_seed_decides_everything() -> None:
    assert draw(3, 50) == draw(3, 50)
    assert draw(3, 50) != draw(4, 50)


def test_evaluation_names_never_occur(tokenizer: Tokenizer) -> None:
    text = "\n".join(to_text(c) for c in draw(20, 3000, letter_pieces(tokenizer))).lower()
    words = set(re.findall(r"\w+", text))
    assert not words & {name.lower() for name in FRESH_NAMES}


def test_sums_are_right() -> None:
    rng = Random(0)
    for _ in range(200):
        answer = numbers.big_sum(rng).answer
        for a, b, total in re.findall(r"(\d+) \+ (\d+) = (\d+)", answer):
            assert int(a) + int(b) == int(total)


def test_roles_alternate_and_thoughts_follow_the_mode() -> None:
    for drawn in draw(5, 500):
        previous = ""
        for message in drawn.messages:
            assert message["role"] != previous or message["role"] == "tool"
            previous = message["role"]
            assert drawn.thinking or "reasoning_content" not in message
        assert previous == "assistant"


def test_only_what_the_model_says_is_marked(tokenizer: Tokenizer) -> None:
    marker = Marker(tokenizer)
    for drawn in draw(6, 300):
        ids = tokenizer.encode(to_text(drawn)).ids
        marked = np.array(ids)[marker.mark(ids)]
        said = tokenizer.decode(marked.tolist(), skip_special_tokens=False).split("<|im_end|>")
        replies = [m for m in drawn.messages if m["role"] == "assistant"]
        assert said.pop() == ""
        assert len(said) == len(replies)
        for text, reply in zip(said, replies, strict=True):
            thought = reply.get("reasoning_content", "")
            answer = text.removeprefix(f"{thought}\n</think>\n\n") if thought else text
            assert answer.startswith(reply["content"])


def test_packing_keeps_every_document_whole() -> None:
    documents = [([n] * (n % 40 + 1), np.ones(n % 40 + 1, dtype=bool)) for n in range(1, 200)]
    rows = pack(documents, 64, pad=0)
    assert rows.answer.sum() == sum(len(ids) for ids, _ in documents)
    for ids, _ in documents:
        row, column = np.argwhere((rows.ids == ids[0]) & (rows.position == 0))[0]
        span = slice(column, column + len(ids))
        assert rows.ids[row, span].tolist() == ids
        assert rows.position[row, span].tolist() == list(range(len(ids)))
        assert len(set(rows.document[row, span].tolist())) == 1


def test_control_tokens_are_single_and_in_order(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode(text).ids for text in CONTROL]
    assert ids == [[2048 - len(CONTROL) + i] for i in range(len(CONTROL))]
    assert tokenizer.decode([i for (i,) in ids]) == "".join(CONTROL[len(SPECIAL) :])
