"""Fetching a model into Hugging Face's cache: resumed where it broke off, checked on landing.

A file is first ``<hash>.incomplete``, so what a later version of it would be cannot be glued to it.
The revision's name is written last: until then nothing takes the folder for a whole model.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import filelock

from . import places
from .hub import BrokenOff, DownloadError, Hub, RemoteFile, RemoteRepo

RETRIES = 5  # in a row, without a byte
PAUSE_S = 1.0


class Meter(Protocol):
    """Hears of bytes as they come; negative where they have to come again."""

    def advance(self, size: int) -> None: ...

    def begin(self, name: str) -> None: ...


def snapshot_path(repo: RemoteRepo) -> Path:
    return places.repo_folder(repo.repo) / "snapshots" / repo.commit


def missing(repo: RemoteRepo) -> list[RemoteFile]:
    folder = snapshot_path(repo)
    return [file for file in repo.files if not (folder / file.name).exists()]


def bytes_to_fetch(repo: RemoteRepo) -> int:
    blobs = places.repo_folder(repo.repo) / "blobs"
    sizes = {file.key: file.size for file in missing(repo) if not (blobs / file.key).exists()}
    return sum(size - min(_size(_part(blobs, key)), size) for key, size in sizes.items())


def fetch(hub: Hub, repo: RemoteRepo, revision: str, meter: Meter) -> Path:
    """Fetch what is missing of ``repo`` and return its folder."""
    root = places.repo_folder(repo.repo)
    try:
        with _only_one(root):
            for file in missing(repo):
                _fetch_file(hub, repo, file, root / "blobs", meter)
            if revision != repo.commit:
                _write_ref(root / "refs" / revision, repo.commit)
    except OSError as error:
        raise DownloadError(
            f"{repo.repo} could not be written to {root}: {error.strerror or error}. "
            "Downloaded data is kept; run the command again to resume."
        ) from error
    return snapshot_path(repo)


def _fetch_file(hub: Hub, repo: RemoteRepo, file: RemoteFile, blobs: Path, meter: Meter) -> None:
    blob = blobs / file.key
    if not blob.exists():
        meter.begin(file.name)
        blobs.mkdir(parents=True, exist_ok=True)
        part = _part(blobs, file.key)
        if _size(part) > file.size:
            part.unlink()
        with part.open("a+b") as out:
            sink = _Checked(out, file, meter)
            _fetch_rest(hub, repo, file, sink)
            out.flush()
            os.fsync(out.fileno())
        if sink.digest() != file.key:
            part.unlink()
            raise DownloadError(
                f"{repo.repo}: {file.name} is damaged (its hash differs from the hub's) "
                "and was deleted. Run the command again to download it."
            )
        os.replace(part, blob)
    _link(blob, snapshot_path(repo) / file.name)


def _fetch_rest(hub: Hub, repo: RemoteRepo, file: RemoteFile, sink: "_Checked") -> None:
    """Go on after breaks, as long as something comes."""
    in_vain = 0
    while sink.size < file.size:
        before = sink.size
        try:
            hub.fetch(repo, file.name, sink.write, sink.size, sink.restart)
            return
        except BrokenOff:
            in_vain = 0 if sink.size > before else in_vain + 1
            if in_vain > RETRIES:
                raise
            time.sleep(PAUSE_S)


class _Checked:
    """A file that hashes what is written to it, beginning with what it already holds."""

    def __init__(self, out: BinaryIO, file: RemoteFile, meter: Meter) -> None:
        self._out = out
        self._file = file
        self._meter = meter
        self._begin()
        here = os.fstat(out.fileno()).st_size
        out.seek(0)
        while self.size < here:
            self._take(out.read(min(1 << 20, here - self.size)))

    def _begin(self) -> None:
        # Git names a small file by the sha1 of its header and content.
        header = b"blob %d\0" % self._file.size
        self._hash = hashlib.sha256() if self._file.large else hashlib.sha1(header)
        self.size = 0

    def _take(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)

    def write(self, data: bytes) -> None:
        self._out.write(data)
        self._take(data)
        self._meter.advance(len(data))

    def restart(self) -> None:
        """The server will send everything again."""
        self._meter.advance(-self.size)
        self._out.truncate(0)
        self._begin()

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextlib.contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """One download of a repository at a time: two would append to one file."""
    lock = root.parent / ".locks" / root.name / "llm-mtplx.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=0):
            yield
    except filelock.Timeout:
        raise DownloadError(
            "Another process is downloading this model. Wait for it, or stop it and try again."
        ) from None


def _link(blob: Path, pointer: Path) -> None:
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.unlink(missing_ok=True)
    try:
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:  # a disk without links
        os.replace(blob, pointer)


def _write_ref(path: Path, commit: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(commit, encoding="utf-8")


def _part(blobs: Path, key: str) -> Path:
    return blobs / f"{key}.incomplete"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
