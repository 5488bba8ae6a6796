"""The groups that status and /health have in common. No MLX."""

from typing import Any

from ..coldstore import Counters, DropReason, Report
from ..limits import limits
from .budgets import BankLimits


def session_bank(told: BankLimits) -> dict[str, Any]:
    """The sessions in RAM, where no process has any."""
    return {
        "max_entries": told.entries,
        "max_bytes": told.total_bytes,
        "per_session_max_bytes": told.per_session_bytes,
        "idle_ttl_s": told.idle_s or None,
        "active_pin_ttl_s": told.pin_s,
        "entries": 0,
        "total_nbytes": 0,
    }


def ssd_session_cache(report: Report) -> dict[str, Any]:
    """What the disk keeps, without its conversations."""
    told = limits()
    return {
        "enabled": told.cache == "on",
        "dir": report.path,
        "restorable": report.reason in (None, "store_absent"),
        "last_miss_reason": report.reason,
        "physical_bytes": report.nbytes,
        "blocks": report.blocks,
        "checkpoints": report.checkpoints,
        "unnamed_states": report.unnamed_states,
        "other_bytes": report.other_bytes,
        "max_bytes": report.max_bytes,
        "effective_max_bytes": report.cap_bytes,
        "largest_session_bytes": report.largest_bytes,
        "disk_state": report.disk_state,
        "disk_free_bytes": report.free_bytes,
        "low_disk": report.disk_state == "full",
        "written_last_hour_bytes": report.written_last_hour,
        "pending_writes": report.announced,
        "skips_writes": why_not_written(report),
        "limits": told.model_dump(),
    }


def saves(counters: Counters) -> dict[str, Any]:
    """What one process wrote to the SSD, and what it did not."""
    return {
        "written_files": counters.written_files,
        "written_bytes": counters.written_bytes,
        "pending_bytes": counters.pending_bytes,
        "not_kept": counters.drops,  # saves, by reason
        "not_read": counters.misses,  # files, by reason
        "last_error": counters.last_error or None,
    }


def why_not_written(report: Report) -> DropReason | None:
    if report.disk_state == "full":
        return "low_disk"
    if report.reason is None and report.written_last_hour >= limits().write_budget_per_hour:
        return "write_budget"
    return None
