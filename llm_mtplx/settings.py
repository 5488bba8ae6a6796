"""Where things live. Read when used, never at import. The limits are in ``limits.py``."""

import os
from pathlib import Path

import llm

PREFIX = "LLM_MTPLX_"


def cache_dir() -> Path:
    """LLM_MTPLX_CACHE_DIR, else below LLM_USER_PATH where that is set, else the user's cache."""
    named = os.environ.get(PREFIX + "CACHE_DIR")
    if named:
        return Path(named).expanduser()
    if os.environ.get("LLM_USER_PATH"):
        return Path(llm.user_dir()) / "mtplx" / "cache"
    import platformdirs

    return Path(platformdirs.user_cache_dir("llm-mtplx"))


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
