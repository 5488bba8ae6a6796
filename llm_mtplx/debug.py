"""Lines for whoever looks into what happens: on stderr, under LLM_MTPLX_DEBUG alone."""

import os
import sys

from .settings import PREFIX


def debugging() -> bool:
    return os.environ.get(PREFIX + "DEBUG", "0") not in ("", "0")


def debug(line: str) -> None:
    if debugging():
        print(f"mtplx: {line}", file=sys.stderr)
