"""What makes two states interchangeable, as one string.

Weights are told by their bytes: the blob names of a Hugging Face cache where the files are links
into one, else their hashes. Hashing a large model takes longer than a short turn, so it runs in
the background and is remembered by path, size, times and inode; until it is known, states stay in
RAM.
"""

import contextlib
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import xxhash

from .. import jsonfile
from ..catalog.folder import ModelFolder

INLINE_BYTES = 256 << 20  # hashed at once; more goes to the background
_CHUNK = 16 << 20


class Fingerprint:
    """The fingerprint of one loaded model; ``value`` is None until its weights are known."""

    def __init__(self, folder: ModelFolder, memo: Path, computed_with: dict[str, Any]) -> None:
        """``computed_with``: versions, backend, dtypes, and whatever else shapes the numbers."""
        head = [file for file, _, _ in folder.head.tensors.values()] if folder.head else []
        self._files = sorted({*folder.trunk_headers, *head})
        self._small = [folder.path / name for name in ("config.json", "tokenizer.json")]
        self._computed_with = computed_with
        self._memo = memo
        self.value: str | None = None
        self._hashing: threading.Thread | None = None
        unknown = sum(f.stat().st_size for f in self._files if self._remembered(f) is None)
        if unknown <= INLINE_BYTES:
            self._compute()
        else:
            self._hashing = threading.Thread(target=self._compute, name="mtplx-hash", daemon=True)
            self._hashing.start()

    def wait(self, timeout: float) -> None:
        """Until the weights are known, ``timeout`` seconds at most."""
        if self._hashing is not None:
            self._hashing.join(timeout)

    def _compute(self) -> None:
        with contextlib.suppress(OSError):
            weights = [[file.name, self._weights_hash(file)] for file in self._files]
            small = [[file.name, _hash_file(file)] for file in self._small]
            told = json.dumps([weights, small, self._computed_with], sort_keys=True)
            self.value = hashlib.sha256(told.encode()).hexdigest()

    def _weights_hash(self, file: Path) -> str:
        blob = _hub_blob(file)
        if blob is not None:
            return blob
        known = self._remembered(file)
        if known is not None:
            return known
        before = _stamp(file)
        value = _hash_file(file)
        if _stamp(file) == before:
            self._remember(file, before, value)
        return value

    def _remembered(self, file: Path) -> str | None:
        blob = _hub_blob(file)
        if blob is not None:
            return blob
        entry = jsonfile.read_or_empty(self._memo).get(str(file.resolve()))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == _stamp(file):
            return str(entry[1])
        return None

    def _remember(self, file: Path, stamp: list[int], value: str) -> None:
        # Without the memo the weights are hashed again next time.
        with contextlib.suppress(OSError), jsonfile.locked(self._memo):
            memo = jsonfile.read_or_empty(self._memo)
            memo[str(file.resolve())] = [stamp, value]
            jsonfile.write(self._memo, memo)


def _hub_blob(file: Path) -> str | None:
    """A file of a Hugging Face cache is a link to blobs/<sha256>."""
    target = file.resolve()
    name = target.name
    if file.is_symlink() and target.parent.name == "blobs" and len(name) == 64:
        return name
    return None


def _stamp(file: Path) -> list[int]:
    told = file.stat()
    return [told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino]


def _hash_file(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb", buffering=0) as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
