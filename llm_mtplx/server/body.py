"""Request bodies: read up to a limit; every field is known, ignored by name or refused by name."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from starlette.requests import Request

from .errors import ApiError
from .ignored import Ignored
from .intake import apart, received

MAX_DEPTH = 100  # of objects and lists in each other

# Fields that would change the answer and are not supported where they are not known: to ignore
# them would silently answer something else than was asked. With the values that ask for nothing,
# besides those that are empty, zero or false.
REFUSED: Mapping[str, Collection[Any]] = {
    # Fields that other APIs have for the same.
    **dict.fromkeys(("input", "instructions", "messages", "prompt", "system"), ()),
    **dict.fromkeys(("max_completion_tokens", "max_new_tokens", "max_output_tokens"), ()),
    **dict.fromkeys(("max_tokens", "min_tokens", "n_predict", "num_predict"), ()),
    **dict.fromkeys(("stop", "stop_sequences", "stop_token_ids"), ()),
    **dict.fromkeys(("functions", "tools"), ()),
    **dict.fromkeys(("function_call", "tool_choice"), ("auto", "none")),
    **dict.fromkeys(("best_of", "n"), (1,)),
    "echo": (),
    "suffix": (),
    # State on the server, and requests that want something else than an answer.
    **dict.fromkeys(("background", "compaction", "conversation", "previous_response_id"), ()),
    # What the answer is to be, or to begin with.
    **dict.fromkeys(("documents", "partial", "prefill", "prefix", "chat_template"), ()),
    **dict.fromkeys(("continue_final_message",), ()),
    **dict.fromkeys(("grammar", "json_schema", "response_format", "structured_outputs"), ()),
    **dict.fromkeys(("guided_choice", "guided_grammar", "guided_json", "guided_regex"), ()),
    # How tokens are chosen.
    **dict.fromkeys(("allowed_token_ids", "bad_words", "ignore_eos", "logits_processors"), ()),
    **dict.fromkeys(("dry_multiplier", "dynatemp_range", "mirostat", "mirostat_mode"), ()),
    **dict.fromkeys(("top_a", "use_beam_search", "xtc_probability"), ()),
    **dict.fromkeys(("length_penalty", "tfs_z", "typical_p"), (1,)),
}
# Those of them that count inside messages.
REFUSED_INSIDE = ("partial", "prefix")


class Body(BaseModel):
    """Fields it does not know are kept apart."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Clients send every field they know of."""
        if not isinstance(value, dict):
            return value
        return {name: part for name, part in value.items() if part is not None}


class Foreign(Body):
    """A tool that a local model cannot run."""

    type: str
    name: str | None = None

    @property
    def called(self) -> str | None:
        """Chat completions have the name inside."""
        inner = (self.model_extra or {}).get(self.type)
        return self.name or (inner.get("name") if isinstance(inner, dict) else None)


B = TypeVar("B", bound=Body)


async def read(request: Request, kind: type[B], ignored: Collection[str]) -> B:
    """The body as ``kind``. Fields of ``ignored`` change nothing here."""
    raw = await received(request)
    told = Ignored()
    # The answer's header is made of it.
    request.scope["state"]["ignored"] = told
    return await apart(lambda: validated(_object(raw), kind, ignored, told))


def validated(fields: dict[str, Any], kind: type[B], ignored: Collection[str], told: Ignored) -> B:
    for name in ignored:
        if fields.pop(name, None) is not None:
            told.add(name, logged=False)
    try:
        body = kind.model_validate(fields, context=told)
    except ValidationError as error:
        _refuse(error)
    for kinds, where, name, value in _unknown(body, (), ()):
        if value and _is_refused(where, name) and value not in REFUSED[name]:
            param = ".".join((*where, name))
            raise ApiError(
                400, f"'{param}' is not supported.", param=param, code="unsupported_parameter"
            )
        told.add(".".join((*kinds, name)))
    for part in sorted(_foreign(body), key=lambda tool: tool.type):
        told.add(f"tools:{part.type}")
    return body


def _is_refused(where: tuple[str, ...], name: str) -> bool:
    return name in (REFUSED_INSIDE if where else REFUSED)


def _unknown(
    part: Any, kinds: tuple[str, ...], where: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], str, Any]]:
    """Each unknown field: the names that lead to it, the same with places in lists, its own name
    and its value."""
    if isinstance(part, list):
        for at, each in enumerate(part):
            yield from _unknown(each, kinds, (*where, str(at)))
    elif isinstance(part, Body) and not isinstance(part, Foreign):
        for name, value in (part.model_extra or {}).items():
            yield kinds, where, name, value
        for name in type(part).model_fields:
            value = getattr(part, name)
            if isinstance(value, list | Body):
                yield from _unknown(value, (*kinds, name), (*where, name))


def _foreign(body: Body) -> list[Foreign]:
    return [tool for tool in getattr(body, "tools", []) if isinstance(tool, Foreign)]


def parse(text: str) -> Any:
    """JSON that can be written again. Raises ValueError, which says what is wrong."""
    try:
        content = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise ValueError("is not valid JSON") from None
    if _is_deep(content):
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if "\\ud" in text.lower():
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except ValueError:
            raise ValueError("is not valid JSON: it contains an unpaired surrogate") from None
    return content


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
    return True


def _object(raw: bytes) -> dict[str, Any]:
    try:
        content = parse(raw.decode())
    except UnicodeDecodeError:
        raise ApiError(400, "The body is not valid JSON.") from None
    except ValueError as error:
        raise ApiError(400, f"The body {error}.") from None
    if not isinstance(content, dict):
        raise ApiError(400, "The body is not a JSON object.")
    return content


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _refuse(error: ValidationError) -> NoReturn:
    # Of what a union may be, that which comes furthest is meant.
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    names = [str(p) for p in first["loc"] if not str(p).endswith("]") and p != "str"]
    where = ".".join(names)
    if first["type"] == "extra_forbidden":
        raise ApiError(
            400, f"'{where}' is not supported.", param=where, code="unsupported_parameter"
        )
    raise ApiError(400, f"'{where}': {first['msg']}.", param=where)
