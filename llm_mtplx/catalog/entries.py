"""The models a user can name: the bundled one, the catalog's and those they have added.

Every llm command pays for this module: what only the use of a model needs is imported then.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .. import jsonfile
from ..demo import MODEL_DIR
from ..errors import ModelFolderError, MtplxError
from ..settings import registry_path
from . import known

DEMO_ID = "mtplx-demo"
REPO = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"


class Entry(NamedTuple):
    """A model by name. It lies in ``folder``, or where its repository is found when it is used."""

    model_id: str
    folder: Path | None = None
    aliases: tuple[str, ...] = ()
    repo: str | None = None  # on Hugging Face
    revision: str = "main"

    def repos(self) -> tuple[str, ...]:
        """The repositories that are this model, the one for this machine first."""
        if self.repo is not None:
            return (self.repo,)
        pack = known.pack(self.model_id)
        return tuple(download.repo for download in pack.downloads()) if pack else ()

    @property
    def here(self) -> bool:
        """Whether there is something to load; a cheap look that opens no weight file."""
        from . import places

        if self.folder is not None:
            return os.path.isfile(self.folder / "config.json")
        return any(next(places.folders(repo, self.revision), None) for repo in self.repos())

    @property
    def path(self) -> Path:
        """The model's folder. Raises ModelFolderError where it is not on this machine."""
        from . import places

        if self.folder is not None:
            return self.folder
        for repo in self.repos():
            found = places.find(repo, self.revision)
            if found is not None:
                return found
        state = "only partly downloaded" if self.here else "not on this machine"
        pack = known.pack(self.model_id)
        size = f" ({pack.downloads()[0].size / 1e9:.1f} GB)" if pack else ""
        raise ModelFolderError(
            f"{self.model_id} is {state}. Get it{size} with: {self.download_command}"
        )

    @property
    def download_command(self) -> str:
        name = self.model_id if known.pack(self.model_id) else self.repo
        revision = "" if self.revision == "main" else f" --revision {self.revision}"
        return f"llm mtplx download {name}{revision}"


def list_entries() -> tuple[list[Entry], list[str]]:
    """Every known model, and one line for each registration that cannot be read."""
    entries = {DEMO_ID: Entry(DEMO_ID, MODEL_DIR)}
    entries |= {pack.model_id: Entry(pack.model_id) for pack in known.PACKS}
    try:
        registered = _read_registry()
    except MtplxError as error:
        return list(entries.values()), [str(error)]
    warnings = []
    for model_id, value in registered.items():
        entry = _parse(model_id, value)
        if entry is None:
            warnings.append(
                f"{registry_path()}: the entry {model_id!r} cannot be read; run 'llm "
                f"mtplx remove {model_id}' and add the model again."
            )
        else:
            entries[model_id] = entry
    return list(entries.values()), warnings


def find_entry(name: str) -> Entry | None:
    """The model with this id or alias."""
    return next((e for e in list_entries()[0] if name in (e.model_id, *e.aliases)), None)


def is_repo(name: str) -> bool:
    """Whether ``name`` has the form owner/name of a repository on Hugging Face."""
    return re.fullmatch(REPO, name) is not None


def model_id_of(repo: str) -> str:
    """The catalog's id where the repository is one of its own, else ``mtplx/owner/name``."""
    found = known.of_repo(repo)
    if found is not None and found[1].repo.lower() == repo.lower():
        return found[0].model_id
    return f"mtplx/{repo}"


def entry_named(name: str) -> Entry:
    """As ``find_entry``. Raises MtplxError where there is none."""
    entry = find_entry(name)
    if entry is not None:
        return entry
    raise MtplxError(f"There is no model named {name!r}. List the models with 'llm mtplx models'.")


def check_addable(entry: Entry) -> None:
    """Raises MtplxError where an alias is another model's, or the registry cannot be read."""
    _read_registry()
    for other in list_entries()[0]:
        taken = {other.model_id, *other.aliases} & set(entry.aliases)
        if taken and other.model_id != entry.model_id:
            raise MtplxError(
                f"The alias {taken.pop()!r} is already used by {other.model_id}; choose "
                "another one."
            )


def add_entry(entry: Entry) -> None:
    """Add a model, or replace what has its id."""
    place = {"repo": entry.repo, "revision": entry.revision}
    if entry.folder is not None:
        place = {"path": str(entry.folder)}
    with _registry() as registered:
        check_addable(entry)
        registered[entry.model_id] = {**place, "aliases": list(entry.aliases)}


def remove_entry(name: str) -> str:
    """Forget the model with this id or alias; its files stay. Returns its id."""
    with _registry() as registered:
        for model_id, value in registered.items():
            entry = _parse(model_id, value)
            if model_id == name or (entry is not None and name in entry.aliases):
                del registered[model_id]
                return model_id
    raise MtplxError(
        f"There is no added model named {name!r}. List the models with 'llm mtplx models'."
    )


def _parse(model_id: str, value: Any) -> Entry | None:
    if not isinstance(value, dict):
        return None
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(a, str) for a in aliases):
        return None
    path, repo, revision = value.get("path"), value.get("repo"), value.get("revision", "main")
    if isinstance(path, str):
        return Entry(model_id, Path(path), tuple(aliases))
    if isinstance(repo, str) and isinstance(revision, str):
        return Entry(model_id, None, tuple(aliases), repo, revision)
    return None


def _read_registry() -> dict[str, Any]:
    path = registry_path()
    try:
        models = jsonfile.read(path).get("models")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(models, dict):
        raise _unreadable(path, "'models' is not an object")
    return models


def _unreadable(path: Path, why: str) -> MtplxError:
    return MtplxError(
        f"{path} cannot be read ({why}). Repair it or delete it; no model files are lost."
    )


@contextmanager
def _registry() -> Iterator[dict[str, Any]]:
    """What is registered, to be changed; written if it was. One process at a time."""
    path = registry_path()
    try:
        with jsonfile.locked(path):
            registered = _read_registry()
            before = dict(registered)
            yield registered
            if registered != before:
                jsonfile.write(path, {"models": registered})
    except OSError as error:
        raise MtplxError(f"{path} cannot be written: {error}.") from None
