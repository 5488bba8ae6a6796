"""What fits into a machine's memory: arithmetic on bytes and nothing else.

A model may use a share of the memory, its *envelope*. The weights and what a forward needs for a
moment come off first; conversations kept in RAM and the context window share the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

GIB = 2**30
MIB = 2**20

TRANSIENTS = 3 * GIB  # what one forward needs for a moment
BANK_FLOOR = 1 * GIB
BANK_CAP = 48 * GIB
SMALL_MEMORY = 16 * GIB  # up to here every quarter GiB counts
SMALL_MARGIN = 256 * MIB
STEP = 4096  # context windows are multiples of it, and at least it
DISK_HEADROOM = 5 * GIB
# Recurrent states of one long conversation: the live one, those a turn leaves at the end of the
# system prompt, at four rungs, at the answer header and at its end, and of rounds that a stop
# string may still take back.
STATES = 11


class Verdict(StrEnum):
    RECOMMENDED = "recommended"
    TIGHT = "tight"
    TOO_LARGE = "does not fit"


@dataclass(frozen=True)
class Needs:
    """A model's bytes. ``peak`` is the measured use with a short context, where it is known."""

    weights: int
    kv_per_token: int  # attention rows of trunk and head
    state: int = 0  # one recurrent state, whatever the context; a conversation has STATES
    max_context: int = 262_144
    peak: int | None = None


@dataclass(frozen=True)
class Plan:
    envelope: int  # all of the model's memory
    fits: bool
    window: int  # tokens of context; the least one where the model does not fit
    conversations: int  # rows and states of those in progress
    bank: int  # conversations in RAM while the window is not used
    per_session: int
    sessions: int


def share(memory: int) -> int:
    return min(memory, max(8 * GIB, memory * 3 // 4), 192 * GIB)


def usable(memory: int) -> int:
    """The share, less what the desktop of a large machine is used to have."""
    if memory < 128 * GIB:
        return share(memory)
    return min(share(memory), memory - 38 * GIB)


def reserve(memory: int) -> int:
    """What the system itself keeps."""
    return min(16 * GIB, max(8 * GIB, memory // 8))


def envelope(memory: int, floor: int) -> int:
    """What a model that needs at least ``floor`` may use."""
    for room in (usable(memory), share(memory)):
        if floor <= room:
            return room
    return min(memory, max(floor, memory - reserve(memory)))


def peak(needs: Needs) -> int:
    """The measured peak, else a quarter more than the weights."""
    return needs.weights * 5 // 4 if needs.peak is None else needs.peak


def plan(memory: int, needs: Needs) -> Plan:
    small = memory <= SMALL_MEMORY
    room = envelope(memory, peak(needs))
    free = room - needs.weights - TRANSIENTS
    bank_floor = 0 if small else BANK_FLOOR
    margin = SMALL_MARGIN if small else BANK_FLOOR
    rows = free - margin - STATES * needs.state
    tokens = max(rows, 0) // max(needs.kv_per_token, 1)
    fits = tokens >= STEP
    window = min(max(tokens // STEP, 1) * STEP, needs.max_context)
    idle = free - margin if small else free
    bank = _clamp(idle, bank_floor)
    return Plan(
        envelope=room,
        fits=fits,
        window=window,
        conversations=max(free - margin, window * needs.kv_per_token + STATES * needs.state),
        bank=bank,
        per_session=min(bank, max(min(bank * 2 // 3, idle // 2), needs.state, bank_floor // 2)),
        sessions=48 if memory >= 96 * GIB else 24,
    )


def fit_together(memory: int, models: Iterable[Needs]) -> bool:
    """Whether models can be loaded at once, each with the least context window."""
    return sum(map(_least, models)) + TRANSIENTS <= usable(memory)


def fit_beside(memory: int, needs: Needs, tokens: Sequence[int]) -> bool:
    """Whether conversations of so many ``tokens`` each may be in progress at once."""
    rows = sum(tokens) * needs.kv_per_token
    return rows + len(tokens) * STATES * needs.state <= plan(memory, needs).conversations


def copies(memory: int, needs: Needs) -> int:
    """How many processes can hold a model at once, each with the least context window."""
    return usable(memory) // (_least(needs) + TRANSIENTS)


def verdict(memory: int, peak: int) -> Verdict:
    if memory < peak:
        return Verdict.TOO_LARGE
    return Verdict.TIGHT if memory * 2 < peak * 3 else Verdict.RECOMMENDED


def disk_needed(to_fetch: int) -> int:
    """Bytes that must be free: a full disk hurts more than this model."""
    return to_fetch + min(DISK_HEADROOM, to_fetch)


def _least(needs: Needs) -> int:
    return needs.weights + STEP * needs.kv_per_token + STATES * needs.state


def _clamp(size: int, floor: int) -> int:
    return min(max(size, floor), BANK_CAP)
