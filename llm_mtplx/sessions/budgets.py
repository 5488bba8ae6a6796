"""What the sessions may use, in RAM and on SSD. Imports no MLX."""

from dataclasses import dataclass

from ..coldstore import StoreLimits
from ..limits import limits


@dataclass(frozen=True)
class BankLimits:
    total_bytes: int
    per_session_bytes: int
    entries: int
    idle_s: float  # 0 keeps sessions until size forces them out
    pin_s: float = 600.0  # a session over its budget stays so long after its last turn


def store_limits() -> StoreLimits:
    """What the store on SSD may use, by the settings in force."""
    told = limits()
    return StoreLimits(
        max_bytes=told.cache_max_size,
        write_budget_bytes=told.write_budget_per_hour,
        backlog_bytes=told.backlog_bytes,
    )
