"""A small store that is damaged and put back thousands of times, and what stands around it."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

# What is written again in any case: SQLite writes into mapped memory, which moves no clock.
_MAPPED = ("manifest.sqlite", "manifest.sqlite-wal", "manifest.sqlite-shm")


@dataclass(frozen=True)
class _Node:
    mode: int
    content: bytes | None  # None: a directory


@dataclass
class Site:
    """A copy of a store in ``where/cache``, with witnesses around it that nothing may touch."""

    where: Path
    age_s: float  # of every file: older than what garbage collection spares

    def __post_init__(self) -> None:
        self.cache = self.where / "cache"
        self.root = self.cache / "sessions-v1"
        self.outside = self.where / "outside"
        self._nodes: dict[str, _Node] = {}
        self._witnesses: dict[str, object] = {}
        self._time = 0.0

    def adopt(self, store: Path, now: float) -> None:
        """Remember ``store`` as what `reset` brings back, and set the witnesses up."""
        self._time = float(int(now - self.age_s))
        self._nodes = {".": _Node(0o700, None)}
        for path in sorted(store.rglob("*")):
            mode = stat.S_IMODE(path.lstat().st_mode)
            content = None if path.is_dir() else path.read_bytes()
            self._nodes[str(path.relative_to(store))] = _Node(mode, content)
        self.cache.mkdir(parents=True)
        self._set_witnesses()
        self.reset()
        self._witnesses = self._look()

    def names(self) -> list[str]:
        """Files of the store as it is when whole, by their path in it."""
        return [name for name, node in self._nodes.items() if node.content is not None]

    def content(self, name: str) -> bytes:
        content = self._nodes[name].content
        assert content is not None
        return content

    def folders(self) -> list[str]:
        return [name for name, node in self._nodes.items() if node.content is None]

    def reset(self) -> None:
        """Make the store what it was; only what differs is written."""
        for each in os.scandir(self.cache):
            if each.name.startswith("sessions-v") and each.name != self.root.name:
                remove(Path(each.path))
        whole: set[str] = set()
        self._drop_strangers(str(self.root), ".", whole)
        for name, node in self._nodes.items():
            if name in whole:
                continue
            path = self.root / name
            if node.content is None:
                path.mkdir(node.mode, exist_ok=True)
                path.chmod(node.mode)
            else:
                # Another file of that name: a connection that is not collected yet has the old.
                remove(path)
                path.write_bytes(node.content)
                path.chmod(node.mode)
                os.utime(path, (self._time, self._time))

    def _drop_strangers(self, path: str, name: str, whole: set[str]) -> None:
        """Remove whatever is not of the kind it was, or was not there; links are not followed.
        What is as it was is added to ``whole``."""
        node = self._nodes.get(name)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        mode = stat.S_IMODE(status.st_mode)
        if node is None or (node.content is None and not stat.S_ISDIR(status.st_mode)):
            remove(Path(path))
        elif node.content is None:
            if mode != 0o700:
                os.chmod(path, 0o700)
            if node.mode == 0o700:
                whole.add(name)
            for each in os.listdir(path):
                inside = each if name == "." else f"{name}/{each}"
                self._drop_strangers(f"{path}/{each}", inside, whole)
        elif not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            remove(Path(path))
        elif name not in _MAPPED and (mode, status.st_size, status.st_mtime) == (
            node.mode,
            len(node.content),
            self._time,
        ):
            whole.add(name)

    def touched(self) -> list[str]:
        """What is not as it was around the store; it is put back."""
        now = self._look()
        if now == self._witnesses:
            return []
        names = sorted(now.keys() | self._witnesses.keys())
        changed = [name for name in names if now.get(name) != self._witnesses.get(name)]
        remove(self.outside)
        self._set_witnesses()
        self._witnesses = self._look()
        return changed

    def _set_witnesses(self) -> None:
        """Names that a careless join with a hostile name would reach."""
        self.outside.mkdir(exist_ok=True)
        for folder in (self.where, self.cache, self.outside):
            for name in ("x", "x.lock", "x.tmp", "STORE", "manifest.lock"):
                path = folder / name
                remove(path)
                path.write_bytes(b"not yours")
                path.chmod(0o644)
                os.utime(path, (self._time, self._time))
        # A folder with all that the store has, to be linked to.
        for name, node in self._nodes.items():
            path = self.outside / "copy" / name
            if node.content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(node.content)
                os.utime(path, (self._time, self._time))

    def _look(self) -> dict[str, object]:
        found: dict[str, object] = {}
        waiting = [self.where]
        while waiting:
            with os.scandir(waiting.pop()) as each_of:
                for each in each_of:
                    if each.name.startswith("sessions-v"):
                        continue
                    status = each.stat(follow_symlinks=False)
                    told = (status.st_mode, status.st_ino)
                    if each.is_dir(follow_symlinks=False):
                        waiting.append(Path(each.path))
                        found[each.path] = told
                    else:
                        found[each.path] = (*told, status.st_size, status.st_mtime_ns)
        return found


def remove(path: Path) -> None:
    """Whatever it is; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
