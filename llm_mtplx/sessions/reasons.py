"""Why a turn could not start from more of what was read before. A closed list."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an attached call words its reasons without loading the store
    from ..coldstore import MissReason


class Reason(StrEnum):
    """Each value's ``meaning`` is the sentence a user gets."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Reason":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    NOTHING_STORED = "nothing_stored", "no saved state matches the beginning of this prompt"
    TOO_SHORT = (
        "too_short",
        "the conversation was too short to save: processing it again is as fast",
    )
    WEIGHTS_CHANGED = (
        "weights_changed",
        "the state was saved by another model, other weights or other versions",
    )
    CACHE_OFF = "cache_off", "`-o cache` does not allow saved state to be used"
    TEMPLATE_REWRITES = (
        "template_rewrites",
        "the chat template renders the last answer differently from how it was generated",
    )
    HISTORY_EDITED = "history_edited", "an earlier message or the system prompt was changed"
    BETWEEN_CHECKPOINTS = (
        "between_checkpoints",
        "the prompts diverge between two saved checkpoints",
    )
    EVICTED = (
        "evicted",
        "the conversation was evicted from RAM and is not on disk",
    )
    IDLE = "idle", "the conversation was dropped from RAM after a long pause and is not on disk"
    OVERSIZED = (
        "oversized",
        "the conversation is too large for the RAM budget and is not on disk",
    )
    FINGERPRINT_PENDING = (
        "fingerprint_pending",
        (
            "the model's weights are still being identified; until then, nothing is saved "
            "to or restored from disk"
        ),
    )
    FINGERPRINT_FAILED = (
        "fingerprint_failed",
        "the model's weights could not be identified; nothing is saved to or restored from disk",
    )
    CORRUPT_BLOCK = "corrupt_block", "a block in the store failed verification and was dropped"
    CORRUPT_CHECKPOINT = (
        "corrupt_checkpoint",
        "a checkpoint in the store failed verification and was dropped",
    )
    CORRUPT_INDEX = "corrupt_index", "a row of the store's index was damaged and was dropped"
    FILE_GONE = "file_gone", "a file is missing from the store"
    LAYOUT_REFUSED = "layout_refused", "a saved state does not match this model's layout"
    REBUILDING = "rebuilding", "the store's index was lost and is being rebuilt from the files"
    STORE_BUSY = "store_busy", "another process has locked the store's index"
    STORE_UNAVAILABLE = "store_unavailable", "the store cannot be opened or read"
    OTHER_VERSION = "other_version", "the store's format is not supported by this version"
    NOT_A_STORE = "not_a_store", "the cache directory contains something other than a store"


_FROM_STORE: "dict[MissReason, Reason | None]" = {
    "not_found": None,  # what RAM has to say is more precise
    "store_absent": None,
    "too_short": None,
    "no_checkpoint": Reason.BETWEEN_CHECKPOINTS,
    "corrupt_block": Reason.CORRUPT_BLOCK,
    "corrupt_checkpoint": Reason.CORRUPT_CHECKPOINT,
    "corrupt_index": Reason.CORRUPT_INDEX,
    "file_gone": Reason.FILE_GONE,
    "layout_refused": Reason.LAYOUT_REFUSED,
    "rebuilding": Reason.REBUILDING,
    "store_busy": Reason.STORE_BUSY,
    "store_unavailable": Reason.STORE_UNAVAILABLE,
    "other_version": Reason.OTHER_VERSION,
    "not_a_store": Reason.NOT_A_STORE,
}


def meaning(reason: str) -> str:
    return next(each.meaning for each in Reason if each == reason)


def why_not_from_store(reason: "MissReason | None") -> Reason | None:
    return None if reason is None else _FROM_STORE[reason]
