"""What a model's chat template has a place for, read without running it."""

import json
from pathlib import Path


def knows_tools(folder: Path) -> bool:
    return "tools" in template_text(folder)


def template_text(folder: Path) -> str:
    """The template as it stands in the folder; empty where there is none to be read."""
    try:
        own = folder / "chat_template.jinja"
        if own.exists():
            return own.read_text("utf-8")
        template = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        template = template.get("chat_template") if isinstance(template, dict) else None
    except (OSError, ValueError):
        return ""
    return template if isinstance(template, str) else json.dumps(template or "")
