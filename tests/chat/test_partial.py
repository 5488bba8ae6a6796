"""What is told of a call that is being written is how its arguments begin."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.chat.pieces import Call, CallPart
from llm_mtplx.chat.toolcalls import ToolCallScanner

from .test_toolcalls import ANSWERS, JSON, TOOLS, UNREADABLE, hermes, xml

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
PIECES = st.lists(
    st.sampled_from(["<", "</", "parameter>", "</parameter>", "\n", "<parameter=path>", "function",
                     "tool_call>", "</function>", "a", '"', "\\", "\u00e9", " ", "7"])
    | TEXT,
    max_size=8,
).map("".join)  # fmt: skip
NAMES = ["path", "text", "count", "edits", "note", "mode", "free", "other"]
XML = st.dictionaries(st.sampled_from(NAMES), PIECES | st.sampled_from(["7", "null", '[{"a": 1}]']))
ANY = (
    XML.map(lambda given: xml("edit", **given))
    | st.dictionaries(TEXT, JSON).map(lambda given: hermes("edit", given))
    | st.dictionaries(TEXT, JSON).map(
        lambda given: (
            "<tool_call>"
            + json.dumps({"name": "edit", "arguments": given}, ensure_ascii=False, indent=1)
            + "</tool_call>"
        )
    )
    | st.sampled_from([answer for answer, *_ in ANSWERS] + UNREADABLE)
)


def check(chunks: list[str]) -> int:
    """How much was told before a call was over."""
    scanner = ToolCallScanner(TOOLS)
    sent: str | None = None
    early = 0
    for chunk in [*chunks, None]:
        for segment in scanner.finish() if chunk is None else scanner.add(chunk):
            if isinstance(part := segment.part, CallPart):
                assert part.begins == (sent is None)
                sent = (sent or "") + part.text
                early += len(part.text)
            if isinstance(call := segment.call, Call):
                assert json.dumps(call.arguments, ensure_ascii=False).startswith(sent or "")
                sent = None
            if segment.problem is not None:
                sent = None
    return early


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_parts_are_how_the_arguments_begin(data: st.DataObject) -> None:
    answer = "\n".join(data.draw(st.lists(ANY, min_size=1, max_size=2)))
    check(list(answer))
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=8))
    bounds = [0, *sorted(cuts), len(answer)]
    check([answer[a:b] for a, b in itertools.pairwise(bounds)])


@pytest.mark.parametrize("text", ["line <b>1</b>\n" * 500, 'quo"te\\ \u00e9 \U0001f600 \x01' * 300])
def test_a_long_text_is_told_while_it_is_written(text: str) -> None:
    whole = len(json.dumps(text, ensure_ascii=False))
    for answer in (
        xml("edit", path="a.py", text=text),
        hermes("edit", {"path": "a", "text": text}),
    ):
        assert check(list(answer)) > whole


def test_other_arguments_are_told_when_they_are_over() -> None:
    for answer in (xml("edit", count="7", path="a"), hermes("edit", {"count": 7, "path": "a"})):
        scanner = ToolCallScanner(TOOLS)
        parts = [s.part.text for c in answer for s in scanner.add(c) if s.part is not None]
        assert '{"count": 7, "path": "a' in "".join(parts)
        assert '"count": ' in parts[0] and "7" not in parts[0]


def test_a_list_that_is_long_is_read_once() -> None:
    edits = [{"old": 'a "b" \\ ]', "new": "}" * n} for n in range(200)]
    answer = hermes("edit", {"edits": edits, "path": "a"})
    assert check(list(answer)) > len(json.dumps(edits))
