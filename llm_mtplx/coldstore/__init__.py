"""The SSD store of sessions: knows keys, bytes and memoryviews. Imports no MLX and no llm."""

from .compact import Compacted
from .entries import CheckpointRole, Entry
from .format import Header, SectionInfo
from .gc import Collector, GcPlan
from .keys import BLOCK, pointer
from .reasons import DROP_REASONS, MISS_REASONS, DropReason, LayoutRefused, MissReason
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
from .removal import Removed
from .root import store_root
from .store import ColdStore

__all__ = [
    "BLOCK",
    "DROP_REASONS",
    "MISS_REASONS",
    "BlockRows",
    "CheckpointRole",
    "CheckpointState",
    "ColdStore",
    "Collector",
    "Compacted",
    "Conversation",
    "DropReason",
    "Entry",
    "Forgotten",
    "Found",
    "GcPlan",
    "Header",
    "LayoutRefused",
    "Miss",
    "MissReason",
    "Place",
    "Removed",
    "Report",
    "Restored",
    "Save",
    "Section",
    "SectionInfo",
    "StoreLimits",
    "pointer",
    "store_root",
]
