"""Telling backups to leave the store alone: it can be computed again, and it is private."""

import ctypes
import os
import plistlib
import sys

TAG = "CACHEDIR.TAG"
# The first line is what programs look for, byte for byte (https://bford.info/cachedir/).
CONTENT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This directory holds cached states of llm-mtplx, which can be computed again.
"""
_TIME_MACHINE = b"com.apple.metadata:com_apple_backup_excludeItem"


def exclude(directory: int) -> None:
    """Mark an open directory for programs that know cache directories and for Time Machine.

    As well as it can be done: what fails here harms nothing.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(TAG, flags | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError:
        return
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, CONTENT)
        if sys.platform == "darwin":
            _set_time_machine_mark(directory)
    except OSError:
        return
    finally:
        os.close(handle)


def _set_time_machine_mark(directory: int) -> None:
    """What ``tmutil addexclusion`` does; it stays with the directory where that is moved."""
    value = plistlib.dumps("com.apple.backupd", fmt=plistlib.FMT_BINARY)
    fsetxattr = getattr(ctypes.CDLL(None), "fsetxattr")  # noqa: B009 - not on every platform
    fsetxattr(directory, _TIME_MACHINE, value, ctypes.c_size_t(len(value)), 0, 0)
