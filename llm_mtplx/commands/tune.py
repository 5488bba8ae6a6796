"""``llm mtplx tune``: which depth is best here, and what rounds cost."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..catalog.entries import DEMO_ID, Entry, entry_named
from ..errors import RequestError
from ..measure.depths import DEPTHS, Measured, Sample, measure
from ..terminal import ProgressLine, notice
from .bars import bar

if TYPE_CHECKING:
    from ..engine.load import LoadedModel


def _depths(ctx: click.Context, param: click.Parameter, told: str) -> list[int]:
    asked, allowed = told.split(","), [str(depth) for depth in DEPTHS]
    if not set(asked) <= set(allowed):
        raise click.BadParameter(
            f"{told!r} is not valid; use a comma-separated list from {','.join(allowed)}."
        )
    return [int(each) for each in asked]


@click.command()
@click.argument("model", default=DEMO_ID)
@click.option(
    "--tokens", type=click.IntRange(min=8), default=64, help="Tokens to generate per prompt"
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="Samples per depth")
@click.option(
    "--depths",
    default=",".join(map(str, DEPTHS)),
    show_default=True,
    callback=_depths,
    help="Depths to measure; 0 (no drafting) is always included",
)
@click.option("json_", "--json", is_flag=True, help="Print JSON")
@click.option("--sample", "sampled", type=int, hidden=True)
def tune(
    model: str,
    tokens: int,
    repeats: int,
    depths: list[int],
    json_: bool,
    sampled: int | None,
) -> None:
    """Measure the cost of a round at each draft depth and save it

    With '-o draft auto', each answer adapts its draft depth to its acceptance rate and to these
    costs, down to no drafts at all. Without a record, the costs are learned while decoding. The
    record is valid for this model, this machine and these versions. Every sample loads the model in
    a new process, and the depths take turns. The best fixed depth is marked: the lowest within 3 %
    of the fastest.
    """
    from ..catalog.folder import inspect

    entry = entry_named(model)
    if inspect(entry.path).head is None:
        raise RequestError(f"{entry.model_id} has no MTP head: there is no depth to tune.")
    if sampled is not None:
        click.echo(json.dumps(asdict(_sample(entry, sampled, tokens))))
        return
    with ProgressLine() as line:

        def beginning(round_: int, depth: int) -> None:
            line.show(f"round {round_ + 1} of {repeats}: {_name(depth)}")

        measured = measure(entry.model_id, depths, tokens, repeats, beginning)
    if json_:
        click.echo(json.dumps(_report(entry.model_id, measured), indent=2))
    else:
        click.echo("\n".join(table(measured)))
        click.echo("Saved: '-o draft auto' now chooses the depth of each round by these costs.")


def _sample(entry: Entry, depth: int, tokens: int) -> Sample:
    from ..engine.engine import shared_engine

    def task(model: "LoadedModel") -> Sample:
        from ..measure.tune import sample

        return sample(model, depth, tokens)

    return shared_engine().run_with(entry.path, task, notice)


def _report(model_id: str, measured: Measured) -> dict[str, object]:
    rates, samples = measured.tokens_per_s, measured.samples
    return {
        "model": model_id,
        "depth": measured.depth,
        "tokens_per_s": {str(depth): round(rate, 2) for depth, rate in rates.items()},
        "costs": {str(depth): round(cost, 3) for depth, cost in measured.costs.items()},
        "samples": {str(d): [round(each, 2) for each in taken] for d, taken in samples.items()},
    }


def table(measured: Measured) -> list[str]:
    """A line a depth: the median, the range, the ratio to plain decoding, what a round costs in
    rounds of plain decoding, and a bar."""
    rates, ratios, costs = measured.tokens_per_s, measured.ratios(), measured.costs
    largest = max(rates.values())
    lines = []
    for depth, taken in measured.samples.items():
        spread = f"{min(taken):.0f}-{max(taken):.0f}"
        chosen = "  <- chosen" if depth == measured.depth else ""
        lines.append(
            f"{_name(depth):8} {rates[depth]:8.1f} tokens/s  {spread:>9}  {ratios[depth]:.2f}x  "
            f"cost {costs[depth]:.2f}  {bar(rates[depth], largest)}{chosen}"
        )
    return lines


def _name(depth: int) -> str:
    return f"draft {depth}" if depth else "plain"
