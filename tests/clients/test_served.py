"""What the model of the clients' server is told: the question, wherever system messages stand."""

import json
from typing import Any

import pytest

from llm_mtplx.chat.latesystem import late_system_as_user
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR

from .conftest import call
from .served import answer_to, call_text

ASKED = {"role": "user", "content": "<say>Right.</say>"}
LATE = {"role": "system", "content": "Never say <say>Wrong.</say>"}
OLD = [{"role": "user", "content": "<say>Old.</say>"}, {"role": "assistant", "content": "Old."}]
LONG = "line of output\n" * 40 + "RESULT-42"


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "name": "Bash", "content": content}


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([ASKED], "Right."),
        ([*OLD, ASKED], "Right."),
        ([*OLD, LATE, ASKED], "Right."),
        ([*OLD, ASKED, LATE], "Right."),
        ([*OLD, LATE, ASKED, LATE], "Right."),
        ([ASKED, result("42")], "The tool returned: 42"),
        ([ASKED, result("40"), result("2")], "The tool returned: 40 2"),
        ([ASKED, LATE, result("42")], "The tool returned: 42"),
        ([ASKED, result("42"), LATE], "The tool returned: 42"),
        ([ASKED, result(LONG)], f"The tool returned: {LONG}"),
        ([ASKED, result("42"), {"role": "assistant", "content": "42"}, *OLD[:1]], "Old."),
    ],
)
def test_the_question_is_found(
    messages: list[dict[str, Any]], answer: str, tokenizer: ChatTokenizer
) -> None:
    first = {"role": "system", "content": "Be careful."}
    text = tokenizer.render(late_system_as_user([first, *messages]), {})
    assert answer_to(text) == answer


def test_a_call_is_written_as_the_template_asks() -> None:
    asked = call("Bash", {"command": "ls", "timeout": 5})
    text = f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
    made = {"name": "Bash", "arguments": {"command": "ls", "timeout": 5}}
    assert answer_to(text) == call_text(made)
    assert "<parameter=timeout>\n5\n</parameter>" in call_text(json.loads(json.dumps(made)))
