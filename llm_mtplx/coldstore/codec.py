"""The codec of blocks at rest: two-byte floats in two planes, the high one packed.

A packed section is its low bytes, then one zstd frame of its high bytes. Of a two-byte float only
the sign and the exponent repeat themselves, and they lie in the high byte; the low one is noise
that would cost time and save nothing. Level 1, because higher ones gain nothing here.
"""

from collections.abc import Iterator, Sequence

import zstandard

from .format import PACKED_DTYPES, Buffer, Header, SectionInfo
from .reasons import BadFile

LEVEL = 1
WORTH = 0.9  # of the bytes before; packing that leaves more is not worth a slower read


def pack(header: Header, body: memoryview) -> tuple[Header, list[Buffer]] | None:
    """A raw file's header and body, packed; None where that does not pay."""
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    sections: list[SectionInfo] = []
    parts: list[Buffer] = []
    at = 0
    for section in header.sections:
        raw = body[at : at + section.nbytes]
        at += section.nbytes
        frame = None
        if section.dtype in PACKED_DTYPES and section.nbytes:
            low, high = _planes(raw)
            frame = compressor.compress(high)
        if frame is not None and len(low) + len(frame) < WORTH * section.nbytes:
            sections.append(section.model_copy(update={"packed": len(frame)}))
            parts += [low, frame]
        else:
            sections.append(section)
            parts.append(raw)
    packed = header.model_copy(update={"codec": "planes", "sections": sections})
    return (packed, parts) if packed.stored_bytes < WORTH * header.body_bytes else None


def unpack(section: SectionInfo, stored: memoryview, views: Sequence[memoryview]) -> None:
    """Fill ``views``, a packed section's memory in order, from its stored bytes.

    Raises BadFile where these are not a packed section.
    """
    import numpy as np

    half = section.nbytes // 2
    high = decompressed(stored[half:], half)
    if len(high) != half:
        raise BadFile("the length of a packed section does not match its shape")
    planes = np.frombuffer(stored[:half], np.uint8), np.frombuffer(high, np.uint8)
    start = 0
    for view in views:  # of any length, odd ones included
        target, end = np.frombuffer(view, np.uint8), start + view.nbytes
        target[start % 2 :: 2] = planes[0][(start + 1) // 2 : (end + 1) // 2]
        target[1 - start % 2 :: 2] = planes[1][start // 2 : end // 2]
        start = end


def decompressed(frame: Buffer, most: int) -> bytes:
    """What a zstd frame holds, at most ``most`` bytes. Raises BadFile."""
    try:
        # As many bytes as a frame says are made room for: a damaged one may say any number.
        if not 0 <= zstandard.frame_content_size(frame) <= most:
            raise BadFile("a frame claims an impossible size")
        return bytes(zstandard.ZstdDecompressor().decompress(frame, max_output_size=most))
    except zstandard.ZstdError as error:
        raise BadFile(f"a frame cannot be unpacked: {error}") from None


def cut(views: Sequence[memoryview], sizes: Sequence[int]) -> Iterator[list[memoryview]]:
    """The views in order, cut into runs of ``sizes`` bytes."""
    left = list(reversed(views))
    for size in sizes:
        run = []
        while size:
            view = left.pop()
            if view.nbytes > size:
                left.append(view[size:])
                view = view[:size]
            run.append(view)
            size -= view.nbytes
        yield run


def _planes(raw: memoryview) -> tuple[bytes, bytes]:
    """Low and high bytes of little-endian two-byte values."""
    import numpy as np  # not needed to read and write raw files

    values = np.frombuffer(raw, np.uint8)
    return values[0::2].tobytes(), values[1::2].tobytes()
