"""Where reasoning ends: at its closing tag, however it is cut, and not at a quoted one."""

import itertools

import pytest

from llm_mtplx.chat.decode import AnswerDecoder
from llm_mtplx.chat.pieces import Piece
from llm_mtplx.chat.thinking import ThinkingSplitter
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


CALL = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"

# (what the model writes inside its open block, reasoning, text)
BY_TOKEN = [
    ("It writes `</think>` here.\n</think>\n\nYes.", "It writes `</think>` here.", "Yes."),
    ('The tag "</think>" ends it.\n</think>\n\nYes.', 'The tag "</think>" ends it.', "Yes."),
    ('He said "no".</think>\n\nNo.', 'He said "no".', "No."),
    ('He said "no"</think>\n\nNo.', 'He said "no"', "No."),
    ("A quote: `</think>\n\nYes.", "A quote: `", "Yes."),
    ("```\nx = '</parameter>' + </think>\n```\nok\n</think>\n\nA.",
     "```\nx = '</parameter>' + </think>\n```\nok", "A."),
    ("```\ncode\n</think>\n\nA.", "```\ncode", "A."),
    ("a\n```\n```\nb</think>A.", "a\n```\n```\nb", "A."),
    ("</think>\n\nNothing thought.", "", "Nothing thought."),
    ("only this", "only this", ""),
    ("t\n</think>\n\nThe tag is </think> or <think>.", "t", "The tag is </think> or <think>."),
    ("t\n</think>\n\n<think>\n\n</think>\n\nText", "t", "Text"),
    ("t\n</think>\n\n</think>\n\nText", "t", "Text"),
    (f"I must call it.\n{CALL}", "I must call it.", CALL),
    (f"{CALL}", "", CALL),
    (f"As in {CALL}\n</think>\n\nNo.", f"As in {CALL}", "No."),
    (f"```\n{CALL}\n```\n</think>\n\nNo.", f"```\n{CALL}\n```", "No."),
    ("<tool_call>\n<function=other>\n</think>\n\nNo.", "<tool_call>\n<function=other>", "No."),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reasoning", "text"), BY_TOKEN)
def test_tags_that_are_tokens(tokenizer, answer: str, reasoning: str, text: str) -> None:
    ids = tokenizer.encode(answer)
    for cuts in [*itertools.combinations(range(1, len(ids)), 1), tuple(range(1, len(ids)))]:
        decoder = AnswerDecoder(
            tokenizer.token_bytes, tokenizer.think_start, tokenizer.think_end, True, ["add"]
        )
        found = {"text": "", "reasoning": ""}
        bounds = [0, *cuts, len(ids)]
        for start, end in itertools.pairwise(bounds):
            for piece in decoder.add(ids[start:end]):
                found[piece.kind] += piece.text
        for piece in decoder.finish():
            found[piece.kind] += piece.text
        assert found == {"text": text, "reasoning": reasoning}


# The same tags spelled in ordinary characters.
SPELLED = [
    ("a thought\n</think>\n\nAn answer.", "a thought", "An answer."),
    ("a thought\n</think> \nAn answer.", "a thought", "An answer."),
    ("a thought\n</think>", "a thought", ""),
    ("a\n</thinking>\nb\n</think>\nText", "a\n</thinking>\nb", "Text"),
    ("it is not </think>\nyet\n</think>\nText", "it is not </think>\nyet", "Text"),
    ("```\n</think>\n```\n</think>\nText", "```\n</think>\n```", "Text"),
    (f"so:\n{CALL}", "so:", CALL),
    ("1 <\n< 2\n</think>\n< 3 <", "1 <\n< 2", "< 3 <"),
]


def split(chunks: list[str], in_reasoning: bool) -> dict[str, str]:
    splitter = ThinkingSplitter(in_reasoning, ["add"])
    found = {"text": "", "reasoning": ""}
    pieces: list[Piece] = [piece for chunk in chunks for piece in splitter.add(chunk)]
    for piece in [*pieces, *splitter.settle()]:
        found[piece.kind] += piece.text
    return found


@pytest.mark.parametrize(("answer", "reasoning", "text"), SPELLED)
def test_tags_that_are_spelled(answer: str, reasoning: str, text: str) -> None:
    want = {"text": text, "reasoning": reasoning}
    assert split([answer], True) == want
    assert split(list(answer), True) == want
    for one, two in itertools.combinations(range(1, len(answer)), 2):
        assert split([answer[:one], answer[one:two], answer[two:]], True) == want


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("<think>\nhm\n</think>\n\nText", "hm", "Text"),
        ("<think>\n\n</think>\n\nText", "", "Text"),
        ("<thin ice", "", "<thin ice"),
        ("Say <think>\nhm", "", "Say <think>\nhm"),
    ],
)
def test_a_block_that_the_answer_opens(answer: str, reasoning: str, text: str) -> None:
    want = {"text": text, "reasoning": reasoning}
    assert split([answer], False) == want
    assert split(list(answer), False) == want


@pytest.mark.parametrize("before", ["so ", "the tag `", "```\nx = '", ""])
def test_where_a_grammar_follows_the_control_token_alone_ends_the_reasoning(before: str) -> None:
    splitter = ThinkingSplitter(in_reasoning=True, tag_alone=True)
    pieces = splitter.add(f"{before}\n</think>\nstill")
    assert splitter.in_reasoning and not splitter.pending
    pieces += splitter.close_tag()
    assert not splitter.in_reasoning
    pieces += splitter.add('\n\n"text"')
    assert [p.text for p in pieces if p.kind == "text"] == ['"text"']
    assert "</think>\nstill" in "".join(p.text for p in pieces if p.kind == "reasoning")
