"""Text in messages: a string, or a list of parts that are text or can be read as such."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from .ignored import Ignored

PARTS = ("text", "input_text", "output_text")
FIELDS = ("type", "text")
# They change nothing here.
IGNORED = ("annotations", "cache_control", "citations", "logprobs", "prompt_cache_breakpoint")
# A part of unknown type with one of these holds something that the answer may depend on.
CONTENT = (
    "audio",
    "content",
    "data",
    "document",
    "file",
    "file_data",
    "file_id",
    "file_url",
    "image",
    "image_url",
    "input",
    "input_audio",
    "input_image",
    "output",
    "refusal",
    "source",
    "text",
    "title",
    "url",
    "video",
    "video_url",
)
MEDIA = ("image", "audio", "video", "file", "document", "upload")


def join_text(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, list):
        return value
    return "".join(part_text(part, info.context) for part in value)


Content = Annotated[
    str, BeforeValidator(join_text, json_schema_input_type=str | list[dict[str, Any]])
]


def part_text(part: Any, ignored: Ignored | None) -> str:
    """The text of one part; none of a part that is a mere hint. Raises ValueError for others."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in PARTS:
        for name, value in part.items():
            if name not in FIELDS and value is not None and ignored is not None:
                ignored.add(f"content.{name}", logged=name not in IGNORED)
        return _text(part, "text")
    if kind == "refusal":
        return _text(part, "refusal")
    if kind == "compaction" and isinstance(part.get("content"), str):
        return _text(part, "content")
    if kind == "tool_reference":
        return _text(part, "tool_name")
    if kind == "search_result":
        heads = [part.get("title"), part.get("source"), _texts(part.get("content"), ignored)]
        return _paragraphs(heads)
    if kind == "document":
        heads = [part.get("title"), part.get("context"), _document(part.get("source"), ignored)]
        return _paragraphs(heads)
    if not isinstance(kind, str) or is_content(part):
        raise ValueError(f"content of type {kind!r} is not supported; the model accepts text only")
    if ignored is not None:
        ignored.add(f"content.{kind}")
    return ""


def is_content(part: dict[str, Any]) -> bool:
    """Whether a part of unknown type holds something to be read."""
    if any(part.get(name) is not None for name in CONTENT):
        return True
    return any(word in part["type"] for word in MEDIA)


def _text(part: dict[str, Any], name: str) -> str:
    text = part.get(name)
    if not isinstance(text, str):
        raise ValueError(f"a part of type {part['type']!r} has no {name}")
    return text


def _texts(value: Any, ignored: Ignored | None) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("a part has no content")
    return "".join(part_text(part, ignored) for part in value)


def _document(source: Any, ignored: Ignored | None) -> str:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "text":
        return _text(source, "data")
    if kind == "content":
        return _texts(source.get("content"), ignored)
    raise ValueError(f"a document of type {kind!r} is not supported; the model accepts text only")


def _paragraphs(parts: list[Any]) -> str:
    """With an empty line after each, as what follows is another part."""
    return "".join(f"{part}\n\n" for part in parts if isinstance(part, str) and part)


def system_first(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """System messages at the beginning as one: templates know one."""
    leading = 0
    while leading < len(messages) and messages[leading]["role"] == "system":
        leading += 1
    if leading < 2:
        return messages
    joined = "\n\n".join(message["content"] for message in messages[:leading])
    return [{"role": "system", "content": joined}, *messages[leading:]]
