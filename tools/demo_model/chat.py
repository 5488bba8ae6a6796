"""Conversations to text, with the chat template that ships with the model."""

from __future__ import annotations

import json
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from llm_mtplx.demo import MODEL_DIR

TEMPLATE_PATH = MODEL_DIR / "chat_template.jinja"


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def load_template() -> jinja2.Template:
    """The template, compiled with the settings transformers uses."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise
    return environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))


_template = load_template()


def render(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    *,
    enable_thinking: bool = False,
    preserve_thinking: bool = False,
    add_generation_prompt: bool = False,
) -> str:
    return _template.render(
        messages=messages,
        tools=tools or None,
        enable_thinking=enable_thinking,
        preserve_thinking=preserve_thinking,
        add_generation_prompt=add_generation_prompt,
    )
