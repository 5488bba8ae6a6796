"""What a schema allows, token by token, and what it says where it cannot be used."""

import json
import random
import subprocess
import sys
from typing import Any

import jsonschema
import numpy as np
import pytest

from benchmarks.schemas import SCHEMAS
from llm_mtplx.chat.grammar import SchemaRules, compile_schema
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.errors import RequestError

Schema = dict[str, Any]


def thing(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


PERSON = thing(name={"type": "string"}, age={"type": "integer"})


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(MODEL_DIR)


@pytest.fixture(scope="module")
def ends(tokenizer: ChatTokenizer) -> frozenset[int]:
    return frozenset([tokenizer.message_end, tokenizer.message_end - 2])


def rules(tokenizer, ends, schema: Schema, thinking: bool = False) -> SchemaRules:
    return SchemaRules(schema, tokenizer, ends, thinking)


def allowed(rules: SchemaRules) -> list[int]:
    bits = np.unpackbits(np.frombuffer(rules.allowed(), np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(3))
def test_any_walk_of_allowed_tokens_is_valid_json(tokenizer, ends, name: str, seed: int) -> None:
    schema, _ = SCHEMAS[name]
    rng = random.Random(seed)
    walk = rules(tokenizer, ends, schema)
    ids: list[int] = []
    while not ids or ids[-1] not in ends:
        choices = allowed(walk)
        # Strings and numbers may have any length: end them some time.
        closing = [t for t in choices if t in ends or tokenizer.token_bytes[t][:1] in b'",}]']
        ids.append(rng.choice(closing if closing and rng.random() < 0.5 else choices))
        assert walk.take(ids[-1])
    answer = json.loads(tokenizer.decode(ids[:-1]))
    jsonschema.validate(answer, schema)


def test_the_mask_is_what_may_be_taken_and_going_back_restores_it(tokenizer, ends) -> None:
    walk = rules(tokenizer, ends, PERSON)
    answer = [*tokenizer.encode('{"name": "Bo\\n", "age": -3}'), tokenizer.message_end]
    masks = []
    for token in answer:
        masks.append(allowed(walk))
        for other in range(0, len(tokenizer.token_bytes), 7):
            taken = walk.take(other)
            assert taken == (other in masks[-1])
            if taken:
                walk.back(1)
        assert walk.take(token)
    assert not walk.take(answer[0]), "nothing follows the end"
    for steps in (1, 4, len(answer)):
        walk.back(steps)
        assert allowed(walk) == masks[len(answer) - steps]
        for token in answer[len(answer) - steps :]:
            assert walk.take(token)
    assert walk.complete


def test_the_layout_is_that_of_json_dumps(tokenizer, ends) -> None:
    nested = thing(a={"type": "array", "items": thing(b={"type": "null"}, c={"type": "boolean"})})
    value = {"a": [{"b": None, "c": True}, {"b": None, "c": False}]}
    for text, valid in [
        (json.dumps(value), True),
        (json.dumps(value, indent=1), False),
        (json.dumps(value, separators=(",", ":")), False),
    ]:
        walk = rules(tokenizer, ends, nested)
        taken = all(walk.take(token) for token in tokenizer.encode(text))
        assert (taken and walk.complete) == valid


def test_no_control_token_is_text(tokenizer, ends) -> None:
    walk = rules(tokenizer, ends, PERSON)
    for token in tokenizer.encode('{"name": "'):
        assert walk.take(token)
    assert not set(tokenizer.added_ids) & set(allowed(walk))
    assert len(allowed(walk)) > 1500


def test_thinking_comes_first_and_has_no_end_but_its_own(tokenizer, ends) -> None:
    walk = rules(tokenizer, ends, PERSON, thinking=True)
    everything = set(range(len(tokenizer.token_bytes)))
    thought = tokenizer.encode("Let me see: {")
    for token in thought:
        assert set(allowed(walk)) == everything - ends
        assert walk.take(token)
    assert not walk.complete
    assert walk.take(tokenizer.think_end)
    first = {tokenizer.token_bytes[token] for token in allowed(walk)}
    assert first == {b"{", b'{"', b"\n", b"\n\n"}
    answer = tokenizer.encode('\n\n{"name": "Bo", "age": 3}')
    assert all(walk.take(token) for token in answer)
    assert walk.complete
    walk.back(len(answer) + 1)
    assert set(allowed(walk)) == everything - ends
    assert walk.take(tokenizer.think_end) and walk.take(tokenizer.encode("{")[0])


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        (thing(a=thing(b={"type": "strin"})), "$.properties.a.properties.b", "strin"),
        (thing(a={"type": "array", "items": {"not": {}}}), "$.properties.a.items", "not"),
        ({"type": "object", "properties": []}, "$", "properties"),
        (thing(a={"$ref": "#/$defs/X"}), "$.properties.a", "/$defs/X"),
        ({**thing(a={"$ref": "#/$defs/X"}), "$defs": {"X": {"if": {}}}}, "$.$defs.X", "if"),
        (
            thing(a={"anyOf": [{"type": "null"}, {"type": "string", "pattern": "(("}]}),
            "$.properties.a.anyOf[1]",
            "unclosed",
        ),
        (thing(n={"type": "integer", "minimum": 5, "maximum": 3}), "$.properties.n", "minimum"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "$", "oneOf"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(schema: Schema, path: str, why: str) -> None:
    with pytest.raises(RequestError) as raised:
        compile_schema(schema)
    message = str(raised.value)
    assert message.startswith(f"This schema cannot be used, at {path}: ")
    assert why in message and "\n" not in message


def test_a_schema_is_checked_without_loading_anything_of_a_model() -> None:
    code = (
        "import sys; from llm_mtplx.chat.grammar import compile_schema; compile_schema({});"
        "print({'mlx', 'transformers', 'tokenizers'} & sys.modules.keys())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def may_be(tokenizer, ends, schema: Schema, value: Any) -> bool:
    walk = rules(tokenizer, ends, schema)
    return all(walk.take(t) for t in tokenizer.encode(json.dumps(value))) and walk.complete


def test_other_properties_only_where_the_schema_says_so(tokenizer, ends) -> None:
    optional = {"type": "object", "properties": {"a": {"type": "null"}}}
    part = {"type": "object", "properties": {"b": {"type": "integer"}}}
    more = {"a": None, "b": 1}
    for schema, wider in [
        (optional, False),
        ({**optional, "additionalProperties": True}, True),
        ({**optional, "required": ["b"]}, True),  # else nothing would be valid
        ({"type": "object"}, True),
        ({"anyOf": [optional, {"type": "null"}]}, False),
        ({"allOf": [optional, part]}, True),
        ({**optional, "anyOf": [part, {"type": "object"}]}, True),
        ({**optional, "$ref": "#/$defs/Part", "$defs": {"Part": part}}, True),
    ]:
        assert may_be(tokenizer, ends, schema, more) == wider, schema
        assert may_be(tokenizer, ends, schema, {"a": None}) == ("required" not in schema)


def test_a_property_may_have_the_name_of_a_keyword(tokenizer, ends) -> None:
    schema = thing(properties={"type": "integer"}, items={"enum": ["$ref"]}, anyOf={"const": 1})
    value = {"properties": 1, "items": "$ref", "anyOf": 1}
    assert may_be(tokenizer, ends, schema, value)
    assert not may_be(tokenizer, ends, schema, {**value, "more": 1})


def test_recursion(tokenizer, ends) -> None:
    node = thing(next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Node"}]})
    schema = {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}
    assert may_be(tokenizer, ends, schema, {"next": {"next": {"next": None}}})
    assert not may_be(tokenizer, ends, schema, {"next": {"next": {}}})
