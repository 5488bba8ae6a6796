"""Text in messages: a string, or a list of text parts."""

from typing import Annotated, Any

from pydantic import BeforeValidator

PARTS = ("text", "input_text", "output_text")
FIELDS = ("type", "text")
# They change nothing here.
IGNORED = ("annotations", "cache_control", "citations", "logprobs", "prompt_cache_breakpoint")


def join_text(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if kind not in PARTS:
            raise ValueError(f"content of type {kind!r} is not supported; the model reads text")
        if not isinstance(text, str):
            raise ValueError("a text part has no text")
        unknown = [name for name in part if name not in (*FIELDS, *IGNORED)]
        if unknown:
            raise ValueError(f"{unknown[0]!r} of a text part is not supported")
        texts.append(text)
    return "".join(texts)


Content = Annotated[
    str, BeforeValidator(join_text, json_schema_input_type=str | list[dict[str, Any]])
]


def system_first(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """System messages at the beginning as one: templates know one."""
    leading = 0
    while leading < len(messages) and messages[leading]["role"] == "system":
        leading += 1
    if leading < 2:
        return messages
    joined = "\n\n".join(message["content"] for message in messages[:leading])
    return [{"role": "system", "content": joined}, *messages[leading:]]
