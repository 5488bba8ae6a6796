"""Reading a found line into the caller's memory, several files at once, every byte checked."""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from .blobs import Blobs
from .index.lookup import wanted_block, wanted_checkpoint
from .reader import FileRefused, OpenFile, Wanted, open_file
from .reasons import BadFile, LayoutRefused, MissReason
from .records import Found, Place

_BAD_FILE_ERRNO = (errno.EIO, errno.ELOOP, errno.EISDIR, errno.ENXIO)


@dataclass(frozen=True)
class Failure:
    """A file that could not be used. ``inode`` names a file that is bad for good."""

    wanted: Wanted
    reason: MissReason
    detail: str
    inode: int | None = None


def files_of(found: Found) -> list[Wanted]:
    """The checkpoint, which is the largest, then the blocks in order."""
    files = [wanted_block(found.chain, index) for index in range(found.blocks)]
    if found.checkpoint is not None:
        files.insert(0, wanted_checkpoint(found.chain, found.position))
    return files


def read_files(
    blobs: Blobs, files: Sequence[Wanted], place: Place, readers: int, done: set[bytes]
) -> tuple[int, Failure | None]:
    """Read ``files`` into the buffers that ``place`` gives; stops at the first failure.

    ``place`` is called on this thread. Keys of files read and checked are added to ``done``.
    Returns the bytes read. When it returns, no buffer is in use any more.
    """
    nbytes = 0
    failure: Failure | None = None
    waiting = deque(files)
    opening: deque[tuple[Wanted, Future[OpenFile]]] = deque()
    reading: deque[tuple[Wanted, OpenFile, Future[None]]] = deque()
    with ThreadPoolExecutor(readers, "mtplx-read") as pool:
        try:
            while opening or reading or waiting:
                while waiting and len(opening) < readers:
                    wanted = waiting.popleft()
                    opening.append((wanted, _begin(pool, open_file, blobs, wanted)))
                if opening and len(reading) < 2 * readers:
                    wanted, opened = opening[0]
                    file = opened.result()
                    opening.popleft()
                    buffers = _buffers(file, place, wanted)
                    reading.append((wanted, file, _begin(pool, file.read_into, buffers)))
                else:
                    wanted, file, read = reading[0]
                    read.result()
                    nbytes += _finish(reading.popleft(), done)
        except (BadFile, FileRefused, OSError, _Refused) as error:
            inode = next((file.inode for other, file, _ in reading if other is wanted), None)
            failure = _failure(wanted, error, inode)
        finally:
            for _, opened in opening:
                if not opened.cancel() and opened.exception() is None:
                    opened.result().close()
            # What is under way is finished: if it is good it need not be read again.
            nbytes += sum(_finish(each, done) for each in reading)
    return nbytes, failure


P = ParamSpec("P")
R = TypeVar("R")


def _begin(
    pool: ThreadPoolExecutor, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> Future[R]:
    """Call on a thread of the pool; on this one where the interpreter is ending. Then it starts no
    threads and pools take no work, but a thread of the user's may still wait for an answer."""
    try:
        return pool.submit(function, *args, **kwargs)
    except RuntimeError:
        future: Future[R] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _finish(each: tuple[Wanted, OpenFile, Future[None]], done: set[bytes]) -> int:
    """Close a file that has been read, and note it if it was good; the bytes filled."""
    wanted, file, read = each
    error = read.exception()
    file.close()
    if error is not None:
        return 0
    done.add(wanted.key)
    return file.header.body_bytes


class _Refused(Exception):
    """The caller has no place for a file. ``inode`` names one that is bad for good."""

    def __init__(self, wanted: Wanted, inode: int | None) -> None:
        super().__init__(f"the sections of the {wanted.kind} are not this model's")
        self.inode = inode


def _buffers(file: OpenFile, place: Place, wanted: Wanted) -> Sequence[memoryview]:
    try:
        buffers = place(file.header)
        if buffers is None:
            raise _Refused(wanted, None)
        return [memoryview(buffer) for buffer in buffers]
    except LayoutRefused:
        file.close()
        raise _Refused(wanted, file.inode) from None
    except BaseException:
        file.close()
        raise


def _failure(wanted: Wanted, error: Exception, inode: int | None) -> Failure:
    corrupt: MissReason = "corrupt_block" if wanted.kind == "block" else "corrupt_checkpoint"
    if isinstance(error, _Refused):
        return Failure(wanted, "layout_refused", str(error), error.inode)
    if isinstance(error, FileRefused):
        return Failure(wanted, corrupt, str(error), error.inode)
    if isinstance(error, BadFile):
        return Failure(wanted, corrupt, str(error), inode)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Failure(wanted, "file_gone", str(error))
    if isinstance(error, OSError) and error.errno in _BAD_FILE_ERRNO:
        return Failure(wanted, corrupt, str(error), inode)
    return Failure(wanted, "store_unavailable", str(error))
