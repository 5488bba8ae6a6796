"""``llm mtplx status | forget``: what is kept on disk. Loads no model and no MLX."""

import json
import time
from typing import Any

import click

from ..coldstore import ColdStore, Conversation, Report
from ..engine.budgets import bank_limits
from ..errors import MtplxError
from ..limits import limits
from ..sessions.budgets import store_limits
from ..sessions.groups import session_bank, ssd_session_cache, why_not_written
from ..settings import cache_dir
from .llmlog import Reuse, conversation_names, reuse, total


@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def status(json_: bool) -> None:
    """Show the running engine and the prompt cache

    The hit rate is the share of prompt tokens in llm's log that were restored from the cache.
    """
    engine = resident_engine()
    report = _open().report()
    names, reused = conversation_names(), reuse()
    kept = [_kept(each, names, reused) for each in report.conversations]
    everything = total(reused.values())
    if json_:
        disk = {**ssd_session_cache(report), "conversations": kept, **_reuse(everything)}
        resident = engine or {
            "engine": None,
            "session_bank": session_bank(bank_limits()),
            "saves": None,
        }
        click.echo(json.dumps({**resident, "ssd_session_cache": disk}, indent=2))
        return
    if engine is not None:
        _print_engine(engine)
    _print(report, kept, everything)


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


def resident_engine() -> dict[str, Any] | None:
    """What the engine that stays loaded tells of itself; None where there is none."""
    from ..attach.client import NoEngine, Strange, ask

    try:
        return ask("status")
    except Strange as error:
        click.echo(f"Engine: {error}", err=True)
    except NoEngine:
        pass
    return None


_WORDS = {"not_kept": "Saves that failed", "not_read": "Files that could not be read"}


def _print_engine(told: dict[str, Any]) -> None:
    engine = told["engine"]
    doing = f"idle for {engine['idle_s']:.0f} s"
    if engine["running"]:
        doing = f"{engine['running']['phase']}, {engine['waiting']} waiting"
    where = f" at {told['address']}" if told["address"] else ""
    models = ", ".join(f"{m['id']} ({size(m['bytes'])})" for m in engine["models"])
    click.echo(f"Engine: process {told['pid']}{where}, {doing}; loaded: {models or 'nothing yet'}")
    saved = told.get("saves") or {}
    for what in ("not_kept", "not_read"):
        if counts := saved.get(what):
            why = ", ".join(f"{reason} {count}" for reason, count in counts.items())
            click.echo(f"{_WORDS[what]}: {why}; last error: {saved['last_error']}")
    if engine.get("turns_not_kept"):
        click.echo(f"States lost: {engine['turns_not_kept']}; last error: {engine['last_error']}")


def _print(report: Report, kept: list[dict[str, Any]], everything: Reuse) -> None:
    off = "" if limits().cache == "on" else " (turned off)"
    click.echo(f"{report.path}: {size(report.nbytes)}{off}")
    if report.reason not in (None, "store_absent"):
        click.echo(f"The store cannot be used now: {report.detail or report.reason}")
    for each in kept:
        name = each["name"] or "(not in llm's log)"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(each["last_used"]))
        click.echo(
            f"{printable(each['conversation'])}  {each['tokens']:>7,} tokens  "
            f"{size(each['bytes']):>9}  {used}  {percent(each['hit_rate'])} reused  "
            f"{printable(name)}"
        )
    if report.unnamed_states:
        click.echo(
            f"{report.unnamed_states} states without a conversation: from API clients "
            "that send no conversation id, and from 'llm mtplx warm'"
        )
    elif not kept:
        click.echo("No conversation is saved.")
    if everything.turns:
        rate, reasons = percent(everything.hit_rate).strip(), everything.miss_reasons
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(3))
        click.echo(
            f"Hit rate {rate} of {everything.prompt_tokens:,} prompt tokens in "
            f"{everything.turns:,} turns{f'; reasons for misses: {why}' if why else ''}"
        )
    if report.reason is not None:
        return
    click.echo(
        f"Limit {size(report.cap_bytes)}, {size(report.free_bytes)} free on the disk; "
        f"{size(report.written_last_hour)} of {size(limits().write_budget_per_hour)} written in "
        "the last hour"
    )
    if skipped := why_not_written(report):
        click.echo(f"Nothing is being written: {skipped}. Saved state is still used.")


def printable(text: str) -> str:
    """What was read back may hold anything, a terminal's commands included."""
    return "".join(character if character.isprintable() else "?" for character in text)


def percent(share: float | None) -> str:
    return " n/a" if share is None else f"{share:4.0%}"


@click.command()
@click.argument("conversation", required=False)
@click.option("everything", "--all", is_flag=True, help="Delete the state of every conversation")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Delete the state of conversations not used for this many days",
)
def forget(conversation: str | None, everything: bool, older_than: float | None) -> None:
    """Delete the saved state of a conversation

    CONVERSATION is an id from llm's log. The log is kept: the conversation can continue, and its
    text is processed again. A running engine drops its state, too.
    """
    if (conversation is not None) + everything + (older_than is not None) != 1:
        raise click.UsageError("Specify one of CONVERSATION, --all or --older-than.")
    seconds = None if older_than is None else older_than * 86_400
    store, resident = _open(), _forget_in_ram(conversation, seconds or 0.0)
    if conversation is not None and not resident and not store.tips(conversation):
        raise MtplxError(
            f"No state is saved for {conversation!r}. 'llm mtplx status' lists the saved "
            "conversations."
        )
    gone = store.forget(conversation, everything=everything, older_than=seconds)
    if gone.reason not in (None, "store_absent"):
        raise MtplxError(f"Not everything could be deleted: {gone.reason}. Try again later.")
    click.echo(f"Forgot {gone.conversations} conversations, {size(gone.nbytes)}.")
    if gone.shared_blocks or gone.shared_checkpoints:
        click.echo(
            f"{size(gone.shared_nbytes)} were kept: other conversations begin with the same text."
        )


def _forget_in_ram(conversation: str | None, older_than: float) -> bool:
    """Whether there is a resident engine; it drops what it has."""
    from ..attach.client import NoEngine, ask

    try:
        ask("forget", conversation=conversation, older_than=older_than)
    except NoEngine:
        return False
    return True


def _open() -> ColdStore:
    return ColdStore(cache_dir(), store_limits())


def size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
