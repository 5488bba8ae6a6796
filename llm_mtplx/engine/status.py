"""What a running engine says of itself, at once: nothing here waits for its thread."""

import time
from typing import Any

from ..sessions.groups import saves, session_bank
from .budgets import bank_limits
from .engine import Engine


def engine_status(engine: Engine) -> dict[str, Any]:
    """Groups ``engine``, ``session_bank`` and ``saves``."""
    observer = engine.observer
    running = observer.running
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
            "running": None
            if running is None
            else {
                "model": running.model,
                "phase": running.phase,
                "done": running.done,
                "total": running.total,
                "for_s": round(time.monotonic() - running.since, 3),
            },
            **memory.get("machine", {}),
            "models": memory.get("models", []),
            "memory": memory.get("memory", {}),
        },
        "session_bank": bank,
        "saves": None if counters is None else saves(counters),
    }
