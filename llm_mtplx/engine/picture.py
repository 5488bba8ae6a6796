"""What the engine holds in memory, as plain values. Runs on the engine's thread."""

from typing import Any

import mlx.core as mx

from ..catalog import fit, machine
from ..sessions.groups import session_bank
from .loaded_models import Residents


def picture(residents: Residents) -> dict[str, Any]:
    bank = residents.bank
    sessions = bank.sessions
    return {
        "machine": residents.computed_with,
        "models": [
            {
                "id": each.model_id,
                "path": str(each.model.folder.path),
                "bytes": each.needs.weights,
                "head": each.model.head is not None,
                "depth": each.model.deepest,
                "context_window": each.model.context_window,
            }
            for each in residents.all
        ],
        "memory": {
            "active_bytes": mx.get_active_memory(),
            "cache_bytes": mx.get_cache_memory(),
            "usable_bytes": fit.usable(machine.memory_bytes()),
        },
        "session_bank": {
            **session_bank(bank.limits),
            "entries": len(sessions),
            "total_nbytes": bank.nbytes,
            "lease_entries": len(bank.leases),
            "lease_nbytes": sum(session.nbytes for session in bank.leases),
            "active_sessions": len({s.conversation for s in sessions if s.conversation}),
        },
    }
