"""``llm mtplx models | add | remove``: which models llm knows."""

import json
from pathlib import Path
from typing import Any

import click

from ..catalog.entries import DEMO_ID, Entry, add_entry, list_entries, remove_entry
from ..errors import ModelFolderError


@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def models(json_: bool) -> None:
    "List the models, where they are, and whether they have an MTP head"
    entries, warnings = list_entries()
    for warning in warnings:
        click.echo(f"mtplx: {warning}", err=True)
    described = [_describe(entry) for entry in entries]
    if json_:
        click.echo(json.dumps(described, indent=2))
        return
    for model in described:
        names = ", ".join([model["id"], *model["aliases"]])
        click.echo(f"{names}: {model['problem'] or _head_words(model['head'])} ({model['path']})")


def _describe(entry: Entry) -> dict[str, Any]:
    from ..catalog.folder import inspect

    head: bool | None = None
    problem = None
    try:
        head = inspect(entry.path).head is not None
    except ModelFolderError as error:
        problem = str(error)
    return {
        "id": entry.model_id,
        "aliases": list(entry.aliases),
        "path": str(entry.path),
        "head": head,
        "problem": problem,
    }


def _head_words(head: bool) -> str:
    return "with its MTP head" if head else "no MTP head, decodes without drafts"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("aliases", "-a", "--alias", multiple=True, help="A short name for the model")
def add(folder: Path, aliases: tuple[str, ...]) -> None:
    "Make the model in FOLDER available to llm"
    from ..catalog.folder import inspect

    folder = folder.expanduser().absolute()
    head = inspect(folder).head is not None
    entry = Entry(f"mtplx/{folder.parent.name}/{folder.name}", folder, aliases)
    add_entry(entry)
    click.echo(f"Added {entry.model_id} ({_head_words(head)}).")
    click.echo(f"Try: llm -m {(*aliases, entry.model_id)[0]} 'Hello'")


@click.command()
@click.argument("model")
def remove(model: str) -> None:
    "Forget MODEL, an id or alias; its files stay where they are"
    if model == DEMO_ID:
        raise click.UsageError(f"{DEMO_ID} is part of llm-mtplx and cannot be removed.")
    click.echo(f"Removed {remove_entry(model)}. Its files were not touched.")
