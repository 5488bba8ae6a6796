"""Whatever a grammar lets through is one call of a function that was asked for."""

import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from llm_mtplx.chat.calls import read_call
from llm_mtplx.chat.forced import call_grammar
from llm_mtplx.chat.grammar import AnswerRules
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.chat.tools import declare
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.errors import RequestError

from ..folders import copy_demo

Schema = dict[str, Any]


def takes(*required: str, defs: Schema | None = None, **properties: Any) -> Schema:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {**schema, "$defs": defs} if defs else schema


UNIT = {"enum": ["degrees C", "degrees F"]}
TOOLS = [
    declare("nothing", None, {"type": "object", "properties": {}}),
    declare(
        "weather",
        None,
        takes(
            "city",
            "unit",
            city={"type": "string"},
            days={"type": "integer"},
            hourly={"type": "boolean"},
            unit={"$ref": "#/$defs/Unit"},
            defs={"Unit": UNIT},
        ),
    ),
    declare(
        "search",
        None,
        takes(
            "where",
            "any",
            where={
                "type": "object",
                "properties": {"lat": {"type": "number"}, "unit": {"$ref": "#/$defs/Unit"}},
                "required": ["lat"],
            },
            words={"type": "array", "items": {"type": "string"}},
            any={},
            kind={"const": None},
            defs={"Unit": UNIT},
        ),
    ),
    declare("odd", None, {"required": ["undeclared", 3], "properties": []}),
]
BY_NAME = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}

JSON_CALLS = """\
{%- for message in messages -%}
<|im_start|>{{ message.role ~ '\\n' ~ message.content }}
{%- for call in message.tool_calls or [] -%}
{{ '<tool_call>\\n' ~ (dict(name=call.function.name, arguments=call.function.arguments) | tojson) }}
{{- '\\n</tool_call>' }}
{%- endfor -%}<|im_end|>
{% endfor -%}"""


@pytest.fixture(scope="module")
def tagged() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


