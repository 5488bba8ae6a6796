"""How much RAM sessions may hold. Plain arithmetic; imports no MLX."""

import os
from dataclasses import dataclass

from ..limits import limits

GIB = 2**30


@dataclass(frozen=True)
class BankLimits:
    total_bytes: int
    per_session_bytes: int
    entries: int
    idle_s: float  # 0 keeps sessions until size forces them out
    pin_s: float = 600.0  # a session over its budget stays so long after its last turn


def bank_limits() -> BankLimits:
    """The user's, else by the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told = limits()
    total = told.ram_max_bytes or min(max(memory // 4, GIB), 48 * GIB)
    return BankLimits(
        total_bytes=total,
        per_session_bytes=told.ram_per_session_bytes or total * 2 // 3,
        entries=told.ram_max_entries or (48 if memory >= 96 * GIB else 24),
        idle_s=told.idle_ttl_s,
        pin_s=told.active_pin_ttl_s,
    )
