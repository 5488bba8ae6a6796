"""Time in the store's tests: what happened long ago, and what counts as lately."""

import os
from pathlib import Path

from .lines import files

HOUR = 3600


class Clock:
    """What time.time says; a test moves it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def age(cache_dir: Path, clock: Clock) -> None:
    """Give all files the clock's time, but those of the manifest."""
    for path in (cache_dir / "sessions-v1").rglob("*"):
        if path.is_file() and not path.name.startswith("manifest"):
            os.utime(path, (clock.now, clock.now), follow_symlinks=False)


def on_disk(cache_dir: Path) -> int:
    return sum(path.stat().st_size for path in files(cache_dir, "*.[ks][vt]"))
