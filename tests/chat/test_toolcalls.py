"""The calls in an answer do not depend on how it arrives, and are never made up."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tool_parsers import qwen3_coder

from llm_mtplx.chat.calls import read_call
from llm_mtplx.chat.pieces import Call
from llm_mtplx.chat.toolcalls import ToolCallScanner
from llm_mtplx.chat.tools import declare

TOOLS = [
    declare(
        "edit",
        "Edit a file",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "text": {"type": "string"},
                "edits": {"type": "array", "items": {"type": "object"}},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "dry": {"type": "boolean"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "mode": {"enum": ["fast", "slow"]},
                "free": {},
            },
        },
    ),
    declare("now", None, {"type": "object", "properties": {}}),
]


def xml(name: str, **arguments: str) -> str:
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def hermes(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


MARKUP = "<tool_call>\n<function=x>\n<parameter=y>\nz\n</parameter>\n</function>\n</tool_call>"
NOW = Call("now", {})

# (answer, the text of it, its calls, how many pieces of it look like calls and are none)
ANSWERS = [
    (xml("now"), "", [NOW], 0),
    ("Look:\n\n" + xml("edit", path="a b"), "Look:", [Call("edit", {"path": "a b"})], 0),
    (
        "Two:\n\n" + xml("edit", path="a") + "\n" + xml("edit", count="3") + "\n\nDone.\n",
        "Two:Done.\n",
        [Call("edit", {"path": "a"}), Call("edit", {"count": 3})],
        0,
    ),
    (
        xml("edit", text="1\n\n  2\n", edits='[{"a": [1, {"b": "</parameter>"}]}]', dry="true"),
        "",
        [
            Call(
                "edit",
                {"text": "1\n\n  2\n", "edits": [{"a": [1, {"b": "</parameter>"}]}], "dry": True},
            )
        ],
        0,
    ),
    (xml("edit", text=MARKUP), "", [Call("edit", {"text": MARKUP})], 0),
    (
        xml("edit", text="write <parameter=x> and </function>") + xml("now"),
        "",
        [Call("edit", {"text": "write <parameter=x> and </function>"}), NOW],
        0,
    ),
    (
        hermes("edit", {"text": "a </tool_call> b", "count": 2}) + "\n" + hermes("now", {}),
        "",
        [Call("edit", {"text": "a </tool_call> b", "count": 2}), NOW],
        0,
    ),
    ('<tool_call>\n{"name": "now"}\n</tool_call>', "", [NOW], 0),
    ('<tool_call>{"name": "now", "arguments": "{}"}</tool_call>', "", [NOW], 0),
    (
        '<tool_call>\n<function=edit>\n{"path": "x", "count": 1}\n</function>\n</tool_call>',
        "",
        [Call("edit", {"path": "x", "count": 1})],
        0,
    ),
    # The last tag forgotten.
    (xml("now").removesuffix("\n</tool_call>"), "", [NOW], 0),
    (
        xml("edit", path="a").removesuffix("</tool_call>") + xml("now"),
        "",
        [Call("edit", {"path": "a"}), NOW],
        0,
    ),
    # No calls.
    ("value=abc < 3\n<tool", "value=abc < 3\n<tool", [], 0),
    ("The tag <tool_call> opens one.", "The tag <tool_call> opens one.", [], 0),
    (f"`{MARKUP}`", f"`{MARKUP}`", [], 0),
    (f"Like so:\n```xml\n{MARKUP}\n```\n", f"Like so:\n```xml\n{MARKUP}\n```\n", [], 0),
]  # fmt: skip

# Answers whose markup cannot be read stay text as they are.
UNREADABLE = [
    "<tool_call>\n<function=edit>\nsome words\n</function>\n</tool_call>",
    "<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>",
    "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n"
    "</parameter>\n</function>\n</tool_call>",
    '<tool_call>\n{"name": "edit"}\n</tool_call>',
    '<tool_call>\n{"name": "edit", "arguments": [1]}\n</tool_call>',
    '<tool_call>\n{"arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "edit", "arguments": {"a": }}\n</tool_call>',
    '<tool_call>\n{"name": "edit", "arguments": {"a": "cut',
    "<tool_call>\n<function=edit>\n<parameter=text>\ncut",
    "<tool_call>\n<function=edit>\n{'a': 1}\n</function>\n</tool_call>",
]


def scan(chunks: list[str]) -> tuple[str, list[Call], int]:
    scanner = ToolCallScanner(TOOLS)
    segments = [segment for chunk in chunks for segment in scanner.add(chunk)]
    segments += scanner.finish()
    assert "".join(segment.raw for segment in segments) == "".join(chunks)
    return (
        "".join(segment.text for segment in segments),
        [segment.call for segment in segments if segment.call],
        sum(segment.problem is not None for segment in segments),
    )


@pytest.mark.parametrize(("answer", "text", "calls", "unread"), ANSWERS)
def test_an_answer_in_every_split(answer: str, text: str, calls: list, unread: int) -> None:
    want = (text, calls, unread)
    assert scan([answer]) == want
    assert scan(list(answer)) == want
    for burst in range(2, 9):
        assert scan([answer[i : i + burst] for i in range(0, len(answer), burst)]) == want
    for cut in range(1, len(answer)):
        assert scan([answer[:cut], answer[cut:]]) == want
    # Where a cut matters: next to markup and newlines.
    edges = [i for i in range(1, len(answer)) if {answer[i - 1], answer[i]} & set("<>\n{}")]
    for one, two in itertools.combinations(edges[:40], 2):
        assert scan([answer[:one], answer[one:two], answer[two:]]) == want


def test_a_value_may_hold_tags_that_have_no_partner() -> None:
    for value in ('<launch>\n<parameter name="rate"/>\n</launch>', '<x>\n<function name="f" />'):
        want = ("", [Call("edit", {"text": value})], 0)
        answer = xml("edit", text=value)
        assert scan([answer]) == scan(list(answer)) == want
    # One that looks like the beginning of more is known for none at the end.
    value = "see <function foo> there"
    answer = xml("edit", text=value)
    assert scan([answer]) == scan(list(answer)) == ("", [Call("edit", {"text": value})], 0)


def test_nesting_beyond_reason_is_no_error() -> None:
    deep = "[" * 100_000
    assert scan([xml("edit", tags=deep)])[1] == [Call("edit", {"tags": deep})]
    for cut in ('<tool_call>\n{"name": "edit", "arguments": {"tags": ' + deep,):
        assert scan([cut]) == (cut, [], 1)


@pytest.mark.parametrize("markup", UNREADABLE)
def test_what_cannot_be_read_stays_text(markup: str) -> None:
    for answer in (markup, f"Hm.\n\n{markup}"):
        want = (answer, [], 1)
        assert scan([answer]) == want
        assert scan(list(answer)) == want
        for cut in range(1, len(answer)):
            assert scan([answer[:cut], answer[cut:]]) == want


@pytest.mark.parametrize("markup", UNREADABLE[:7])
def test_a_call_after_what_cannot_be_read(markup: str) -> None:
    answer = f"{markup}\n{xml('now')}"
    assert scan([answer]) == scan(list(answer)) == (markup, [NOW], 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_split_of_any_answers(data: st.DataObject) -> None:
    parts = data.draw(
        st.lists(st.sampled_from([a for a, *_ in ANSWERS] + UNREADABLE), min_size=1, max_size=3)
    )
    answer = "\n".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=6))
    bounds = [0, *sorted(cuts), len(answer)]
    assert scan([answer[a:b] for a, b in itertools.pairwise(bounds)]) == scan([answer])


SAFE = st.text(st.characters(blacklist_characters="<>", blacklist_categories=["Cs"]))


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(["path", "text", "count", "other"]), SAFE))
def test_a_text_argument_is_what_was_written(arguments: dict[str, str]) -> None:
    tools = [declare("f", None, {"properties": {name: {"type": "string"} for name in arguments}})]
    assert read_call(xml("f", **arguments), tools) == Call("f", arguments)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text("abc_", min_size=1), JSON))
def test_json_arguments_are_what_was_written(arguments: dict) -> None:
    assert scan([hermes("f", arguments)]) == ("", [Call("f", arguments)], 0)


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("text", "7", "7"), ("text", "null", "null"), ("text", '"q"', '"q"'),
        ("count", "7", 7), ("count", "7.0", 7), ("count", "7.5", "7.5"), ("count", "five", "five"),
        ("ratio", "7", 7), ("ratio", "0.5", 0.5), ("ratio", "1e3", 1000.0),
        ("ratio", "NaN", "NaN"), ("dry", "true", True), ("dry", "False", False),
        ("dry", "maybe", "maybe"), ("dry", "1", "1"),
        ("edits", '[{"a": 1}]', [{"a": 1}]), ("edits", "[{'a': True}]", [{"a": True}]),
        ("edits", "[oops", "[oops"), ("edits", "[]", []),
        ("note", "null", None), ("note", "none", "none"), ("note", "7", "7"), ("note", "", ""),
        ("mode", "fast", "fast"), ("free", "007", "007"), ("free", "7", 7), ("free", "a b", "a b"),
        ("unknown", '{"a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_arguments_are_typed_by_the_schema(name: str, written: str, value: object) -> None:
    found = read_call(xml("edit", **{name: written}), TOOLS).arguments[name]
    assert found == value and type(found) is type(value)


def test_types_are_found_behind_references() -> None:
    parameters = {
        "properties": {"n": {"$ref": "#/$defs/N"}, "loop": {"$ref": "#/$defs/L"}},
        "$defs": {"N": {"type": "integer"}, "L": {"$ref": "#/$defs/L"}},
    }
    call = read_call(xml("f", n="3", loop="x"), [declare("f", None, parameters)])
    assert call.arguments == {"n": 3, "loop": "x"}


@pytest.mark.parametrize(
    "arguments",
    [{"path": "a"}, {"count": "3", "text": "two\nlines"}, {"edits": '[{"a": 1}]'}, {}],
)
def test_ordinary_calls_read_as_mlx_lm_reads_them(arguments: dict[str, str]) -> None:
    markup = xml("edit", **arguments)
    inner = markup.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    theirs = qwen3_coder.parse_tool_call(inner, TOOLS)
    assert read_call(markup, TOOLS) == Call(theirs["name"], theirs["arguments"])


def test_the_same_declaration_has_one_order() -> None:
    one = declare("f", "d", {"type": "object", "properties": {"b": {"type": "x", "enum": [2, 1]}}})
    two = declare("f", "d", {"properties": {"b": {"enum": [2, 1], "type": "x"}}, "type": "object"})
    assert json.dumps(one) == json.dumps(two)
    assert one["function"]["parameters"]["properties"]["b"]["enum"] == [2, 1]
