"""System messages in mid-conversation, by templates that take them there and that do not."""

from pathlib import Path

import pytest

from llm_mtplx.chat.latesystem import CLOSE, OPEN, in_place
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR

from ..folders import copy_demo

OPENING = "{%- for m in messages -%}"
TURN = "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ (m.content | trim) ~ '<|im_end|>\\n' }}{%- endfor -%}"
HOISTED = (
    "{%- for m in messages if m.role == 'system' -%}{{ m.content ~ '\\n' }}{%- endfor -%}"
    "{%- for m in messages if m.role != 'system' -%}"
)
DROPPED = "{%- for m in messages if m.role != 'system' or loop.first -%}"


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def marked(text: str) -> str:
    return f"{OPEN}{text}{CLOSE}"


SYSTEM, ASKED, SAID = message("system", "s"), message("user", "q"), message("assistant", "a")
LATE, RESULT = message("system", "late"), {"role": "tool", "name": "f", "content": "r"}


@pytest.fixture(scope="module")
def demo() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


@pytest.mark.parametrize(
    ("messages", "taken"),
    [
        ([SYSTEM, ASKED, SAID, LATE, ASKED], [SYSTEM, ASKED, SAID, ("user", "L\n\nq")]),
        ([ASKED, LATE], [ASKED, ("user", "L")]),
        ([ASKED, LATE, SAID, ASKED], [ASKED, ("user", "L"), SAID, ASKED]),
        ([ASKED, SAID, RESULT, LATE], [ASKED, SAID, ("tool", "r\n\nL")]),
        ([ASKED, SAID, RESULT, LATE, SAID], [ASKED, SAID, ("tool", "r\n\nL"), SAID]),
        ([ASKED, SAID, LATE, RESULT], [ASKED, SAID, ("tool", "L\n\nr")]),
        ([SYSTEM, LATE, LATE, ASKED], [SYSTEM, ("user", "L\n\nL\n\nq")]),
        ([SYSTEM, ASKED], [SYSTEM, ASKED]),
    ],
)
def test_marked_in_a_neighbour(
    demo: ChatTokenizer, messages: list[dict], taken: list[dict | tuple]
) -> None:
    expected = [
        message(m[0], m[1].replace("L", marked("late"))) if isinstance(m, tuple) else m
        for m in taken
    ]
    given = [dict(m) for m in messages]
    found = in_place(messages, demo)
    assert [{**m, "name": None} for m in found] == [{**m, "name": None} for m in expected]
    assert messages == given


def test_the_prompt_only_grows(demo: ChatTokenizer) -> None:
    conversation = [SYSTEM, ASKED, LATE, SAID, message("user", "q2"), SAID, RESULT, LATE, SAID]

    def text(upto: int) -> str:
        messages = in_place(conversation[:upto], demo)
        # Reasoning is shown of the latest answers alone; that is the template's own rule.
        return demo.render(messages, {"preserve_thinking": True}, generation_prompt=False)

    for upto in (3, 5, 8):
        assert text(len(conversation)).startswith(text(upto))


@pytest.mark.parametrize(
    ("template", "stays"), [(OPENING, True), (HOISTED, False), (DROPPED, False)]
)
def test_only_where_the_template_shows_it_there(tmp_path: Path, template: str, stays: bool) -> None:
    folder = copy_demo(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template + TURN)
    messages = [SYSTEM, ASKED, SAID, LATE, ASKED]
    found = in_place(messages, ChatTokenizer(folder))
    assert (found == messages) == stays
    assert (len(found) == 5) == stays
