"""What a process and the engine it attaches to must have in common. Imports no MLX."""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

import llm

from ..limits import limits
from ..settings import NoCacheDir, cache_dir

VERSIONS = ("llm-mtplx", "mlx", "mlx-lm")


def hello(folder: Path) -> dict[str, str]:
    """Versions, the model folder's identity, and where llm and the store live."""
    return {
        **{name: version(name) for name in VERSIONS},
        "model folder": folder_identity(folder),
        "llm user directory": str(llm.user_dir()),
        "store": _store(),
    }


def _store() -> str:
    try:
        return str(cache_dir().absolute()) if limits().cache == "on" else "off"
    except NoCacheDir:
        return "off"


def difference(theirs: dict[str, str], ours: dict[str, str]) -> str | None:
    """The first thing that is not the same, in words."""
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            if name == "model folder":
                return "the resident engine sees other files in the model folder"
            return f"{name} is {theirs.get(name)!r} here and {ours.get(name)!r} there"
    return None


def folder_identity(folder: Path) -> str:
    """Changes when a file of the folder does. Reads no file."""
    told = [str(folder.resolve())]
    for parent in (folder, folder / "mtp"):
        try:
            names = sorted(entry.name for entry in os.scandir(parent))
        except OSError:
            continue
        for name in names:
            try:
                file = (parent / name).stat()
            except OSError:
                continue
            told.append(f"{parent.name}/{name} {file.st_size} {file.st_mtime_ns} {file.st_ino}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]
