"""``llm mtplx count``: how many tokens a prompt has. Needs the tokenizer, not MLX."""

import json
from typing import Any

import click

from .as_prompt import piped, request_of, takes


@takes(
    "prompt",
    "system",
    "model_id",
    "database",
    "attachments",
    "tools",
    "python_tools",
    "options",
    "schema_input",
    "fragments",
    "system_fragments",
    "template",
    "param",
    "_continue",
    "conversation_id",
)
@click.command()
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def count(json_: bool, **arguments: Any) -> None:
    """Count the tokens of a prompt

    Takes the arguments of 'llm prompt' and counts everything the model would read: history, system
    prompt, tools, the template's own tokens.
    """
    from ..engine.count import count_tokens

    entry, request = request_of(arguments, piped())
    tokens = count_tokens(request)
    if json_:
        click.echo(json.dumps({"model": entry.model_id, "tokens": tokens}))
    else:
        click.echo(f"{tokens:,} tokens")
