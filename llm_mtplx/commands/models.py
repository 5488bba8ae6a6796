"""``llm mtplx models | add | remove``: which models llm knows."""

import json
from collections.abc import Iterator
from typing import Any

import click

from ..catalog import fit, known, machine, places
from ..catalog.entries import (
    DEMO_ID,
    Entry,
    add_entry,
    find_entry,
    is_repo,
    list_entries,
    model_id_of,
    remove_entry,
)
from ..errors import ModelFolderError, MtplxError
from ..once import first_time
from ..settings import expand, registry_path

TITLES = {
    "here": "On this machine",
    "download": "To download",
    "found": "Found on this machine, not added yet",
    "not runnable": "Not runnable yet",
}


@click.command()
@click.option(
    "only_best", "--recommended", is_flag=True, help="Show only models that suit this machine"
)
@click.option("path_", "--path", is_flag=True, help="Print where added models are registered")
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def models(only_best: bool, path_: bool, json_: bool) -> None:
    """List models on this machine and in the catalog

    Searches the Hugging Face cache and the LM Studio and MTPLX folders. With --recommended: the
    models that suit this machine's memory and chip, the best first.
    """
    if path_:
        path = str(registry_path())
        click.echo(json.dumps({"path": path}) if json_ else path)
        return
    entries, warnings = list_entries()
    for warning in filter(first_time, warnings):
        click.echo(f"mtplx: {warning}", err=True)
    described = list(_recommended(entries) if only_best else _all(entries))
    if json_:
        click.echo(json.dumps(described, indent=2))
        return
    if not described:
        click.echo("No model in the catalog suits this machine.")
    for state in TITLES if not only_best else ("",):
        group = [model for model in described if state in ("", model["state"])]
        if group and state:
            click.echo(f"{TITLES[state]}:")
        for model in group:
            click.echo(f"  {', '.join([model['id'], *model['aliases']])}: {_words(model)}")


def _recommended(entries: list[Entry]) -> Iterator[dict[str, Any]]:
    from ..catalog.recommend import recommended

    by_id = {entry.model_id: entry for entry in entries}
    for pack in recommended(machine.memory_bytes(), machine.chip()):
        yield _describe(by_id[pack.model_id])


def _all(entries: list[Entry]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        yield _describe(entry)
    yield from _discovered(entries)
    for repo, reason in known.NOT_RUNNABLE.items():
        yield {"id": repo, "aliases": [], "state": "not runnable", "problem": reason}


def _describe(entry: Entry) -> dict[str, Any]:
    from ..catalog.folder import inspect

    told: dict[str, Any] = {"id": entry.model_id, "aliases": list(entry.aliases)}
    pack = known.pack(entry.model_id)
    if pack is not None:
        download = pack.downloads()[0]
        peak = int(download.peak_gib * fit.GIB)
        verdict = fit.verdict(machine.memory_bytes(), peak)
        told |= {"bytes": download.size, "memory_needed": peak, "verdict": verdict}
    if not entry.here and entry.folder is None:
        return {**told, "state": "download", "command": entry.download_command}
    told |= {"state": "here", "path": None, "head": None, "problem": None}
    try:
        told["path"] = str(entry.path)
        told["head"] = inspect(entry.path).head is not None
    except ModelFolderError as error:
        told["problem"] = str(error)
    return told


def _discovered(entries: list[Entry]) -> Iterator[dict[str, Any]]:
    """What could be added: models of a supported architecture that have no name here."""
    from ..catalog.folder import inspect

    taken = {repo for entry in entries for repo in entry.repos()}
    taken |= {str(entry.folder) for entry in entries}
    for name, path in places.discover():
        if name in taken or str(path) in taken:
            continue
        try:
            head = inspect(path).head is not None
        except ModelFolderError:
            continue
        taken.add(name)
        command = f"llm mtplx add {name}"
        told = {"state": "found", "path": str(path), "head": head, "command": command}
        yield {"id": name, "aliases": [], **told}


def _words(model: dict[str, Any]) -> str:
    if model["state"] == "download" and "bytes" not in model:
        return f"not on this machine: {model['command']}"
    if model["state"] == "download":
        size, memory = model["bytes"] / 1e9, model["memory_needed"] / fit.GIB
        return (
            f"{size:.1f} GB, {model['verdict']} (needs about {memory:.1f} GiB): {model['command']}"
        )
    if model["state"] == "found":
        return f"{head_words(model['head'])}: {model['command']}"
    problem: str | None = model["problem"]
    return problem or f"{head_words(model['head'])} ({model['path']})"


def head_words(head: bool) -> str:
    return "with its MTP head" if head else "no MTP head, decodes without drafts"


def try_it(entry: Entry) -> str:
    name = (*entry.aliases, entry.model_id)[0]
    return f"Try: llm -m {name} 'Hello'\nTo make it llm's default model: llm models default {name}"


@click.command()
@click.argument("model")
@click.option("aliases", "-a", "--alias", multiple=True, help="Short name for the model")
def add(model: str, aliases: tuple[str, ...]) -> None:
    """Register a model that is already on this machine

    MODEL is a folder, or an owner/name to find in the Hugging Face cache or in the folders of LM
    Studio and MTPLX. Nothing is downloaded, and code shipped with a model is never run.
    """
    from ..catalog.folder import inspect

    entry = _to_add(model, aliases)
    head = inspect(entry.path).head is not None
    add_entry(entry)
    click.echo(f"Added {entry.model_id} ({head_words(head)}).\n{try_it(entry)}")


def _to_add(model: str, aliases: tuple[str, ...]) -> Entry:
    folder = expand(model).absolute()
    if folder.is_dir():
        return Entry(f"mtplx/{folder.parent.name}/{folder.name}", folder, aliases)
    if not is_repo(model):
        what = "is a file, not a model folder" if folder.exists() else "does not exist"
        raise MtplxError(
            f"{folder} {what}. Check the path, or specify the owner/name of a model on "
            "this machine; 'llm mtplx models' lists them."
        )
    if places.find(model) is None:
        raise MtplxError(
            f"There is no folder {model}, and the model {model} is not on this machine. "
            f"To download it from Hugging Face: llm mtplx download {model}"
        )
    return Entry(model_id_of(model), None, aliases, model)


@click.command()
@click.argument("model")
def remove(model: str) -> None:
    "Unregister a model (its files are kept)"
    if model == DEMO_ID:
        raise click.UsageError(f"{DEMO_ID} is part of llm-mtplx and cannot be removed.")
    entry = find_entry(model)
    if entry is not None and entry.folder is None and entry.repo is None:
        raise MtplxError(
            f"{model} is in the catalog and cannot be removed. Its files, if downloaded, "
            f"are in {places.hub_cache()}."
        )
    click.echo(f"Removed {remove_entry(model)}. Its files were not touched.")
