"""Where a resident engine listens, and who is on the other end.

Not below TMPDIR or XDG_RUNTIME_DIR: a shell and a service must find the same place.
"""

import hashlib
import os
import socket
import stat
import struct
import sys
from pathlib import Path

import llm

from ..errors import EngineError
from ..settings import NoCacheDir, cache_dir

# <sys/un.h> of macOS; Python has no name for the second.
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
_XUCRED = struct.Struct("=IIh")  # version, uid, number of groups


def directory() -> Path:
    return Path(f"/tmp/llm-mtplx-{os.getuid()}")


def socket_path() -> Path:
    """One for each llm user directory and cache directory; short, as macOS wants it."""
    try:
        cache = str(cache_dir().absolute())
    except NoCacheDir:
        cache = ""  # its engine keeps nothing on disk
    told = "\0".join([str(llm.user_dir()), cache])
    return directory() / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.sock"


def is_ours(path: Path) -> bool:
    """Whether ``path`` is a real directory of this user's that nobody else can enter."""
    try:
        told = path.lstat()
    except OSError:
        return False
    mode = stat.S_IMODE(told.st_mode)
    return stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid() and mode == 0o700


def make_directory() -> None:
    """Make the directory if need be. Raises EngineError where it cannot be trusted."""
    path = directory()
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # whatever the umask
    except FileExistsError:
        pass
    except OSError as error:
        raise EngineError(f"{path} cannot be created: {error}.") from None
    if not is_ours(path):
        raise EngineError(
            f"{path} is not a directory that only you can access (mode 0700). Remove it: "
            "the background engine is reached through it."
        )


def peer_uid(connection: socket.socket) -> int:
    """The user id of the process on the other end."""
    if sys.platform == "darwin":
        raw = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
        return int(_XUCRED.unpack_from(raw)[1])
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", raw)[1])
