"""Where model folders lie on this machine. Fetches nothing and imports no client."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..settings import expand


def hub_cache() -> Path:
    """Hugging Face's cache, by the rules of its own client."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _expand(named)
    home = os.environ.get("HF_HOME")
    if home:
        return _expand(home) / "hub"
    return _expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def repo_folder(repo: str) -> Path:
    return hub_cache() / ("models--" + repo.replace("/", "--"))


def snapshot(repo: str, revision: str) -> Path | None:
    """The folder in Hugging Face's cache that holds ``revision``: a branch, a tag or a commit."""
    folder = repo_folder(repo)
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision
    path = folder / "snapshots" / commit
    return path if _is_model(path) else None


def folders(repo: str, revision: str = "main") -> Iterator[Path]:
    """Every folder that may hold ``repo``: Hugging Face's cache, LM Studio's and MTPLX's models."""
    found = snapshot(repo, revision)
    if found is not None:
        yield found
    if revision != "main":
        return
    candidates = [lm_studio_models() / repo, expand(_OLD_LM_STUDIO) / repo]
    owner, _, name = repo.partition("/")
    candidates += [mtplx_models() / f"{owner}--{name}", mtplx_models() / name]
    yield from (path for path in candidates if _is_model(path))


def find(repo: str, revision: str = "main") -> Path | None:
    """The first of those folders in which no weight file is missing."""
    return next((path for path in folders(repo, revision) if is_complete(path)), None)


def is_complete(path: Path) -> bool:
    """Whether every weight file that the folder's index names is there, or one without index."""
    try:
        index = json.loads((path / "model.safetensors.index.json").read_text(encoding="utf-8"))
        names = set(index["weight_map"].values())
    except FileNotFoundError:
        return any(os.path.isfile(file) for file in path.glob("model*.safetensors"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return all(os.path.isfile(path / str(name)) for name in names)


def discover() -> Iterator[tuple[str, Path]]:
    """``owner/name`` and folder of everything that looks like a model in those places."""
    for folder in _children(hub_cache()):
        kind, *names = folder.name.split("--")
        if kind == "models" and len(names) == 2:
            path = snapshot("/".join(names), "main")
            if path is not None:
                yield "/".join(names), path
    for root in (lm_studio_models(), expand(_OLD_LM_STUDIO)):
        for owner in _children(root):
            for path in _children(owner):
                if _is_model(path):
                    yield f"{owner.name}/{path.name}", path
    for path in _children(mtplx_models()):
        if _is_model(path):
            owner_name, separator, name = path.name.partition("--")
            yield (f"{owner_name}/{name}" if separator else f"mtplx/{path.name}"), path


def names_of(path: Path) -> Iterator[str]:
    """What a model folder is called, by its real name first; in Hugging Face's cache, that is the
    repository's."""
    for place in (path.resolve(), path):
        yield place.parent.parent.name if place.parent.name == "snapshots" else place.name


_OLD_LM_STUDIO = "~/.cache/lm-studio/models"


def lm_studio_models() -> Path:
    """LM Studio's models: below the home its pointer file names, else below ~/.lmstudio."""
    try:
        home = expand("~/.lmstudio-home-pointer").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        home = ""
    return _expand(home or "~/.lmstudio") / "models"


def mtplx_models() -> Path:
    return expand("~/.mtplx/models")


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_model(path: Path) -> bool:
    return os.path.isfile(path / "config.json")


def _expand(path: str) -> Path:
    return expand(os.path.expandvars(path))


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
