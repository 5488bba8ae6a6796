"""``llm mtplx gc``: what of the store nobody needs, and removing it. Loads no model and no MLX."""

import json
from pathlib import Path

import click

from ..coldstore import Collector, GcPlan, Removed, StoreError, store_root
from ..errors import MtplxError
from ..limits import parse_size
from ..sessions.budgets import store_limits
from ..settings import cache_dir
from .status import size

DAY_S = 86_400
WORDS = {
    "orphan_files": "files without an index entry",
    "temporary_files": "files of interrupted writes",
    "set_aside_manifests": "unreadable indexes that were replaced",
    "rows_without_file": "index entries without a file",
    "dead_writers": "locks of processes that ended",
    "entries_without_state": "conversation entries without a state",
    "unreachable_blocks": "blocks that no state uses",
    "superseded_states": "states with two successors",
    "evicted_states": "states of the least recently used conversations",
    "other_versions": "stores of other versions, unused for 30 days",
}


def _to_bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    parsed = parse_size(value)
    if parsed is None or isinstance(parsed, int):
        return parsed
    raise click.BadParameter(f"{value!r} is not a valid size; use e.g. 500M or 24G.")


@click.command()
@click.option(
    "apply_",
    "--apply",
    is_flag=True,
    help="Delete the listed files; without this, nothing is deleted",
)
@click.option(
    "dir_",
    "--dir",
    type=click.Path(path_type=Path),
    help="The store, or the cache directory that contains it",
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Also conversations not used for this many days",
)
@click.option(
    "--max-size",
    callback=_to_bytes,
    metavar="SIZE",
    help="Also the least recently used conversations above this size, e.g. 24G",
)
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def gc(
    apply_: bool, dir_: Path | None, older_than: float | None, max_size: int | None, json_: bool
) -> None:
    """List unused cache files; --apply deletes them

    Safe to run while other processes use the cache. Files written or used in the last ten minutes
    are kept. Nothing outside a directory with the store's own marker is ever touched.

    Exit codes: 0 listed or deleted, or the store is empty; 1 the directory is not a store, cannot
    be used now, or something could not be deleted; 2 usage error.
    """
    root = store_root(cache_dir() if dir_ is None else dir_)
    collector = Collector(root, store_limits())
    try:
        plan = collector.plan_gc(None if older_than is None else older_than * DAY_S, max_size)
        done = collector.apply(plan) if apply_ else None
    except StoreError as error:
        if error.reason == "store_absent" and dir_ is None:
            click.echo(json.dumps({"dir": str(root.path)}) if json_ else "The store is empty.")
            return
        raise MtplxError(_refusal(error, root.path)) from None
    finally:
        collector.close()
    if json_:
        removed = None if done is None else {"removed": vars(done)}
        click.echo(json.dumps({**plan.told(), **(removed or {})}, indent=2))
    else:
        _print(plan, done)
    if done is not None and done.failed:
        raise MtplxError(f"{done.failed} files could not be deleted: {done.error}")


def _print(plan: GcPlan, done: Removed | None) -> None:
    seen, room = plan.seen, plan.room
    click.echo(
        f"{plan.path}: {plan.conversations} conversations, {plan.entries} entries, "
        f"{plan.unnamed_states} states without a conversation, {seen.files} files, "
        f"{size(seen.nbytes)}"
    )
    click.echo(
        f"Limit {size(room.cap)}, {size(room.free)} free on the disk; "
        f"{size(plan.written_last_hour)} of {size(plan.write_budget)} written in the last hour"
    )
    if plan.pending_writes:
        click.echo(f"{plan.pending_writes} files are being written now.")
    if seen.unknown:
        click.echo(f"{seen.unknown} files do not belong to the store and are left alone.")
    if seen.unfiled and done is None:
        click.echo(f"{len(seen.unfiled)} entry files are missing; --apply writes them again.")
    for kind, (count, nbytes) in plan.goes().items():
        if count:
            click.echo(f"{count:>9,}  {size(nbytes):>9}  {WORDS[kind]}")
    if not any(count for count, _ in plan.goes().values()):
        click.echo("There are no unused files.")
    elif done is None:
        click.echo(f"'llm mtplx gc --apply' would free {size(plan.nbytes)}.")
    if done is not None:
        click.echo(f"Deleted {done.files:,} files, {size(done.nbytes)}.")
        if done.rewritten:
            click.echo(f"Wrote {done.rewritten} entry files again.")
        if done.kept:
            click.echo(f"{done.kept} came into use in the meantime and were kept.")


def _refusal(error: StoreError, path: Path) -> str:
    if error.reason == "store_absent":
        return f"{path} is not an llm-mtplx store; nothing was touched."
    return f"Nothing was touched in {path}. {error}"