@pytest.fixture(scope="module")
def as_json(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    folder = copy_demo(tmp_path_factory.mktemp("json") / "model")
    (folder / "chat_template.jinja").write_text(JSON_CALLS)
    return ChatTokenizer(folder)


def rules(
    tokenizer: ChatTokenizer, tools: list[Any], names: list[str], thinking: bool = False
) -> AnswerRules:
    answer = call_grammar(tools, names, tokenizer)
    return AnswerRules(answer, tokenizer, frozenset([tokenizer.message_end]), thinking)


CLOSING = ("\n</parameter>\n", '"', "}", "]", "\n")


def walk(tokenizer: ChatTokenizer, may: AnswerRules, seed: int) -> str:
    """An answer by chance, that ends what may have any length some time."""
    rng, ids = random.Random(seed), []
    while not ids or ids[-1] != tokenizer.message_end:
        bits = np.unpackbits(np.frombuffer(may.allowed(), np.uint8), bitorder="little")
        taken = [rng.choice(np.flatnonzero(bits).tolist())]
        if rng.random() < 0.5:
            taken = next((t for t in map(tokenizer.encode, CLOSING) if fits(may, t)), taken)
        assert all(map(may.take, taken))
        ids += taken
    return tokenizer.decode(ids[:-1])


def fits(may: AnswerRules, tokens: list[int]) -> bool:
    taken = 0
    while taken < len(tokens) and may.take(tokens[taken]):
        taken += 1
    may.back(taken)
    return taken == len(tokens)


@pytest.mark.parametrize("dialect", ["tagged", "as_json"])
@pytest.mark.parametrize("name", ["nothing", "weather", "search"])
def test_any_walk_is_a_call_with_fitting_arguments(request, dialect: str, name: str) -> None:
    tokenizer = request.getfixturevalue(dialect)
    for seed in range(8):
        said = walk(tokenizer, rules(tokenizer, TOOLS, [name]), seed)
        call = read_call(said, TOOLS)
        assert call.name == name
        jsonschema.validate(call.arguments, BY_NAME[name])
        assert call.arguments.keys() <= BY_NAME[name]["properties"].keys()


@pytest.mark.parametrize("dialect", ["tagged", "as_json"])
def test_one_of_several_is_called(request, dialect: str) -> None:
    tokenizer = request.getfixturevalue(dialect)
    names = ["nothing", "weather"]
    found = {read_call(walk(tokenizer, rules(tokenizer, TOOLS, names), s), TOOLS).name
             for s in range(12)}  # fmt: skip
    assert found == set(names)


def test_what_is_required_and_not_declared_is_text(tagged: ChatTokenizer) -> None:
    call = read_call(walk(tagged, rules(tagged, TOOLS, ["odd"]), 0), TOOLS)
    assert call.arguments.keys() == {"undeclared"}


def may_say(tokenizer: ChatTokenizer, name: str, said: str, thinking: bool = False) -> bool:
    may = rules(tokenizer, TOOLS, [name], thinking)
    return all(may.take(token) for token in tokenizer.encode(said)) and may.complete


@pytest.mark.parametrize("dialect", ["tagged", "as_json"])
def test_what_templates_write_may_be_said(request, dialect: str) -> None:
    tokenizer = request.getfixturevalue(dialect)
    for name, arguments in [
        ("nothing", {}),
        ("weather", {"city": "São\nPaulo <br> </b>", "days": 3, "unit": "degrees C"}),
        ("weather", {"city": "", "hourly": False, "unit": "degrees F"}),
        ("search", {"any": "x", "where": {"lat": -1.5, "unit": "degrees F"}, "words": ["a", "b"]}),
    ]:
        # Declarations are rendered in one order, and so are calls asked for.
        ordered = {key: arguments[key] for key in BY_NAME[name]["properties"] if key in arguments}
        call = {"type": "function", "function": {"name": name, "arguments": ordered}}
        history = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        text = tokenizer.render(history, {}, generation_prompt=False)
        said = text[text.index("<tool_call>") : text.index("<|im_end|>")]
        assert may_say(tokenizer, name, said), said
        assert not may_say(tokenizer, name, f"Hello {said}")
        assert not may_say(tokenizer, name, f"{said}\n{said}")
        assert may_say(tokenizer, name, f"I think so.</think>\n\n{said}", thinking=True)


@pytest.mark.parametrize(
    "said",
    [
        "<parameter=unit>\ndegrees C\n</parameter>\n",  # the city is missing
        "<parameter=city>\nParis\n</parameter>\n<parameter=unit>\nkelvin\n</parameter>\n",
        "<parameter=city>\nParis</parameter>\n<parameter=unit>\ndegrees C\n</parameter>\n",
        "<parameter=city>\n<function=f>\n</parameter>\n<parameter=unit>\ndegrees C\n</parameter>\n",
    ],
)
def test_what_may_not_be_said(tagged: ChatTokenizer, said: str) -> None:
    call = f"<tool_call>\n<function=weather>\n{said}</function>\n</tool_call>"
    assert not may_say(tagged, "weather", call)


def test_what_cannot_be_asked_for(tagged: ChatTokenizer, tmp_path: Path) -> None:
    odd = declare("f", None, takes(x={"type": "array", "items": {"type": "strin"}}))
    with pytest.raises(
        RequestError, match=r"'f': This schema cannot be used, at \$\.items: .*strin"
    ):
        call_grammar([odd], ["f"], tagged)
    for tool in (declare("a b", None, {}), declare("f", None, takes("a b"))):
        with pytest.raises(RequestError, match="cannot write the name 'a b'"):
            call_grammar([tool], [tool["function"]["name"]], tagged)
    folder = copy_demo(tmp_path / "mute")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(RequestError, match="no format for tool calls"):
        call_grammar(TOOLS, ["nothing"], ChatTokenizer(folder))
