"""Small JSON files of our own: written whole or not at all."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, Any]) -> None:
    """Replace ``path`` in one step; readable by its owner alone. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}-", encoding="utf-8", delete=False
    ) as file:
        json.dump(content, file, indent=1)
    os.replace(file.name, path)


def read_or_empty(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
