"""The models a user can name: the bundled one and those they have added."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import jsonfile
from ..demo import MODEL_DIR
from ..errors import MtplxError
from ..settings import registry_path

DEMO_ID = "mtplx-demo"


@dataclass(frozen=True)
class Entry:
    model_id: str
    path: Path
    aliases: tuple[str, ...] = ()


def list_entries() -> tuple[list[Entry], list[str]]:
    """Every known model, and one line for each registration that cannot be read."""
    entries = [Entry(DEMO_ID, MODEL_DIR)]
    try:
        registered = _read_registry()
    except MtplxError as error:
        return entries, [str(error)]
    warnings = []
    for model_id, value in registered.items():
        entry = _parse(model_id, value)
        if entry is None:
            warnings.append(
                f"{registry_path()}: the entry {model_id!r} is not readable; "
                f"run 'llm mtplx remove {model_id}' and add the model again."
            )
        else:
            entries.append(entry)
    return entries, warnings


def entry_named(name: str) -> Entry:
    """The model with this id or alias."""
    for entry in list_entries()[0]:
        if name in (entry.model_id, *entry.aliases):
            return entry
    raise MtplxError(f"No model is called {name!r}. 'llm mtplx models' lists them.")


def add_entry(entry: Entry) -> None:
    registered = _read_registry()
    registered[entry.model_id] = {"path": str(entry.path), "aliases": list(entry.aliases)}
    _write_registry(registered)


def remove_entry(name: str) -> str:
    """Forget the model with this id or alias; its files stay. Returns its id."""
    registered = _read_registry()
    for model_id, value in registered.items():
        entry = _parse(model_id, value)
        if model_id == name or (entry is not None and name in entry.aliases):
            del registered[model_id]
            _write_registry(registered)
            return model_id
    raise MtplxError(f"No added model is called {name!r}. 'llm mtplx models' lists them.")


def _parse(model_id: str, value: Any) -> Entry | None:
    if not isinstance(value, dict) or not isinstance(value.get("path"), str):
        return None
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(a, str) for a in aliases):
        return None
    return Entry(model_id, Path(value["path"]), tuple(aliases))


def _read_registry() -> dict[str, Any]:
    path = registry_path()
    try:
        models = json.loads(path.read_text(encoding="utf-8"))["models"]
        if not isinstance(models, dict):
            raise ValueError("'models' is not an object")
        return models
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MtplxError(
            f"{path} cannot be read ({error!r}). Mend it or delete it; no model files are lost."
        ) from None


def _write_registry(models: dict[str, Any]) -> None:
    path = registry_path()
    try:
        jsonfile.write(path, {"models": models})
    except OSError as error:
        raise MtplxError(f"{path} cannot be written: {error}.") from None
