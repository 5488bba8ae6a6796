"""``llm mtplx count``: how many tokens a prompt has. Needs the tokenizer, not MLX."""

import json
import uuid
from dataclasses import replace
from typing import Any

import click

from .as_prompt import continuations, piped, request_of, takes


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

    Takes the arguments of 'llm prompt' and counts everything the model would process: history,
    system prompt, tools and the chat template's own tokens. Without a prompt it counts what
    'llm mtplx warm' would save: the system prompt and the tools.
    """
    from ..engine.count import count_beginning, count_tokens

    entry, request = request_of(arguments, piped(), beginning=True)
    if any(message["role"] == "user" for message in request.messages):
        tokens = count_tokens(request)
    else:
        marker = uuid.uuid4().hex
        asked = replace(request, messages=[*request.messages, {"role": "user", "content": marker}])
        tokens = count_beginning(continuations(asked, marker))
    if json_:
        click.echo(json.dumps({"model": entry.model_id, "tokens": tokens}))
    else:
        click.echo(f"{tokens:,} tokens")
