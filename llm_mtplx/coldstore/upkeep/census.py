"""What lies in the store's directory, and how that differs from what the manifest says."""

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from .. import keys, locks
from ..blobs import AREA, SUFFIX
from ..entries import Entry
from ..index.connection import NAME, SET_ASIDE
from ..index.manifest import Manifest
from ..keys import FileKind, Kind, parse_key
from ..reasons import StoreError
from ..root import AREAS, MARKER, StoreRoot, bytes_taken, is_wide

SHARDS = tuple(f"{number:02x}" for number in range(256))
AREA_NAMES = ("blobs", "entries")
_KINDS = {(AREA[kind], suffix): kind for kind, suffix in SUFFIX.items()}
_TEMP = re.compile(r"\.([0-9a-f]{64})\.([0-9a-f]{32})\.tmp")
_ROOT_TEMP = re.compile(rf"\.({MARKER}|{re.escape(NAME)})-[0-9a-f]+")

StrayKind = Literal["orphan", "temporary", "set_aside"]


@dataclass(frozen=True)
class Stray:
    """A file that nothing needs. ``file`` says what it was to hold, where its name does."""

    kind: StrayKind
    place: tuple[str, ...]  # of directories below the root
    name: str
    nbytes: int
    file: tuple[Kind, bytes] | None = None


@dataclass
class Seen:
    """What a look at some directories found."""

    files: int = 0
    nbytes: int = 0  # as long as files are
    taken_bytes: int = 0  # the same, without the holes
    disk_bytes: int = 0  # as the file system counts, holes left out
    strays: list[Stray] = field(default_factory=list)
    gone: list[tuple[FileKind, bytes]] = field(default_factory=list)  # rows without a file
    unfiled: list[Entry] = field(default_factory=list)  # entries in rows only
    young: int = 0  # files without a row that may be about to get one
    unknown: int = 0  # files with names that are none of the store's; they are left alone
    unnamed_bytes: int = 0  # of all files without a row
    wide: list[tuple[tuple[str, ...], str]] = field(default_factory=list)  # others have rights

    def add(self, other: "Seen") -> None:
        self.files += other.files
        self.nbytes += other.nbytes
        self.taken_bytes += other.taken_bytes
        self.disk_bytes += other.disk_bytes
        self.strays += other.strays
        self.gone += other.gone
        self.unfiled += other.unfiled
        self.young += other.young
        self.unknown += other.unknown
        self.unnamed_bytes += other.unnamed_bytes
        self.wide += other.wide


