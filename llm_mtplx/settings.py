"""Where things live. Read when used, never at import. The limits are in ``limits.py``."""

import os
from pathlib import Path

import llm

from .errors import MtplxError

PREFIX = "LLM_MTPLX_"


class NoCacheDir(MtplxError):
    """Nothing tells where the user's files are: no HOME, and no account for the user id."""


def cache_dir() -> Path:
    """LLM_MTPLX_CACHE_DIR, else below LLM_USER_PATH where that is set, else the user's cache.

    Raises NoCacheDir.
    """
    named = os.environ.get(PREFIX + "CACHE_DIR")
    if named:
        return _checked(expand(named), PREFIX + "CACHE_DIR")
    if os.environ.get("LLM_USER_PATH"):
        return Path(llm.user_dir()) / "mtplx" / "cache"
    import platformdirs

    try:
        return _checked(Path(platformdirs.user_cache_dir("llm-mtplx")), "the cache directory")
    except RuntimeError:  # as newer versions say it
        return _checked(Path("~/.cache"), "the cache directory")


def expand(path: str) -> Path:
    """With the home directory for ``~``; as it is where that is not known. Never raises."""
    return Path(os.path.expanduser(path))


def _checked(path: Path, what: str) -> Path:
    if path.parts and path.parts[0].startswith("~"):
        raise NoCacheDir(
            f"{what}: the home directory of '{path.parts[0]}' is not known. Set HOME, or "
            f"{PREFIX}CACHE_DIR to an absolute path."
        )
    return path


def is_logging() -> bool:
    """False under ``llm logs off``: what llm does not keep, we do not keep."""
    return not (llm.user_dir() / "logs-off").exists()


def registry_path() -> Path:
    """The file that names the models a user has added."""
    return Path(llm.user_dir()) / "mtplx" / "models.json"


def tuning_path() -> Path:
    """The file with the depths that ``llm mtplx tune`` has measured."""
    return Path(llm.user_dir()) / "mtplx" / "tuning.json"


def settings_path() -> Path:
    """A JSON object with the limits that the environment does not set."""
    return Path(llm.user_dir()) / "mtplx" / "settings.json"
