"""How much RAM sessions may take."""

import os

from ..sessions.bank import BankLimits

GIB = 2**30


def bank_limits() -> BankLimits:
    """By the machine's memory. Weights are not known to this rule: it leaves them half."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    total = min(max(memory // 4, GIB), 48 * GIB)
    return BankLimits(
        total_bytes=total,
        per_session_bytes=total * 2 // 3,
        entries=48 if memory >= 96 * GIB else 24,
        idle_s=3600,
    )
