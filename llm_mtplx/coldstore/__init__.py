"""The SSD store of sessions: knows keys, bytes and memoryviews. Imports no MLX and no llm."""

from .entries import CheckpointRole, Entry
from .format import Header, SectionInfo
from .keys import BLOCK, pointer
from .reasons import DROP_REASONS, MISS_REASONS, DropReason, MissReason
from .records import (
    BlockRows,
    CheckpointState,
    Conversation,
    Forgotten,
    Found,
    Miss,
    Place,
    Report,
    Restored,
    Save,
    Section,
    StoreLimits,
)
from .store import ColdStore

__all__ = [
    "BLOCK",
    "DROP_REASONS",
    "MISS_REASONS",
    "BlockRows",
    "CheckpointRole",
    "CheckpointState",
    "ColdStore",
    "Conversation",
    "DropReason",
    "Entry",
    "Forgotten",
    "Found",
    "Header",
    "Miss",
    "MissReason",
    "Place",
    "Report",
    "Restored",
    "Save",
    "Section",
    "SectionInfo",
    "StoreLimits",
    "pointer",
]
