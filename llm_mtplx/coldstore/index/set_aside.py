"""Manifests that were set aside, and what stood in their place."""

import os
import stat

from ..root import StoreRoot
from .connection import SET_ASIDE, SIDE_FILES


def set_aside_names(root: StoreRoot) -> list[str]:
    """Unreadable manifests, and journals of lost ones, that were kept."""
    return [name for name in root.listdir() if name.startswith(SET_ASIDE)]


def count_set_aside(root: StoreRoot) -> int:
    return sum(not name.endswith(SIDE_FILES) for name in set_aside_names(root))


def remove_set_aside(root: StoreRoot) -> None:
    """They name conversations too; what they knew was rebuilt from the files. A directory that
    stood in a manifest's place is not ours to empty. Raises OSError."""
    for name in set_aside_names(root):
        path = root.path / name
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                os.unlink(path)
        except FileNotFoundError:
            continue
