"""What a process and the engine it attaches to must have in common. Imports no MLX."""

from importlib.metadata import version
from pathlib import Path

import llm

from ..catalog.places import folder_identity
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
                return "the background engine sees different files in the model folder"
            return f"{name} is {theirs.get(name)!r} here and {ours.get(name)!r} there"
    return None
