"""What the sessions in RAM may use. Imports no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BankLimits:
    total_bytes: int
    per_session_bytes: int
    entries: int
    idle_s: float  # 0 keeps sessions until size forces them out
    pin_s: float = 600.0  # a session over its budget stays so long after its last turn
