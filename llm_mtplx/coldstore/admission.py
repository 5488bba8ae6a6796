"""Whether a save may be written now: free disk, bytes an hour, and room under the cap."""

import time
from collections.abc import Iterable

from .blobs import Blobs
from .index.ledger import note_written, stored_now, written_last_hour
from .index.manifest import Manifest
from .reasons import StoreError
from .records import StoreLimits
from .root import StoreRoot
from .upkeep.limits import disk_free, room_now
from .upkeep.tidy import Tidier

_COUNTED_S = 5.0  # for so long the store's size is not asked for again


class Admission:
    """Lives on the writer's thread. Makes room where there is none."""

    def __init__(
        self, root: StoreRoot, blobs: Blobs, manifest: Manifest, limits: StoreLimits
    ) -> None:
        self._root = root
        self._manifest = manifest
        self._limits = limits
        self._tidier = Tidier(root, blobs, manifest, limits, _let_others)
        self._stored = 0
        self._counted = -_COUNTED_S

    def admit(self, nbytes: int, saving: str | None, held: Iterable[bytes]) -> None:
        """Raise StoreError, with the reason, unless ``nbytes`` may be written.

        ``saving`` is the conversation they belong to, ``held`` the blocks they go on from.
        """
        budget = self._limits.write_budget_bytes
        written = written_last_hour(self._manifest)
        if written + nbytes > budget:
            raise StoreError("write_budget", f"{written:,} of {budget:,} bytes this hour")
        room = room_now(self._root, self._limits, self._size(), 0)
        if room.over(nbytes):
            room, _ = self._tidier.tidy(nbytes, saving, held)
            self._stored = room.stored
        free, floor = disk_free(self._root), self._limits.free_floor_bytes
        if free - nbytes < floor:
            raise StoreError("low_disk", f"{free:,} bytes are free, {floor:,} stay free")
        if room.over(nbytes):
            raise StoreError("no_room", f"{room.stored:,} of {room.cap:,} bytes are in use")

    def wrote(self, nbytes: int) -> None:
        """Count bytes that were written. Raises StoreError."""
        self._stored += nbytes
        if nbytes:
            note_written(self._manifest, nbytes)

    def _size(self) -> int:
        if time.monotonic() - self._counted >= _COUNTED_S:
            self._stored = stored_now(self._manifest)
            self._counted = time.monotonic()
        return self._stored


def _let_others(held: float) -> bool:
    time.sleep(held)
    return True
