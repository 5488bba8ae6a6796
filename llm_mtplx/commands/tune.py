"""``llm mtplx tune``: which depth is fastest here."""

import json

import click

from ..catalog.entries import DEMO_ID, entry_named
from ..progress import notice


@click.command()
@click.argument("model", default=DEMO_ID)
@click.option("--tokens", type=click.IntRange(min=8), default=64, help="Tokens a prompt")
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="Runs of each depth")
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def tune(model: str, tokens: int, repeats: int, json_: bool) -> None:
    """Measure MODEL at every depth and save the fastest for '-o draft auto'

    Plain decoding wins where no depth beats it. The record holds for this model, machine and
    these versions; nothing is ever measured while you wait for an answer.
    """
    from ..engine.engine import shared_engine

    entry = entry_named(model)
    measured = shared_engine().tune(entry.path, tokens, repeats, notice)
    ratios = measured.ratios()
    if json_:
        rates = {str(d): round(rate, 2) for d, rate in measured.tokens_per_s.items()}
        report = {"model": entry.model_id, "depth": measured.depth, "tokens_per_s": rates}
        click.echo(json.dumps(report, indent=2))
        return
    for depth, rate in measured.tokens_per_s.items():
        name = f"draft {depth}" if depth else "plain"
        chosen = "  <- used by draft auto" if depth == measured.depth else ""
        click.echo(f"{name:8} {rate:8.1f} tokens/s  {ratios[depth]:.2f}x{chosen}")
