"""The file format of blocks and checkpoints: one header that says everything, then raw bytes.

    preamble   magic, format, header bytes, body bytes, xxh3_64 of the header,
               xxh3_128 of all of the preamble before it, the header and the body
    header     JSON, padded with spaces so that the body starts at a multiple of 64
    body       the sections' bytes in the header's order, with no gaps; under the codec "planes"
               some of them packed, see ``codec.py``

The header's key must follow from its parent and ids, so a file proves by itself what it holds.
"""

import struct
from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from . import keys
from .keys import BLOCK
from .reasons import BadFile

FORMAT = 1
MAGIC = b"MTPLXKV\n"
PREAMBLE = struct.Struct("<8sIIQQ16s")
CHECKED = PREAMBLE.size - 16  # bytes of the preamble under the checksum
ALIGN = 64
MAX_HEADER_BYTES = 4 << 20
MAX_TOKENS = 1 << 31  # of a line
DTYPE_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
}
PACKED_DTYPES = ("bfloat16", "float16")

Buffer = bytes | bytearray | memoryview
HexKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=1 << 44)]
Position = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


def flat(buffers: Sequence[Buffer]) -> list[memoryview]:
    """The buffers as bytes, empty ones left out."""
    views = [memoryview(buffer) for buffer in buffers]
    return [view.cast("B") for view in views if view.nbytes]


class SectionInfo(BaseModel):
    """One named array: C order, no padding."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: str
    dtype: str
    shape: list[Size]
    packed: Size | None = None  # bytes of its packed high bytes; None where it lies raw

    @property
    def nbytes(self) -> int:
        """In memory."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def stored_bytes(self) -> int:
        return self.nbytes if self.packed is None else self.nbytes // 2 + self.packed


class Header(BaseModel):
    """What a file holds: the rows of positions ``start`` to ``end``, or the state at ``end``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    kind: Literal["block", "checkpoint"]
    key: HexKey
    parent: HexKey
    start: Position
    end: Position
    ids: list[Size]  # of positions start .. end-1
    codec: Literal["raw", "planes"] = "raw"
    sections: list[SectionInfo]

    @property
    def body_bytes(self) -> int:
        """In memory."""
        return sum(section.nbytes for section in self.sections)

    @property
    def stored_bytes(self) -> int:
        """On disk."""
        return sum(section.stored_bytes for section in self.sections)


class Head:
    """A header read and checked, and what is needed to check the body after it."""

    def __init__(self, header: Header, checked: bytes, body_at: int, checksum: bytes) -> None:
        self.header = header
        self.body_at = body_at
        self._checked = checked
        self._checksum = checksum

    @property
    def file_bytes(self) -> int:
        return self.body_at + self.header.stored_bytes

    def digest(self) -> xxhash.xxh3_128:
        """A checksum that has seen all there is before the body."""
        return xxhash.xxh3_128(self._checked)

    def check(self, digest: xxhash.xxh3_128) -> None:
        """Raise BadFile unless ``digest``, having seen the body too, is the file's own."""
        if digest.digest() != self._checksum:
            raise BadFile("its checksum does not match its bytes")


def encode_head(header: Header, body: Sequence[Buffer]) -> bytes:
    """Preamble and header of a file with this body, as it lies on disk."""
    text = header.model_dump_json(exclude_none=True).encode()
    text += b" " * (-(PREAMBLE.size + len(text)) % ALIGN)
    front = PREAMBLE.pack(
        MAGIC, FORMAT, len(text), header.stored_bytes, xxhash.xxh3_64_intdigest(text), b""
    )[:CHECKED]
    digest = xxhash.xxh3_128(front + text)
    for view in flat(body):
        digest.update(view)
    return front + digest.digest() + text


def head_bytes(preamble: bytes) -> int:
    """Length of preamble and header, told from the file's first bytes. Raises BadFile."""
    if len(preamble) < PREAMBLE.size:
        raise BadFile("it is shorter than a preamble")
    magic, version, length, _, _, _ = PREAMBLE.unpack_from(preamble)
    if magic != MAGIC:
        raise BadFile("it does not start with the magic bytes of a store file")
    if version != FORMAT:
        raise BadFile(f"its format is {version}, not {FORMAT}")
    if length > MAX_HEADER_BYTES:
        raise BadFile(f"its header claims {length:,} bytes")
    return PREAMBLE.size + int(length)


def decode_head(data: bytes, file_bytes: int) -> Head:
    """The checked header in ``data``, the first bytes of a file of ``file_bytes``.

    Raises BadFile where a byte of it is wrong, or it contradicts itself or the file's size.
    """
    end = head_bytes(data)
    _, _, _, body, header_sum, checksum = PREAMBLE.unpack_from(data)
    text = data[PREAMBLE.size : end]
    if len(data) < end or xxhash.xxh3_64_intdigest(text) != header_sum:
        raise BadFile("its header's checksum does not match")
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(f"its header is invalid: {error.error_count()} errors") from None
    _check_header(header)
    if not body == header.stored_bytes == file_bytes - end:
        raise BadFile(f"it has {file_bytes:,} bytes but its header says {end + body:,}")
    return Head(header, data[:CHECKED] + text, end, checksum)


def _check_header(header: Header) -> None:
    if any(section.dtype not in DTYPE_BYTES for section in header.sections):
        raise BadFile("a section has an unknown dtype")
    packed = [section for section in header.sections if section.packed is not None]
    if (packed and header.codec == "raw") or any(s.dtype not in PACKED_DTYPES for s in packed):
        raise BadFile("a section is packed but must not be")
    length = header.end - header.start
    whole = length == BLOCK if header.kind == "block" else 0 <= length < BLOCK
    if header.start % BLOCK or not whole or len(header.ids) != length:
        raise BadFile(f"a {header.kind} cannot span {header.start} to {header.end}")
    try:
        ids = keys.pack_ids(header.ids)
    except OverflowError:
        raise BadFile("a token id is out of range") from None
    make = keys.block_key if header.kind == "block" else keys.checkpoint_key
    if make(bytes.fromhex(header.parent), ids).hex() != header.key:
        raise BadFile("its key does not follow from its parent and ids")
