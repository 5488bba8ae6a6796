"""``llm mtplx download``: fetch a model's files from Hugging Face."""

import json
import re
from pathlib import Path
from typing import Any

import click

from ..catalog import places
from ..catalog.entries import Entry, add_entry, check_addable, find_entry, is_repo, model_id_of
from ..errors import MtplxError
from .models import try_it

REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")


@click.command()
@click.argument("model")
@click.option("aliases", "-a", "--alias", multiple=True, help="Short name for the model")
@click.option("--revision", help="Branch, tag or commit; default: main")
@click.option("--dry-run", is_flag=True, help="Show what would be downloaded and whether it fits")
@click.option(
    "--force", is_flag=True, help="Download the model even if it does not fit into memory"
)
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def download(
    model: str,
    aliases: tuple[str, ...],
    revision: str | None,
    dry_run: bool,
    force: bool,
    json_: bool,
) -> None:
    """Download a model from Hugging Face

    MODEL is a name from 'llm mtplx models' or an owner/name on Hugging Face. It is saved in the
    Hugging Face cache. Interrupted downloads resume where they stopped, and every file is verified
    against the hub's hash. HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT and HF_HUB_OFFLINE work as
    in other Hugging Face tools.
    """
    from ..catalog.fetch import fetch
    from ..catalog.hub import Hub, is_offline
    from ..catalog.preflight import preflight

    if revision is not None and not REVISION.fullmatch(revision):
        raise click.UsageError(f"{revision!r} is not a valid revision.")
    entry = _entry(model, aliases, revision)
    repo = entry.repos()[0]
    here = _whole(entry)
    if here is not None and (is_offline() or places.hub_cache() not in here.parents):
        if not dry_run:
            add_entry(entry)
        report: dict[str, Any] = {"model": entry.model_id, "repo": repo, "path": str(here)}
        click.echo(
            json.dumps(report, indent=2)
            if json_
            else f"{entry.model_id} is already on this machine: {here}\n{try_it(entry)}"
        )
        return
    check_addable(entry)
    hub = Hub()
    checked = preflight(hub, repo, entry.revision)
    report = {"model": entry.model_id, **checked.report()}
    if not json_:
        click.echo(f"{entry.model_id}\n{checked.words()}")
    if not dry_run:
        checked.refuse_too_large(force)
        with Bar(checked.remote.size, checked.remote.size - checked.to_fetch) as bar:
            report["path"] = str(fetch(hub, checked.remote, entry.revision, bar))
        add_entry(entry)
    if json_:
        click.echo(json.dumps(report, indent=2))
    elif not dry_run:
        click.echo(f"{entry.model_id} is ready: {report['path']}\n{try_it(entry)}")


def _entry(model: str, aliases: tuple[str, ...], revision: str | None) -> Entry:
    """What MODEL names: something in the catalog, something added, or a repository."""
    known_entry = find_entry(model)
    if known_entry is not None:
        if known_entry.folder is not None:
            raise MtplxError(f"{model} is a folder on this machine; there is nothing to download.")
        return known_entry._replace(
            repo=known_entry.repos()[0],
            aliases=tuple(dict.fromkeys((*known_entry.aliases, *aliases))),
            revision=revision or known_entry.revision,
        )
    if not is_repo(model):
        raise MtplxError(
            f"{model!r} is neither a catalog model ('llm mtplx models' lists them) nor "
            "an owner/name on Hugging Face."
        )
    return Entry(model_id_of(model), None, aliases, model, revision or "main")


def _whole(entry: Entry) -> Path | None:
    found = (places.find(repo, entry.revision) for repo in entry.repos())
    return next((path for path in found if path is not None), None)


class Bar:
    """Bytes, rate and time left on a terminal; silent where there is none."""

    def __init__(self, total: int, done: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            initial=done,
            unit="B",
            unit_scale=True,
            disable=None,
            leave=False,
            dynamic_ncols=True,
        )

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.close()

    def begin(self, name: str) -> None:
        self._bar.set_description(name)

    def advance(self, size: int) -> None:
        self._bar.update(size)
