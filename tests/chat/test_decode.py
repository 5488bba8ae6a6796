"""Splitting an answer gives the same parts however its tokens arrive."""

import itertools

import pytest
from tokenizers import Tokenizer

from llm_mtplx.chat.decode import AnswerDecoder, TextDecoder
from llm_mtplx.chat.tokenizer import ChatTokenizer, token_bytes
from llm_mtplx.demo import MODEL_DIR


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


def parts(tokenizer: ChatTokenizer, bursts: list[list[int]], in_reasoning: bool) -> dict[str, str]:
    decoder = AnswerDecoder(
        tokenizer.token_bytes, tokenizer.think_start, tokenizer.think_end, in_reasoning
    )
    found = {"text": "", "reasoning": ""}
    for pieces in [*map(decoder.add, bursts), decoder.finish()]:
        for piece in pieces:
            assert piece.text
            found[piece.kind] += piece.text
    return found


ANSWERS = [
    # (what the model writes, whether the prompt left a think block open, reasoning, text)
    ("Paris.", False, "", "Paris."),
    ("a thought\n</think>\n\nAn answer.", True, "a thought", "An answer."),
    ("two\n\nlines\n\n</think>\n\nDone", True, "two\n\nlines", "Done"),
    ("</think>\n\nJust text", True, "", "Just text"),
    ("\n\n</think>\n\nJust text", True, "", "Just text"),
    ("never closed", True, "never closed", ""),
    ("<think>\nopened here\n</think>\n\nText", False, "opened here", "Text"),
    ("<think>\n\n</think>\n\nText", False, "", "Text"),
    ("Text\n\nwith newlines\n", False, "", "Text\n\nwith newlines\n"),
    ("Grüße 🙂 in Zürich", False, "", "Grüße 🙂 in Zürich"),
]


@pytest.mark.parametrize(("answer", "in_reasoning", "reasoning", "text"), ANSWERS)
def test_parts_do_not_depend_on_bursts(
    tokenizer: ChatTokenizer, answer: str, in_reasoning: bool, reasoning: str, text: str
) -> None:
    ids = tokenizer.encode(answer)
    for cuts in itertools.combinations(range(1, len(ids)), 2):
        bounds = [0, *cuts, len(ids)]
        bursts = [ids[a:b] for a, b in itertools.pairwise(bounds)]
        assert parts(tokenizer, bursts, in_reasoning) == {"text": text, "reasoning": reasoning}
    one_by_one = [[token] for token in ids]
    assert parts(tokenizer, one_by_one, in_reasoning) == {"text": text, "reasoning": reasoning}


def test_bytes_that_are_no_text_are_replaced_not_lost(tokenizer: ChatTokenizer) -> None:
    (first, *_) = tokenizer.encode("🙂")
    decoder = TextDecoder([b"\xf0\x9f", b"ab", b"\x99"])
    assert first is not None
    assert [decoder.add(0), decoder.add(1)] == ["", "\ufffdab"]
    assert decoder.add(2) + decoder.finish() == "\ufffd"


def test_an_id_beyond_the_tokenizer_has_no_text(tokenizer: ChatTokenizer) -> None:
    assert TextDecoder(tokenizer.token_bytes).add(10**6) == ""


def test_token_bytes_are_what_the_tokenizer_decodes() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    table = token_bytes(tokenizer)
    assert len(table) == tokenizer.get_vocab_size()
    for token_id, raw in enumerate(table):
        decoded = tokenizer.decode([token_id], skip_special_tokens=False)
        assert raw.decode("utf-8", "replace") == decoded


@pytest.mark.parametrize("script", ["नमस्ते दुनिया", "สวัสดี", "مرحبا", "Grüße", "汉字"])
def test_encoding_is_the_packs_own(tokenizer: ChatTokenizer, script: str) -> None:
    own = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    assert tokenizer.encode(script) == own.encode(script, add_special_tokens=False).ids


@pytest.mark.parametrize(("enable", "starts"), [(True, True), (False, False)])
def test_whether_the_prompt_leaves_a_think_block_open(tokenizer, enable, starts) -> None:
    messages = [{"role": "user", "content": "What is <think>?"}]
    ids = tokenizer.encode(tokenizer.render(messages, {"enable_thinking": enable}))
    assert tokenizer.starts_in_reasoning(ids) is starts
