"""Everything that can be known about a download before its first large byte."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import fetch, fit, known, machine, places
from .architecture import ROTATED, check_architecture, text_config
from .contract import read_contract
from .folder import HEAD_FILES, HEAD_PREFIXES, named_heads
from .footprint import of_config
from .hub import DownloadError, Hub, RemoteRepo


@dataclass(frozen=True)
class Preflight:
    remote: RemoteRepo
    model_type: str
    head: bool | None  # None: no index tells before the weights are here
    to_fetch: int  # bytes
    disk_free: int
    disk_needed: int
    peak: int  # memory the model needs, in bytes
    memory: int
    verdict: fit.Verdict

    def report(self) -> dict[str, Any]:
        return {
            "repo": self.remote.repo,
            "commit": self.remote.commit,
            "model_type": self.model_type,
            "head": self.head,
            "bytes": self.remote.size,
            "bytes_to_fetch": self.to_fetch,
            "disk_free": self.disk_free,
            "disk_needed": self.disk_needed,
            "memory": self.memory,
            "memory_needed": self.peak,
            "verdict": self.verdict,
        }

    def words(self) -> str:
        heads = {True: ", with its MTP head", False: ", no MTP head: decodes without drafts"}
        head = "" if self.head is None else heads[self.head]
        size = f"{_gigabytes(self.to_fetch)} of {_gigabytes(self.remote.size)}"
        return (
            f"from    {self.remote.repo} at {self.remote.commit[:12]}\n"
            f"type    {self.model_type}{head}\n"
            f"fetch   {size} in {len(self.remote.files)} files\n"
            f"disk    {_gigabytes(self.disk_free)} free\n"
            f"memory  {self.verdict}: needs about {max(self.peak / fit.GIB, 0.1):.1f} GiB, "
            f"this machine has {self.memory / fit.GIB:.1f} GiB"
        )

    def refuse_too_large(self, force: bool) -> None:
        """``force`` is for the memory, which may be another machine's; never for the disk."""
        if self.to_fetch and self.disk_free < self.disk_needed:
            raise DownloadError(
                f"Not enough disk space: the download is {_gigabytes(self.to_fetch)} and "
                f"needs {_gigabytes(self.disk_needed)} free in {places.hub_cache()}, but "
                f"only {_gigabytes(self.disk_free)} is free."
            )
        if self.verdict == fit.Verdict.TOO_LARGE and not force:
            raise DownloadError(
                "This model does not fit into this machine's memory. Use --force to "
                "download it anyway."
            )


def preflight(hub: Hub, repo: str, revision: str) -> Preflight:
    """Raises DownloadError or ModelFolderError where ``repo`` is nothing that can be run here."""
    refuse_not_runnable(repo)
    whole = hub.look_up(repo, revision)
    config = hub.read_json(whole, "config.json")
    if config is None:
        raise DownloadError(
            f"{repo} has no config.json, so it is not a model for transformers or MLX."
        )
    check_architecture(Path(repo), config)
    runtime = hub.read_json(whole, "mtplx_runtime.json") or {}
    read_contract(Path(repo), runtime, config)
    heads = named_heads(Path(repo), config, runtime)
    for name in heads:
        if name not in whole.names:
            raise DownloadError(f"{repo} names the MTP head file {name} but does not contain it.")
    remote = whole.needed(heads)
    weights = [file for file in remote.files if file.name.endswith(".safetensors")]
    if not weights:
        raise DownloadError(f"{repo} has no safetensors weights; other formats cannot be read.")
    size = sum(file.size for file in weights if "vision" not in file.name)
    pack = known.of_repo(repo)
    peak = fit.peak(of_config(text_config(config), size, pack[1] if pack else None))
    to_fetch = fetch.bytes_to_fetch(remote)
    memory = machine.memory_bytes()
    return Preflight(
        remote=remote,
        model_type=config["model_type"],
        head=_has_head(hub, remote, config, heads),
        to_fetch=to_fetch,
        disk_free=_free(places.hub_cache()),
        disk_needed=fit.disk_needed(to_fetch),
        peak=peak,
        memory=memory,
        verdict=fit.verdict(memory, peak),
    )


def refuse_not_runnable(repo: str) -> None:
    reason = known.NOT_RUNNABLE.get(repo)
    if reason is not None:
        raise DownloadError(f"{repo} cannot be run yet: {reason}.")


def _has_head(
    hub: Hub, remote: RemoteRepo, config: dict[str, Any], named: list[str]
) -> bool | None:
    """As the folder's reader will find it once it is here."""
    if remote.names & {*HEAD_FILES, *named}:
        return True
    if config["model_type"] == ROTATED:
        return False
    index = hub.read_json(remote, "model.safetensors.index.json")
    if index is None or not isinstance(index.get("weight_map"), dict):
        return None
    return any(name.startswith(HEAD_PREFIXES) for name in index["weight_map"])


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
