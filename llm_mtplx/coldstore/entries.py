"""Entries: small files that say which conversation has which tip.

The manifest says the same; the files are there so that a lost manifest can be rebuilt.
"""

import os
from typing import Literal

import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from . import keys
from .codec import decompressed
from .format import MAX_TOKENS, HexKey
from .reasons import BadFile

MAX_ENTRY_BYTES = 1 << 20
MAX_TIME = 1 << 40  # seconds since the epoch

CheckpointRole = Literal["tip", "prefix", "ladder"]


class Entry(BaseModel):
    """One checkpoint a conversation can be restored at."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    format: Literal[1] = 1
    conversation: str = Field(max_length=4096)
    fingerprint: str = Field(max_length=4096)
    checkpoint: HexKey
    position: int = Field(ge=1, le=MAX_TOKENS)
    role: CheckpointRole
    created: int = Field(ge=0, le=MAX_TIME)  # seconds since the epoch

    @property
    def key(self) -> bytes:
        return keys.entry_key(self.conversation, bytes.fromhex(self.checkpoint))


def encode_entry(entry: Entry) -> bytes:
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    return compressor.compress(entry.model_dump_json().encode())


def read_entry(handle: int, key: bytes) -> Entry:
    """The entry in an open file; refuses one that belongs under another name (BadFile)."""
    data = os.read(handle, MAX_ENTRY_BYTES)
    try:
        entry = Entry.model_validate_json(decompressed(data, MAX_ENTRY_BYTES))
    except ValidationError:
        raise BadFile("it is not an entry") from None
    if entry.key != key:
        raise BadFile("its name does not match its content")
    return entry


def entry_verifies(handle: int, key: bytes) -> bool:
    try:
        read_entry(handle, key)
    except (OSError, BadFile):
        return False
    return True
