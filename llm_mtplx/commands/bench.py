"""``llm mtplx bench``: how fast a model reads, answers and goes on here."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..catalog.entries import DEMO_ID, entry_named
from ..terminal import notice
from .bars import bar

if TYPE_CHECKING:
    from ..engine.load import LoadedModel
    from ..measure.bench import Benched

PLACES = {"cold": "cold", "ram": "from RAM", "ssd": "from SSD"}


@click.command()
@click.option("model", "-m", "--model", default=DEMO_ID, help="Model to measure")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(min=32),
    default=1024,
    help="Approximate prompt length in tokens",
)
@click.option(
    "--tokens", type=click.IntRange(min=8), default=64, help="Tokens to generate per answer"
)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, help="Number of runs, after one warm-up run"
)
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def bench(model: str, prompt_tokens: int, tokens: int, repeats: int, json_: bool) -> None:
    """Measure prefill, decoding and the time to the first token

    Decoding is measured with and without drafts. Time to first token is reported for a prompt
    processed from scratch, and for prompts that continue from a state in RAM or on disk. The bench
    uses a temporary store and does not touch yours. Numbers are medians at temperature 0; accepted
    drafts are counted by position.
    """
    from ..engine.engine import shared_engine

    entry = entry_named(model)

    def task(loaded: "LoadedModel") -> "Benched":
        from ..measure.bench import bench as measure

        return measure(loaded, prompt_tokens, tokens, repeats)

    done = shared_engine().run_with(entry.path, task, notice)
    if json_:
        click.echo(json.dumps({"model": entry.model_id, **asdict(done)}, indent=2))
        return
    click.echo("\n".join(table(entry.model_id, done)))


def table(model_id: str, done: "Benched") -> list[str]:
    """What was measured, a line each, with bars."""
    lines = [
        (
            f"{model_id}: a prompt of {done.prompt_tokens:,} tokens, {done.tokens} tokens "
            f"generated, medians of {done.repeats}"
        ),
        f"{'prefill':12} {done.prefill_tokens_per_s:8.1f} tokens/s",
    ]
    rates = done.decode_tokens_per_s
    for draft, rate in rates.items():
        name = "plain" if draft == "0" else f"draft {draft}"
        lines.append(f"{name:12} {rate:8.1f} tokens/s  {bar(rate, max(rates.values()))}")
    lines.append("first token")
    waits = done.first_token_s
    for place, name in PLACES.items():
        restored = f"  {done.restored[place]:,} restored" if done.restored[place] else ""
        shown = bar(waits[place], max(waits.values()))
        lines.append(f"  {name:10} {waits[place]:8.3f} s         {shown}{restored}")
    if sum(done.drafted):
        lines.append("accepted drafts (of those examined)")
    for position, (drafted, accepted) in enumerate(zip(done.drafted, done.accepted, strict=True)):
        if drafted:
            share = accepted / drafted
            counts = f"{accepted} of {drafted}"
            lines.append(
                f"  position {position + 1} {share:8.0%}           {bar(share, 1)}  {counts}"
            )
    if done.copied:
        share = done.copies_accepted / done.copied
        counts = f"{done.copies_accepted} of {done.copied}"
        lines.append(f"  copied     {share:8.0%}           {bar(share, 1)}  {counts}")
    return lines
