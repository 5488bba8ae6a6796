"""The store of sessions on disk: keys, files, index and limits. Imports no MLX and no llm."""

from .entries import CheckpointRole, Entry
from .format import Header, SectionInfo
from .keys import BLOCK, Chain
from .reasons import DROP_REASONS, MISS_REASONS, DropReason, LayoutRefused, MissReason, StoreError
from .records import (
    BlockRows,
    CheckpointState,
    Conversation,
    Counters,
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
from .root import store_root
from .store import ColdStore
from .upkeep.gc import Collector, GcPlan
from .upkeep.pack import Compacted
from .upkeep.removal import Removed

__all__ = [
    "BLOCK",
    "DROP_REASONS",
    "MISS_REASONS",
    "BlockRows",
    "Chain",
    "CheckpointRole",
    "CheckpointState",
    "ColdStore",
    "Collector",
    "Compacted",
    "Conversation",
    "Counters",
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
    "StoreError",
    "StoreLimits",
    "store_root",
]
