"""``llm mtplx doctor``: is this installation able to answer?"""

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from ..catalog.entries import DEMO_ID, entry_named
from ..demo import MODEL_DIR
from ..errors import MtplxError
from ..progress import notice

CUDA_BUILDS = ("mlx-cuda-13", "mlx-cuda-12")
QUESTION = "What is the capital of France?"


@click.command()
@click.option("verify_", "--verify", is_flag=True, help="Compare answers cold, warm and plain")
@click.option("model", "-m", "--model", default=DEMO_ID, help="The model to verify")
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def doctor(verify_: bool, model: str, json_: bool) -> None:
    """Check versions, backend, memory, and that the demo model answers

    With --verify: one question to MODEL, answered cold, going on from RAM and from SSD, and
    without drafts. The ids are compared; where they part, the gap between the two likeliest
    tokens tells a near-tie, which rounding may decide, from a fault.
    """
    from ..engine.engine import shared_engine

    engine = shared_engine()

    def facts() -> dict[str, Any]:
        from ..engine.facts import facts

        return facts()

    report = engine.call(facts)
    report["advice"] = advice(report)
    report["demo"] = _ask_demo()
    verified = engine.verify(entry_named(model).path, notice) if verify_ else None
    if verified is not None:
        report["verify"] = {"model": model, "holds": verified.holds, **asdict(verified)}
    if json_:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    if report["demo"]["problem"]:
        raise MtplxError(report["demo"]["problem"])
    if verified is not None and not verified.holds:
        raise MtplxError(
            f"{model} does not answer the same from a restored state. Please report this with "
            "the output of 'llm mtplx doctor --verify --json'; until then use '-o cache off'."
        )


def advice(report: dict[str, Any]) -> list[str]:
    """What would make this installation better, one line each."""
    lines = []
    if report["backend"] == "cpu" and report["blas"] == "the mlx wheel's own":
        lines.append(
            "MLX multiplies float32 matrices with the slow BLAS of its wheel. Install OpenBLAS "
            "and llm uses it: apt install libopenblas0-pthread (Debian, Ubuntu), dnf install "
            "openblas-threads (Fedora), pacman -S openblas (Arch)."
        )
    cuda = next((name for name in CUDA_BUILDS if _installed(name)), None)
    if report["backend"] == "cpu" and cuda is not None:
        lines.append(
            "MLX's CPU build has taken the place of its CUDA build. Bring it back with: "
            f"python -m pip install --force-reinstall --no-deps {cuda}=={version(cuda)}"
        )
    return lines


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _ask_demo() -> dict[str, Any]:
    from ..engine.engine import shared_engine
    from ..engine.protocol import Finished, Request, Text

    request = Request(
        DEMO_ID, MODEL_DIR, [{"role": "user", "content": QUESTION}], temperature=0, max_tokens=64
    )
    report: dict[str, Any] = {"question": QUESTION, "answer": "", "problem": None}
    try:
        for event in shared_engine().stream(request):
            if isinstance(event, Text):
                report["answer"] += event.text
            elif isinstance(event, Finished):
                report["tokens"] = event.output_tokens
                report["rounds"] = event.rounds
                report["drafted"] = event.drafted
                report["accepted"] = event.accepted
    except MtplxError as error:
        report["problem"] = f"The demo model does not answer: {error}"
    return report


def _print(report: dict[str, Any]) -> None:
    for name, number in report["versions"].items():
        click.echo(f"{name:10} {number}")
    click.echo(f"{'system':10} {report['system']}")
    click.echo(f"{'backend':10} {report['backend']}")
    click.echo(f"{'BLAS':10} {report['blas']}")
    click.echo(f"{'memory':10} {report['memory_bytes'] / 2**30:.1f} GiB")
    for line in report["advice"]:
        click.echo(f"{'advice':10} {line}")
    demo = report["demo"]
    if not demo["problem"]:
        click.echo(f"{'demo':10} {demo['question']} {demo['answer']}")
        click.echo(
            f"{'':10} {demo['tokens']} tokens in {demo['rounds']} rounds; drafts accepted "
            f"{sum(demo['accepted'])} of {sum(demo['drafted'])} examined"
        )
    if "verify" in report:
        _print_verified(report["verify"])


def _print_verified(verified: dict[str, Any]) -> None:
    prompt, answer = verified["prompt_tokens"], len(verified["cold"])
    click.echo(f"{'verify':10} {verified['model']}: {answer} tokens after a prompt of {prompt}")
    for way in verified["ways"]:
        said = "equal to the cold answer"
        if way["first_difference"] is not None:
            said = f"parts at token {way['first_difference']}, top-2 gap {way['gap']:.1e}"
        restored = f"{way['restored']} restored, " if way["restored"] else ""
        click.echo(f"{'':10} {way['name']}: {restored}{said}")
    rows = "are those of one by one, bit for bit"
    if not verified["rows_equal"]:
        rows = f"differ from one by one by {verified['rows_difference']:.1e} of the largest logit"
    click.echo(f"{'':10} logits of several rows at once {rows}")
