"""The README's tables, from the committed results."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DEPTHS = ("1", "2", "3", "4", "5")


def decode_table() -> str:
    """One line a model, BLAS and kind of prompt: plain tokens/s, then ratios by depth."""
    lines = [
        "| model | BLAS | prompts | mlx-lm | plain | " + " | ".join(f"draft {d}" for d in DEPTHS),
        "| --- " * (5 + len(DEPTHS)),
    ]
    for file in sorted(RESULTS.glob("decode-*.json")):
        report = json.loads(file.read_text())
        for blas, runs in report["runs"].items():
            for run in runs:
                lines += [_line(run, blas, kind) for kind in ("easy", "hard")]
    return "\n".join(line + " |" for line in lines) + "\n"


def _line(run: dict[str, Any], blas: str, kind: str) -> str:
    rates, ratios = run[kind]["tokens_per_s"], run[kind]["ratio_to_plain"]
    cells = [run["model"], blas, kind, f"{rates['mlx-lm']:.1f}", f"{rates['0']:.1f}"]
    cells += [f"{ratios[depth]:.2f}x" for depth in DEPTHS]
    return "| " + " | ".join(cells)


def decode_machine() -> str:
    """What the decode results were measured on."""
    told = json.loads((RESULTS / "decode-openblas-1.json").read_text())
    machine, versions = told["machine"], told["versions"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os'].split()[0]}, "
        f"mlx {versions['mlx']}, mlx-lm {versions['mlx-lm']}"
    )
