"""Server-sent events."""

import json
from typing import Any

ALIVE = b": alive\n\n"
DONE = b"data: [DONE]\n\n"


def frame(content: dict[str, Any], event: str | None = None) -> bytes:
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()
