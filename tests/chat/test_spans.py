"""A text says of which tokens it is made, and says nothing of those of which it has a part."""

import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.chat.answer import Answer
from llm_mtplx.chat.decode import AnswerDecoder
from llm_mtplx.chat.pieces import Piece, Placed
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.chat.tools import declare
from llm_mtplx.demo import MODEL_DIR

TOKENIZER = ChatTokenizer(MODEL_DIR)
TOOLS = [declare("f", None, {"properties": {"t": {"type": "string"}}})]
CALL = "<tool_call>\n<function=f>\n<parameter=t>\na b\n</parameter>\n</function>\n</tool_call>"


def placed(
    bursts: Sequence[Sequence[int]], stops: Sequence[str] = (), thinking: bool = False
) -> tuple[str, list[Placed]]:
    """The text shown of an answer, and its tokens."""
    decoder = AnswerDecoder(
        TOKENIZER.token_bytes, TOKENIZER.think_start, TOKENIZER.think_end, thinking
    )
    answer = Answer(decoder, stops, TOOLS, place_tokens=True)
    text, tokens = "", []
    for parts in [*map(answer.add, bursts), answer.finish()]:
        for part in parts:
            if isinstance(part, Piece) and part.kind == "text":
                text += part.text
                tokens += part.tokens
                # None is told before it is shown.
                assert all(at.offset < len(text) for at in part.tokens)
    assert text == answer.text
    return text, tokens


def listed(ids: Sequence[int], tokens: Sequence[Placed]) -> bytes:
    return b"".join(TOKENIZER.token_bytes[ids[at.index]] for at in tokens)


words = st.text(alphabet="ab é🙂\n<", max_size=6)
parts = st.sampled_from(["<tool_call>", CALL, "\n\n", "</think>", "<think>\n", "a b"])
answers = st.lists(words | parts, max_size=8).map("".join)


@given(answers, st.lists(words.filter(bool), max_size=2), st.booleans(), st.integers(1, 5))
def test_listed_tokens_are_in_the_text_where_they_say(
    said: str, stops: list[str], thinking: bool, burst: int
) -> None:
    ids = TOKENIZER.encode(said)
    text, tokens = placed(
        [ids[at : at + burst] for at in range(0, len(ids), burst)], stops, thinking
    )
    assert (text, tokens) == placed([[token] for token in ids], stops, thinking)
    assert [at.index for at in tokens] == sorted({at.index for at in tokens})
    for at in tokens:
        raw = TOKENIZER.token_bytes[ids[at.index]]
        encoded = text[at.offset :].encode()
        # A token may be the middle of a character.
        assert raw in encoded[: len(raw) + 3]


@given(st.text(max_size=20).filter(lambda said: "<" not in said))
def test_of_plain_text_all_are_listed(said: str) -> None:
    said = unicodedata.normalize("NFC", said)  # as the tokenizer reads it
    ids = TOKENIZER.encode(said)
    text, tokens = placed([ids])
    assert text == said
    assert listed(ids, tokens) == said.encode()


@pytest.mark.parametrize(
    ("said", "stops", "thinking", "text", "tokens"),
    [
        ("a thought\n</think>\n\nAn answer.", [], True, "An answer.", "An answer."),
        (f"Look{CALL}", [], False, "Look", "Look"),
        (f"Look\n\n{CALL}\n\nDone.", [], False, "LookDone.", "LookDone."),
        (f"Look:\n\n{CALL}", [], False, "Look:", "Look"),  # one token holds all after it
        ("to the END of it", ["END"], False, "to the ", "to the"),
        ("🙂 Grüße", ["xyz"], False, "🙂 Grüße", "🙂 Grüße"),
    ],
)
def test_what_is_not_wholly_text_is_not_listed(said, stops, thinking, text, tokens) -> None:
    ids = TOKENIZER.encode(said)
    shown, found = placed([ids], stops, thinking)
    assert (shown, listed(ids, found).decode()) == (text, tokens)


def test_a_token_that_is_cut_is_not_listed() -> None:
    ids = TOKENIZER.encode("What is the capital?")
    text, tokens = placed([ids], ["pital"])
    assert text == "What is the ca"
    assert listed(ids, tokens) == b"What is the"


def test_bytes_that_are_no_text() -> None:
    ids = [TOKENIZER.token_bytes.index(raw) for raw in (b"\xf0", b"a", b"\x99", b"\x99", b"\xc3")]
    text, tokens = placed([ids])
    assert text == "\ufffda\ufffd\ufffd\ufffd"
    assert [at.index for at in tokens] == list(range(5))
