"""A grammar to the tokens that may come next, by llguidance; a JSON schema to a grammar. Imports
no MLX.

The JSON comes on one line, laid out as Python's ``json.dumps`` does: a model that may write white
space may write it for ever. For the same reason an object has no other properties than its schema
names, unless that says otherwise (``additionalProperties``). What is valid for such a narrowed
schema is valid for the schema.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from ..errors import EngineError, RequestError

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

Schema = dict[str, Any]

LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Where only one text may come, llguidance would allow only one of the ways to spell it in tokens.
EVERY_WAY = '%llguidance {"no_forcing": true}'
QUIET = LLParserLimits(verbose_errors=False)

# Where a schema holds schemas: by name, in a list, alone.
NAMED = ("$defs", "definitions", "properties", "patternProperties")
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
ALONE = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
SHARED = ("$defs", "definitions")
UNSATISFIABLE = "Unsatisfiable"
JOINED_WITH_PROPERTIES = ("$ref", "allOf", "anyOf", "oneOf")


def compile_schema(schema: Schema) -> str:
    """The JSON schema that llguidance is given for ``schema``; an error names what it refuses."""
    if why := _refusal(schema):
        shared = {name: part for name, part in schema.items() if name in SHARED}
        path, why = _culprit(schema, "$", shared, why)
        raise RequestError(f"This schema cannot be used, at {path}: {why}")
    closed = schema if _joins(schema) else _closed(schema)
    return json.dumps({**(schema if _refusal(closed) else closed), "x-guidance": LAYOUT})


def _refusal(schema: Schema) -> str:
    """Why llguidance does not take ``schema``, in one line; empty where it does."""
    grammar = LLMatcher.grammar_from_json_schema(schema)
    why = " ".join(LLMatcher.validate_grammar(grammar, limits=QUIET).split())
    return why.split(" Enable ")[0]  # an option of llguidance that would make it inexact


def _culprit(schema: Schema, path: str, shared: Schema, why: str) -> tuple[str, str]:
    """The innermost part for which the whole is refused, and what is said of it."""
    for step, part in _parts(schema):
        says = _refusal({**shared, **part})
        if says and (
            says == why or (why.startswith(UNSATISFIABLE) and says.startswith(UNSATISFIABLE))
        ):
            return _culprit(part, path + step, shared, says)
    return path, why


def _parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas directly inside ``schema``, and where."""
    found = [(f".{name}", schema.get(name)) for name in ALONE]
    for name in NAMED:
        found += [(f".{name}.{key}", part) for key, part in named(schema, name).items()]
    for name in LISTED:
        found += [(f".{name}[{at}]", part) for at, part in enumerate(listed(schema, name))]
    yield from ((path, part) for path, part in found if isinstance(part, dict))


def named(schema: Schema, name: str) -> Schema:
    """The schemas by name that ``schema`` has there; none where that is something else."""
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def listed(schema: Schema, name: str) -> list[Any]:
    """The list that ``schema`` has there; empty where that is something else."""
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _joins(schema: Schema) -> bool:
    """Whether parts of ``schema`` say together which properties an object has."""
    joins = len(listed(schema, "allOf")) > 1 or (
        "properties" in schema and any(name in schema for name in JOINED_WITH_PROPERTIES)
    )
    return joins or any(_joins(part) for _, part in _parts(schema))


def _closed(schema: Schema) -> Schema:
    """``schema`` with ``additionalProperties: false`` where it names properties and is silent."""

    def close(part: Any) -> Any:
        return _closed(part) if isinstance(part, dict) else part

    closed = {name: close(value) if name in ALONE else value for name, value in schema.items()}
    for name in NAMED:
        if inner := named(schema, name):
            closed[name] = {key: close(part) for key, part in inner.items()}
    for name in LISTED:
        if parts := listed(schema, name):
            closed[name] = [close(part) for part in parts]
    properties = named(schema, "properties")
    if properties and all(name in properties for name in listed(schema, "required")):
        closed.setdefault("additionalProperties", False)
    return closed


class AnswerRules:
    """What may come next in an answer of a grammar.

    Where the prompt opens a think block, anything but an end may come until that is closed.
    """

    def __init__(
        self, answer: str, tokenizer: "ChatTokenizer", ends: frozenset[int], thinking: bool
    ) -> None:
        """``answer``: rules in Lark's notation, one of which is called so."""
        self._thinking = thinking
        self._think_end = tokenizer.think_end
        self._ends = ends
        self._taken = 0  # by the matcher, which is not told of the end
        self._ended = False
        known = len(tokenizer.token_bytes)
        everything = bytearray(b"\xff" * (known // 8) + bytes([(1 << known % 8) - 1]))
        for end in ends:
            everything[end // 8] &= ~(1 << end % 8)
        self._anything_but_an_end = bytes(everything)
        # As the model's template has it, empty lines part an answer from its reasoning.
        start = r"start: /\n{0,2}/ answer" if thinking else "start: answer"
        grammar = LLMatcher.grammar_from_lark(f"{EVERY_WAY}\n{start}\n{answer}")
        self._matcher = LLMatcher(_tokens(tokenizer, ends), grammar, log_level=0, limits=QUIET)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return not self._thinking and self._matcher.is_accepting()

    def allowed(self) -> bytes:
        """One bit a token, lowest bit first."""
        if self._thinking:
            return self._anything_but_an_end
        bits: bytes = self._matcher.compute_bitmask()
        self._check()
        return bits

    def take(self, token: int) -> bool:
        """Go on by ``token``; False, and nothing changes, where it is forbidden."""
        if self._thinking:
            self._thinking = token != self._think_end
            return token not in self._ends
        if self._ended:
            return False
        if token in self._ends:
            self._ended = self._matcher.is_accepting()
            return self._ended
        taken: int = self._matcher.try_consume_tokens([token])
        self._taken += taken
        return bool(taken)

    def back(self, tokens: int) -> None:
        """Take back the last ``tokens``."""
        if self._ended and tokens:
            self._ended = False
            tokens -= 1
        matched = min(tokens, self._taken)
        if matched:
            self._matcher.rollback(matched)
            self._taken -= matched
        # Before the first token of the answer there is nothing but thinking.
        self._thinking = self._thinking or tokens > matched

    def _check(self) -> None:
        if self._matcher.is_error():
            why = self._matcher.get_error().strip().splitlines()[0]
            raise EngineError(f"The schema is too large for the grammar engine: {why}")


class SchemaRules(AnswerRules):
    """What may come next in an answer that must be JSON of a schema."""

    def __init__(
        self, schema: Schema, tokenizer: "ChatTokenizer", ends: frozenset[int], thinking: bool
    ) -> None:
        super().__init__(f"answer: %json {compile_schema(schema)}", tokenizer, ends, thinking)


@lru_cache(maxsize=2)
def _tokens(tokenizer: "ChatTokenizer", ends: frozenset[int]) -> LLTokenizer:
    """A model's vocabulary as llguidance wants it; made once a model.

    Control tokens, which all added ones are here, are no text: no string can hold one.
    """

    class Vocabulary:
        eos_token_id = min(ends)
        bos_token_id = None
        tokens = tokenizer.token_bytes
        special_token_ids = tokenizer.added_ids

        def __call__(self, text: str) -> list[int]:
            return tokenizer.encode(text)

    return LLTokenizer(
        TokenizerWrapper(Vocabulary()), eos_token=sorted(ends), slices=LLTokenizer.json_slices()
    )
