"""How much the store may hold."""

import os
from dataclasses import dataclass
from typing import Literal

from ..reasons import StoreError
from ..records import StoreLimits
from ..root import StoreRoot

GIB = 1 << 30

DiskState = Literal["ok", "low", "full"]


@dataclass(frozen=True)
class Room:
    """The cap on the store's size that holds now, and what it follows from. Bytes."""

    configured: int
    stored: int  # other versions and what nobody names included
    free: int  # on the disk
    floor: int  # of free bytes, below which nothing is written
    largest: int  # conversation

    @property
    def cap(self) -> int:
        ceiling = self.stored + self.free - self.floor
        share = max((self.free + self.stored) // 4, 2 * self.largest)
        return max(min(self.configured, ceiling, share), 0)

    @property
    def state(self) -> DiskState:
        """``low`` where a conversation and its successor may not fit at once."""
        if self.free <= self.floor:
            return "full"
        return "low" if self.stored + self.free - self.floor < 2 * self.largest else "ok"

    def over(self, more: int = 0) -> int:
        """Bytes that must go before ``more`` fit.

        Where something else has filled the disk, what is kept here stays: it would not help long.
        """
        cap = self.configured if self.state == "full" else self.cap
        return max(self.stored + more - cap, 0)


def room_now(root: StoreRoot, limits: StoreLimits, stored: int, largest: int) -> Room:
    """Raises StoreError."""
    free = disk_free(root)
    configured = limits.max_bytes
    if configured is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        configured = default_max_bytes(memory, free + stored)
    return Room(configured, stored, free, limits.free_floor_bytes, largest)


def default_max_bytes(memory: int, free: int) -> int:
    """The largest size of a store on a machine with this much memory and free disk."""
    if memory <= 16 * GIB:
        return 16 * GIB
    if memory <= 32 * GIB:
        return 24 * GIB
    if memory <= 64 * GIB:
        return 100 * GIB if free >= 150 * GIB else 32 * GIB
    return 100 * GIB


def disk_free(root: StoreRoot) -> int:
    """Bytes this user may still write on the store's disk. Raises StoreError."""
    try:
        status = os.statvfs(root.path)
    except OSError as error:
        raise StoreError("store_unavailable", str(error)) from None
    return status.f_bavail * status.f_frsize
