"""Why a lookup found less than there could be, and why a write did not happen."""

import errno
from typing import Literal, get_args

MissReason = Literal[
    "not_found",  # no block of this prompt is stored
    "no_checkpoint",  # blocks are stored, but no state at a usable position
    "too_short",  # the prompt has no position to restore
    "corrupt_block",  # a block file failed its checks; it was dropped
    "corrupt_checkpoint",  # a checkpoint file failed its checks; it was dropped
    "corrupt_index",  # a row of the index holds what none can; it was dropped
    "file_gone",  # a file the manifest names is not there
    "layout_refused",  # the caller has no place for the file's sections
    "rebuilding",  # the manifest was lost and is being rebuilt from the files
    "store_absent",  # nothing was ever stored here
    "store_busy",  # another process holds the manifest
    "store_unavailable",  # the store cannot be opened or read
    "other_version",  # the store was written in a format this version does not know
    "not_a_store",  # the directory holds something else
]
DropReason = Literal[
    "backlog_full",  # more bytes wait to be written than allowed
    "disk_full",  # the system refused a write
    "low_disk",  # less than the floor is free, 10 GiB unless told otherwise
    "write_budget",  # as many bytes as allowed were written in the last hour
    "no_room",  # the cap leaves no room, and what is stored is in use
    "line_gone",  # what it goes on from was removed meanwhile; the next turn writes it again
    "store_read_only",
    "store_busy",
    "store_unavailable",
    "other_version",
    "not_a_store",
    "write_failed",  # any other error; `last_error` has its text
    "closed",  # the store was closed before the write began
    "fingerprint_pending",  # it is not known yet which weights made the state
    "fingerprint_failed",  # and it will not be: a file of the model cannot be read
]
MISS_REASONS: tuple[MissReason, ...] = get_args(MissReason)
DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)


class StoreError(Exception):
    """Something in the store cannot be used now. Never leaves this package."""

    def __init__(self, reason: MissReason | DropReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class BadFile(Exception):
    """A file's bytes are not what its name, header or checksum say."""


class LayoutRefused(Exception):
    """A caller says that a file cannot be what its key names: its sections are others."""


def miss_reason(error: StoreError | OSError) -> MissReason:
    """The reason under which a failed lookup is reported."""
    for reason in MISS_REASONS:
        if isinstance(error, StoreError) and error.reason == reason:
            return reason
    return "store_unavailable"


def drop_reason(error: Exception) -> DropReason:
    """The reason under which a failed write is counted."""
    if isinstance(error, StoreError):
        for reason in DROP_REASONS:
            if error.reason == reason:
                return reason
        return "store_unavailable"
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return "disk_full"
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return "store_read_only"
    return "write_failed"
