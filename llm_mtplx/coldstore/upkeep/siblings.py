"""Stores of other formats beside this one: counted, and removed when nobody has used them long."""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import locks
from ..root import AREAS, DIRECTORY, MARKER, StoreRoot, bytes_taken, marker_version, open_file
from .removal import Removed

UNUSED_S = 30 * 86_400
_NAME = re.compile(r"sessions-v[0-9]+")


@dataclass(frozen=True)
class Sibling:
    path: Path
    nbytes: int
    files: int
    unused: bool  # for so long that it is garbage


def siblings(root: StoreRoot) -> list[Sibling]:
    """Every other ``sessions-v*`` with our marker beside the store."""
    found = []
    for name in sorted(os.listdir(root.cache_dir)) if root.cache_dir.is_dir() else []:
        path = root.cache_dir / name
        if name == DIRECTORY or not _NAME.fullmatch(name) or not _is_ours(path):
            continue
        sizes = [bytes_taken(status) for status in _walk(path)]
        found.append(Sibling(path, sum(sizes), len(sizes), _is_unused(path)))
    return found


def remove_unused(siblings: Iterable[Sibling]) -> Removed:
    """Remove those that were unused, unless they are in use again."""
    done = Removed()
    for sibling in siblings:
        if not sibling.unused or not _is_ours(sibling.path):
            continue
        if not _is_unused(sibling.path):
            done.add(Removed(kept=1))
            continue
        try:
            _remove(sibling.path)
        except OSError as error:
            done.add(Removed(failed=1, error=str(error)))
        else:
            done.add(Removed(files=sibling.files, nbytes=sibling.nbytes))
    return done


def _remove(root: Path) -> None:
    """The marker last, so that what is left after a kill is found again. Raises OSError."""
    for name in sorted(os.listdir(root)):
        path = root / name
        if name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)  # follows no link below
        else:
            path.unlink()
    (root / MARKER).unlink()
    root.rmdir()


def _is_ours(path: Path) -> bool:
    try:
        # A link would lead out of the cache directory.
        if not stat.S_ISDIR(path.lstat().st_mode):
            return False
        handle = open_file(None, path / MARKER)
    except OSError:
        return False
    with open(handle, "rb") as file:
        return marker_version(file.read(4096)) is not None


def _is_unused(path: Path) -> bool:
    """By what is touched with every save; a process that still writes there holds a lock."""
    there = StoreRoot.at(path)
    try:
        if not all(locks.is_dead(there, writer) for writer in locks.writers(there)):
            return False
    except OSError:
        return False  # who writes there cannot be seen
    names = ["", MARKER, "manifest.sqlite", "manifest.sqlite-wal", *AREAS]
    times = [_mtime(path / name) for name in names]
    return time.time() - max(times) > UNUSED_S


def _mtime(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _walk(path: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name))
            except OSError:
                continue
