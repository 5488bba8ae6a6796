"""Why a turn could not start from more of what was read before. A closed list."""

from enum import StrEnum


class Reason(StrEnum):
    """Each value's ``meaning`` is the sentence a user gets."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Reason":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    NOTHING_STORED = "nothing_stored", "nothing that begins like this prompt has been kept"
    TEMPLATE_REWRITES = (
        "template_rewrites",
        "the model's chat template writes the last answer otherwise than it was generated",
    )
    HISTORY_EDITED = "history_edited", "an earlier message or the system prompt was changed"
    BETWEEN_CHECKPOINTS = (
        "between_checkpoints",
        "the prompts part between two positions at which the whole state is kept",
    )