class Census:
    """Compares directories with a manifest that is whole. One use, one thread."""

    def __init__(self, root: StoreRoot, manifest: Manifest, grace_s: float) -> None:
        self._root = root
        self._manifest = manifest
        self._grace_s = grace_s
        self._now = time.time()
        self._announced = {key for key, _ in manifest.announced()}
        self._entries: dict[bytes, Entry] | None = None
        self._living: dict[str, bool] = {}
        self._refuse_links()

    def everywhere(self) -> Seen:
        """Raises StoreError."""
        seen = self.top()
        for area in AREA_NAMES:
            for shard in SHARDS:
                seen.add(self.shard(area, shard))
        return seen

    def top(self) -> Seen:
        """The files beside the areas."""
        seen = Seen()
        for name, status in self._list():
            if stat.S_ISDIR(status.st_mode):
                continue
            self._count(seen, status)
            seen.unnamed_bytes += bytes_taken(status)
            if name.startswith(SET_ASIDE):
                self._judge(seen, Stray("set_aside", (), name, bytes_taken(status)), status)
            elif _ROOT_TEMP.fullmatch(name):
                self._judge(seen, Stray("temporary", (), name, bytes_taken(status)), status)
        return seen

    def shard(self, area: str, shard: str) -> Seen:
        """One directory of blobs or entries."""
        seen = Seen(wide=[((area,), shard)])
        rows = self._rows(area, shard)
        for name, status in self._list(area, shard):
            self._count(seen, status)
            if is_wide(status):
                seen.wide.append(((area, shard), name))
            file, writer = _read_name(area, shard, name)
            regular = stat.S_ISREG(status.st_mode)
            if file in rows and regular:
                rows.remove(file)
                continue
            seen.unnamed_bytes += bytes_taken(status)
            place = (area, shard)
            if writer is not None:
                if not self._is_living(writer):
                    seen.strays.append(Stray("temporary", place, name, bytes_taken(status)))
            elif file in rows:
                continue  # something else in a file's place: its row goes first
            elif file is None or stat.S_ISDIR(status.st_mode):
                seen.unknown += 1
            elif file[1] in self._announced:
                seen.young += 1
            else:
                self._judge(seen, Stray("orphan", place, name, bytes_taken(status), file), status)
        for kind, key in sorted(rows):
            if kind == "entry":
                seen.unfiled.append(self._entry_rows()[key])
            else:
                seen.gone.append((kind, key))
        return seen

    def _judge(self, seen: Seen, stray: Stray, status: os.stat_result) -> None:
        # A clock set back makes files from the time to come: those are old.
        if 0 <= self._now - status.st_mtime < self._grace_s:
            seen.young += 1
        else:
            seen.strays.append(stray)

    def _count(self, seen: Seen, status: os.stat_result) -> None:
        seen.files += 1
        seen.nbytes += status.st_size
        seen.taken_bytes += bytes_taken(status)
        seen.disk_bytes += status.st_blocks * 512

    def _rows(self, area: str, shard: str) -> set[tuple[Kind, bytes]]:
        if area == "entries":
            return {("entry", key) for key in self._entry_rows() if key[:1].hex() == shard}
        found: set[tuple[Kind, bytes]] = set()
        first = bytes.fromhex(shard)
        last = first + b"\xff" * (keys.KEY_BYTES - 1)
        tables: Iterable[tuple[Kind, str]] = (("block", "blocks"), ("checkpoint", "checkpoints"))
        with self._manifest.using() as sql:
            for kind, table in tables:
                query = f"SELECT key FROM {table} WHERE key BETWEEN ? AND ?"
                rows = sql.execute(query, (first, last))
                found.update((kind, key) for (key,) in rows if _is_key(key))
        return found

    def _entry_rows(self) -> dict[bytes, Entry]:
        if self._entries is None:
            self._entries = {entry.key: entry for entry in self._manifest.entries()}
        return self._entries

    def _is_living(self, writer: str) -> bool:
        if writer not in self._living:
            self._living[writer] = not locks.is_dead(self._root, writer)
        return self._living[writer]

    def _refuse_links(self) -> None:
        """Below the root no link is followed; one in a directory's place is somebody's mistake."""
        places: list[tuple[str, ...]] = [()]
        places += [(area,) for area in AREA_NAMES]
        for place in places:
            expected = AREAS if not place else SHARDS
            for name, status in self._list(*place):
                if name in expected and stat.S_ISLNK(status.st_mode):
                    what = os.path.join(self._root.path, *place, name)
                    raise StoreError("not_a_store", f"{what} is not a directory")

    def _list(self, *place: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            handle = self._root.open_dir(*place)
        except (FileNotFoundError, NotADirectoryError):
            return  # links have been refused: nothing can be below anything else
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        try:
            with os.scandir(handle) as found:
                for each in found:
                    try:
                        yield each.name, each.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # removed meanwhile
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        finally:
            os.close(handle)


def _is_key(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == keys.KEY_BYTES


def _read_name(area: str, shard: str, name: str) -> tuple[tuple[Kind, bytes] | None, str | None]:
    """The file a name stands for, or the writer of a temporary one; neither for other names."""
    if temp := _TEMP.fullmatch(name):
        return None, temp[2]
    stem, dot, rest = name.partition(".")
    kind, key = _KINDS.get((area, dot + rest)), parse_key(stem)
    if kind is None or key is None or key[:1].hex() != shard:
        return None, None
    return (kind, key), None
