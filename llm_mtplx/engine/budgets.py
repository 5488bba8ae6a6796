"""How much RAM sessions may hold beside the loaded models. Plain arithmetic; imports no MLX."""

from collections.abc import Iterable

from ..catalog import fit, machine
from ..limits import limits
from ..sessions.budgets import BankLimits


def bank_limits(models: Iterable[fit.Needs] = ()) -> BankLimits:
    """The user's, else what the memory plan leaves beside the weights of ``models``."""
    needs = tuple(models)
    together = fit.Needs(
        weights=sum(each.weights for each in needs),
        kv_per_token=max((each.kv_per_token for each in needs), default=0),
        state=max((each.state for each in needs), default=0),
    )
    plan = fit.plan(machine.memory_bytes(), together)
    told = limits()
    total = told.ram_max_bytes or plan.bank
    return BankLimits(
        total_bytes=total,
        per_session_bytes=told.ram_per_session_bytes or min(plan.per_session, total),
        entries=told.ram_max_entries or plan.sessions,
        idle_s=told.idle_ttl_s,
        pin_s=told.active_pin_ttl_s,
    )
