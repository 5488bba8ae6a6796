"""Where things live. Read when used, never at import."""

from pathlib import Path

import llm


def registry_path() -> Path:
    """The file that names the models a user has added."""
    return Path(llm.user_dir()) / "mtplx" / "models.json"


def tuning_path() -> Path:
    """The file with the depths that ``llm mtplx tune`` has measured."""
    return Path(llm.user_dir()) / "mtplx" / "tuning.json"
