"""``llm mtplx warm``: read a beginning once, so that what begins like it starts there."""

import json
import uuid
from typing import Any

import click

from ..errors import MtplxError
from ..settings import cache_dir, is_logging
from ..terminal import notice
from .as_prompt import continuations, piped, request_of, takes


@takes(
    "system",
    "model_id",
    "tools",
    "python_tools",
    "options",
    "fragments",
    "system_fragments",
    "template",
    "param",
)
@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def warm(json_: bool, **arguments: Any) -> None:
    """Process a shared prompt prefix once and save it to disk

    Takes a system prompt, tools, a template or fragments, with the options of 'llm prompt'. Later
    prompts that begin with the same ones start from the saved state.
    """
    from ..engine.engine import shared_engine
    from ..limits import limits

    if limits().cache == "off":
        raise MtplxError("LLM_MTPLX_CACHE is off, so nothing can be saved.")
    if not is_logging():
        raise MtplxError(
            "Logging is off, and prompts that llm does not log are not saved. Turn it on "
            "with 'llm logs on'."
        )
    marker = uuid.uuid4().hex
    entry, request = request_of({**arguments, "prompt": marker}, piped())
    done = shared_engine().warm(continuations(request, marker), notice)
    if json_:
        report = {
            "model": entry.model_id,
            "tokens": done.tokens,
            "read": done.tokens - done.restored,
            "kept": done.kept,
            "path": str(cache_dir()),
        }
        click.echo(json.dumps(report))
    elif not done.kept:
        click.echo(
            f"Not saved: processing {done.tokens:,} tokens is faster than loading their state."
        )
    elif done.restored == done.tokens:
        click.echo(f"{done.tokens:,} tokens were already saved in {cache_dir()}.")
    else:
        read = done.tokens - done.restored
        click.echo(
            f"Processed {read:,} of {done.tokens:,} tokens; their state is saved in {cache_dir()}."
        )
