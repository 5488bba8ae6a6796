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

    NOTHING_STORED = "nothing_stored", "nothing that begins like this prompt has been kept"
    TOO_SHORT = (
        "too_short",
        "the conversation was too short to be kept: reading it again is as fast",
    )
    WEIGHTS_CHANGED = (
        "weights_changed",
        "the conversation was kept by another model, by other weights or other versions",
    )
    CACHE_OFF = "cache_off", "`-o cache` says that nothing kept may be used"
    TEMPLATE_REWRITES = (
        "template_rewrites",
        "the model's chat template writes the last answer otherwise than it was generated",
    )
    HISTORY_EDITED = "history_edited", "an earlier message or the system prompt was changed"
    BETWEEN_CHECKPOINTS = (
        "between_checkpoints",
        "the prompts part between two positions at which the whole state is kept",
    )
    EVICTED = (
        "evicted",
        "the conversation left RAM for others, and is not on the SSD",
    )
    IDLE = "idle", "the conversation was not used for long, and is not on the SSD"
    OVERSIZED = (
        "oversized",
        "the conversation is too large for the RAM given to sessions, and is not on the SSD",
    )
    FINGERPRINT_PENDING = (
        "fingerprint_pending",
        "the model's weights are still being identified; until then nothing goes to or comes "
        "from the SSD",
    )
    FINGERPRINT_FAILED = (
        "fingerprint_failed",
        "the model's weights could not be identified; nothing goes to or comes from the SSD",
    )
    CORRUPT_BLOCK = "corrupt_block", "a file of the store failed its check and was dropped"
    CORRUPT_CHECKPOINT = "corrupt_checkpoint", "a saved state failed its check and was dropped"
    CORRUPT_INDEX = "corrupt_index", "a row of the store's index was damaged and was dropped"
    FILE_GONE = "file_gone", "a file of the store is not there any more"
    LAYOUT_REFUSED = "layout_refused", "a saved state does not have this model's layout"
    REBUILDING = "rebuilding", "the store's index was lost and is being rebuilt from its files"
    STORE_BUSY = "store_busy", "another process holds the store's index"
    STORE_UNAVAILABLE = "store_unavailable", "the store cannot be opened or read"
    OTHER_VERSION = "other_version", "the store has a format this version does not know"
    NOT_A_STORE = "not_a_store", "the cache directory holds something that is not a store"


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
