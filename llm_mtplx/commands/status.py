"""``llm mtplx status | forget``: what is kept on disk. Loads no model and no MLX."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import click
import llm

from ..coldstore import ColdStore, DropReason, Report
from ..errors import MtplxError
from ..limits import limits, store_limits
from ..settings import cache_dir


@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def status(json_: bool) -> None:
    "Show the conversations kept on disk, their size, and the limits"
    report = _open().report()
    names = conversation_names()
    told = limits()
    kept = [
        {
            "conversation": each.name,
            "name": names.get(each.name),
            "tokens": each.position,
            "bytes": each.nbytes,
            "last_used": each.used,
        }
        for each in report.conversations
    ]
    if json_:
        group = {
            "enabled": told.cache == "on",
            "dir": report.path,
            "restorable": report.reason in (None, "store_absent"),
            "last_miss_reason": report.reason,
            "physical_bytes": report.nbytes,
            "blocks": report.blocks,
            "checkpoints": report.checkpoints,
            "conversations": kept,
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
        click.echo(json.dumps({"ssd_session_cache": group}, indent=2))
        return
    _print(report, kept, told.cache == "on")


def _print(report: Report, kept: list[dict[str, Any]], enabled: bool) -> None:
    click.echo(f"{report.path}: {size(report.nbytes)}{'' if enabled else ' (turned off)'}")
    if report.reason not in (None, "store_absent"):
        click.echo(f"The store cannot be used now: {report.reason}")
    for each in kept:
        name = each["name"] or "(not in llm's log)"
        click.echo(
            f"{each['conversation']}  {each['tokens']:>7,} tokens  {size(each['bytes']):>9}  {name}"
        )
    if not kept:
        click.echo("No conversation is kept.")
    if report.reason is not None:
        return
    click.echo(
        f"Limit {size(report.cap_bytes)}, {size(report.free_bytes)} free on the disk; "
        f"{size(report.written_last_hour)} of {size(limits().write_budget_per_hour)} written in "
        "the last hour"
    )
    if why := _why_not_written(report):
        click.echo(f"Nothing is written now: {why}. What is kept is still read.")


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


def conversation_names() -> dict[str, str]:
    """Conversation ids of llm's log and what llm calls them; empty where there is no log."""
    path = Path(llm.user_dir()) / "logs.db"
    names: dict[str, str] = {}
    if not path.exists():
        return names
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for table in ("conversations", "threads"):
            # llm has kept them under either name.
            with contextlib.suppress(sqlite3.Error):
                names.update(database.execute(f"SELECT id, name FROM {table}").fetchall())
    return {key: name for key, name in names.items() if name}


def size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
