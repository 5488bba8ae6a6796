"""What a running engine says of itself, at once: nothing here waits for its thread."""

import time
from typing import Any

from ..sessions.groups import saves, session_bank
from .budgets import bank_limits
from .engine import Engine


def engine_status(engine: Engine) -> dict[str, Any]:
    """Groups ``engine``, ``session_bank`` and ``saves``."""
    observer = engine.observer
    running = [
        {
            "model": turn.model,
            "phase": turn.phase,
            "done": turn.done,
            "total": turn.total,
            "for_s": round(time.monotonic() - turn.since, 3),
        }
        for turn in observer.running
    ]
    memory = observer.memory
    recent = observer.recent
    bank = dict(memory.get("session_bank") or session_bank(bank_limits()))
    if recent:
        bank["last_miss_reason"] = recent[0]["miss_reason"]
        bank["last_restore_source"] = recent[0]["cached_from"]
    counters = engine.saves
    return {
        "engine": {
            "uptime_s": round(time.time() - observer.began, 1),
            "idle_s": round(engine.idle_s, 1),
            "waiting": engine.waiting,
            "turns": dict(observer.totals.turns),  # by how they ended
            "turns_not_kept": observer.totals.not_kept,
            "last_error": observer.last_error or None,
            "running": running[0] if running else None,  # the one that began first
            "in_progress": running,
            "parallel": engine.parallel,
            **memory.get("machine", {}),
            "models": memory.get("models", []),
            "memory": memory.get("memory", {}),
        },
        "session_bank": bank,
        "saves": None if counters is None else saves(counters),
    }
