"""Reading one file: its header first, then its body straight into the caller's memory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash

from . import codec
from .blobs import IOV_MAX, Blobs
from .format import Buffer, Head, Header, decode_head, flat, head_bytes
from .keys import FileKind, pack_ids
from .reasons import BadFile

FIRST_READ = 16 << 10  # holds the header of a block of every model in sight
SLICE = 1 << 20  # read and checked at a time, while it is still in the processor's cache


@dataclass(frozen=True)
class Wanted:
    """What a file must hold: rows ``start`` to ``end`` of a line, or the state at ``end``."""

    kind: FileKind
    key: bytes
    parent: bytes
    start: int
    end: int
    ids: bytes  # packed


class OpenFile:
    """A file whose header has been checked. Belongs to one thread at a time; closed by `close`."""

    def __init__(self, handle: int, head: Head, inode: int) -> None:
        self._handle = handle
        self._head = head
        self.inode = inode

    @property
    def header(self) -> Header:
        return self._head.header

    def read_into(self, buffers: Sequence[Buffer]) -> None:
        """Fill ``buffers`` with the body and check every byte.

        Raises BadFile or OSError, and ValueError unless the buffers are as long as the body;
        after any of them the buffers hold anything.
        """
        views = flat(buffers)
        if sum(view.nbytes for view in views) != self.header.body_bytes:
            raise ValueError(f"the buffers do not hold {self.header.body_bytes:,} bytes")
        digest = self._head.digest()
        if self.header.codec == "raw":
            self._read_raw(views, self._head.body_at, digest)
        else:
            self._read_packed(views, digest)
        self._head.check(digest)

    def _read_raw(self, views: Sequence[memoryview], at: int, digest: xxhash.xxh3_128) -> None:
        for group in _groups(views):
            _read_exactly(self._handle, group, at)
            for view in group:
                digest.update(view)
                at += view.nbytes

    def _read_packed(self, views: Sequence[memoryview], digest: xxhash.xxh3_128) -> None:
        sections, at = self.header.sections, self._head.body_at
        runs = codec.cut(views, [section.nbytes for section in sections])
        for section, run in zip(sections, runs, strict=True):
            if section.packed is None:
                self._read_raw(run, at, digest)
            else:
                stored = memoryview(bytearray(section.stored_bytes))
                self._read_raw([stored], at, digest)
                codec.unpack(section, stored, run)
            at += section.stored_bytes

    def verify(self) -> None:
        """Check every byte of the body without keeping it. Raises BadFile or OSError."""
        digest = self._head.digest()
        scratch = memoryview(bytearray(min(SLICE, self.header.stored_bytes)))
        at, end = self._head.body_at, self._head.file_bytes
        while at < end:
            view = scratch[: end - at]
            _read_exactly(self._handle, [view], at)
            digest.update(view)
            at += view.nbytes
        self._head.check(digest)

    def close(self) -> None:
        os.close(self._handle)


class FileRefused(Exception):
    """A file that opened and is not what was wanted."""

    def __init__(self, error: BadFile, inode: int) -> None:
        super().__init__(str(error))
        self.inode = inode


def open_file(blobs: Blobs, wanted: Wanted) -> OpenFile:
    """Open a file and check its header against what is wanted. Raises OSError, FileRefused."""
    handle = blobs.open(wanted.kind, wanted.key)
    try:
        head, inode = read_head(handle), os.fstat(handle).st_ino
        check_wanted(head.header, wanted)
        _read_ahead(handle)
        return OpenFile(handle, head, inode)
    except BadFile as error:
        inode = os.fstat(handle).st_ino
        os.close(handle)
        raise FileRefused(error, inode) from None
    except BaseException:
        os.close(handle)
        raise


def _read_ahead(handle: int) -> None:
    """Have the system begin to read while there is no place for the bytes yet."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)


def read_head(handle: int) -> Head:
    """The checked header of an open file, whatever it holds. Raises BadFile or OSError."""
    size = os.fstat(handle).st_size
    data = os.pread(handle, FIRST_READ, 0)
    need = head_bytes(data)
    if need > len(data):
        data += os.pread(handle, need - len(data), len(data))
    return decode_head(data, size)


def check_wanted(header: Header, wanted: Wanted) -> None:
    """Raise BadFile unless the header says exactly what was asked for, ids included."""
    said = (header.kind, header.key, header.parent, header.start, header.end)
    asked = (wanted.kind, wanted.key.hex(), wanted.parent.hex(), wanted.start, wanted.end)
    if said != asked:
        raise BadFile("its name does not match its content")
    if pack_ids(header.ids) != wanted.ids:
        raise BadFile("its token ids differ")


def file_verifies(handle: int, wanted: Wanted) -> bool:
    """Whether an open file is whole and holds what is wanted."""
    try:
        head = read_head(handle)
        check_wanted(head.header, wanted)
        OpenFile(handle, head, 0).verify()
    except (BadFile, OSError):
        return False
    return True


def _groups(views: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """The views in order, cut and gathered into groups of about SLICE bytes."""
    group: list[memoryview] = []
    room = SLICE
    for view in views:
        for start in range(0, view.nbytes, SLICE):
            piece = view[start : start + SLICE]
            if group and (piece.nbytes > room or len(group) == IOV_MAX):
                yield group
                group, room = [], SLICE
            group.append(piece)
            room -= piece.nbytes
    if group:
        yield group


def _read_exactly(handle: int, views: Sequence[memoryview], at: int) -> None:
    left = list(views)
    while left:
        got = os.preadv(handle, left, at)
        if got == 0:
            raise BadFile("it is truncated")
        at += got
        while left and got >= left[0].nbytes:
            got -= left.pop(0).nbytes
        if got:
            left[0] = left[0][got:]
