"""``llm mtplx status | forget``: what is kept on disk. Loads no model and no MLX."""

import json
import time
from typing import Any

import click

from ..coldstore import ColdStore, Conversation, DropReason, Report
from ..errors import MtplxError
from ..limits import limits, store_limits
from ..llmlog import Reuse, conversation_names, reuse, total
from ..sessions.budgets import bank_limits
from ..settings import cache_dir


@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def status(json_: bool) -> None:
    """Show the conversations kept on disk, how much of them was reused, and the limits

    The hit rate is the share of all prompt tokens in llm's log that were not read again.
    """
    report = _open().report()
    names, reused = conversation_names(), reuse()
    kept = [_kept(each, names, reused) for each in report.conversations]
    everything = total(reused.values())
    if json_:
        groups = {
            "session_bank": session_bank(),
            "ssd_session_cache": {**_ssd(report), "conversations": kept, **_reuse(everything)},
        }
        click.echo(json.dumps(groups, indent=2))
        return
    _print(report, kept, everything)


def session_bank() -> dict[str, Any]:
    """The sessions in RAM: they live and die with a process, and none runs here."""
    told = bank_limits()
    return {
        "max_entries": told.entries,
        "max_bytes": told.total_bytes,
        "per_session_max_bytes": told.per_session_bytes,
        "idle_ttl_s": told.idle_s or None,
        "active_pin_ttl_s": told.pin_s,
        "entries": 0,
        "total_nbytes": 0,
    }


def _kept(each: Conversation, names: dict[str, str], reused: dict[str, Reuse]) -> dict[str, Any]:
    return {
        "conversation": each.name,
        "name": names.get(each.name),
        "tip": each.checkpoint,
        "tokens": each.position,
        "bytes": each.nbytes,
        "last_used": each.used,
        **_reuse(reused.get(each.name, Reuse())),
    }


def _reuse(told: Reuse) -> dict[str, Any]:
    return {
        "turns": told.turns,
        "prompt_tokens": told.prompt_tokens,
        "restored_tokens": told.restored,
        "hit_rate": told.hit_rate,
        "miss_reasons": dict(told.miss_reasons.most_common()),
    }


def _ssd(report: Report) -> dict[str, Any]:
    told = limits()
    return {
        "enabled": told.cache == "on",
        "dir": report.path,
        "restorable": report.reason in (None, "store_absent"),
        "last_miss_reason": report.reason,
        "physical_bytes": report.nbytes,
        "blocks": report.blocks,
        "checkpoints": report.checkpoints,
        "other_bytes": report.other_bytes,
        "max_bytes": report.max_bytes,
        "effective_max_bytes": report.cap_bytes,
        "largest_session_bytes": report.largest_bytes,
        "disk_state": report.disk_state,
        "disk_free_bytes": report.free_bytes,
        "low_disk": report.disk_state == "full",
        "written_last_hour_bytes": report.written_last_hour,
        "pending_writes": report.announced,
        "skips_writes": _why_not_written(report),
        "limits": told.model_dump(),
    }


def _print(report: Report, kept: list[dict[str, Any]], everything: Reuse) -> None:
    off = "" if limits().cache == "on" else " (turned off)"
    click.echo(f"{report.path}: {size(report.nbytes)}{off}")
    if report.reason not in (None, "store_absent"):
        click.echo(f"The store cannot be used now: {report.reason}")
    for each in kept:
        name = each["name"] or "(not in llm's log)"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(each["last_used"]))
        click.echo(
            f"{each['conversation']}  {each['tokens']:>7,} tokens  {size(each['bytes']):>9}  "
            f"{used}  {percent(each['hit_rate'])} reused  {name}"
        )
    if not kept:
        click.echo("No conversation is kept.")
    if everything.turns:
        rate, reasons = percent(everything.hit_rate).strip(), everything.miss_reasons
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(3))
        click.echo(
            f"Hit rate {rate} of {everything.prompt_tokens:,} prompt tokens in "
            f"{everything.turns:,} turns{f'; why not more: {why}' if why else ''}"
        )
    if report.reason is not None:
        return
    click.echo(
        f"Limit {size(report.cap_bytes)}, {size(report.free_bytes)} free on the disk; "
        f"{size(report.written_last_hour)} of {size(limits().write_budget_per_hour)} written in "
        "the last hour"
    )
    if skipped := _why_not_written(report):
        click.echo(f"Nothing is written now: {skipped}. What is kept is still read.")


def percent(share: float | None) -> str:
    return "  - " if share is None else f"{share:4.0%}"


def _why_not_written(report: Report) -> DropReason | None:
    if report.disk_state == "full":
        return "low_disk"
    if report.reason is None and report.written_last_hour >= limits().write_budget_per_hour:
        return "write_budget"
    return None


@click.command()
@click.argument("conversation", required=False)
@click.option("everything", "--all", is_flag=True, help="Forget every conversation")
@click.option("--older-than", type=float, metavar="DAYS", help="Forget those unused for so long")
def forget(conversation: str | None, everything: bool, older_than: float | None) -> None:
    """Remove what is kept of CONVERSATION, an id of llm's log, from the disk

    llm's own log is not touched: the conversation can go on, it is read again from its text.
    """
    if (conversation is not None) + everything + (older_than is not None) != 1:
        raise click.UsageError("Say one of CONVERSATION, --all, --older-than.")
    store = _open()
    if conversation is not None and not store.tips(conversation):
        raise MtplxError(f"Nothing is kept of {conversation!r}. 'llm mtplx status' lists what is.")
    seconds = None if older_than is None else older_than * 86_400
    gone = store.forget(conversation, everything=everything, older_than=seconds)
    if gone.reason not in (None, "store_absent"):
        raise MtplxError(f"Not everything could be removed: {gone.reason}. Try again later.")
    click.echo(f"Forgot {gone.conversations} conversations, {size(gone.nbytes)}.")
    if gone.shared_blocks or gone.shared_checkpoints:
        click.echo(
            f"{size(gone.shared_nbytes)} stay: other conversations begin with the same text."
        )


def _open() -> ColdStore:
    return ColdStore(cache_dir(), store_limits())


def size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
