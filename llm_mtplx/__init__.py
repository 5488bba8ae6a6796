"""Qwen models for llm, on MLX, accelerated by their own MTP heads."""

from collections.abc import Callable
from typing import Any

import llm


@llm.hookimpl  # type: ignore[untyped-decorator]
def register_models(register: Callable[..., None]) -> None:
    import click

    from .catalog.entries import list_entries
    from .model import AsyncMtplxModel, MtplxModel
    from .once import first_time

    entries, warnings = list_entries()
    for warning in filter(first_time, warnings):
        click.echo(f"mtplx: {warning}", err=True)
    for entry in entries:
        register(MtplxModel(entry), AsyncMtplxModel(entry), aliases=entry.aliases)


@llm.hookimpl  # type: ignore[untyped-decorator]
def register_commands(cli: Any) -> None:
    from .commands import mtplx

    cli.add_command(mtplx)
