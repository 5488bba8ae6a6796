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


def store_lines() -> str:
    """What the store costs and what a conversation writes, from the committed results."""
    told = json.loads((RESULTS / "store.json").read_text())
    opening, codec, talk = told["opening"], told["codec"], told["conversation"]
    times, rates = opening["open_and_lookup_ms"], codec["gb_per_s"]
    lines = [
        f"With {opening['conversations']} conversations of {opening['tokens_each']:,} tokens in it,"
        f" opening the store and finding one takes {times['known']:.1f} milliseconds, finding none"
        f" {times['unknown']:.1f}. Packing leaves {100 * codec['packed_share']:.0f} % of a block;"
        f" one core packs {rates['pack']:.2f} and unpacks {rates['unpack']:.2f} GB/s, where it"
        f" copies {rates['copy']:.1f}.",
        "",
        f"A conversation of {talk['turns']} turns and {talk['tokens']:,} tokens of a 27B model:",
        "",
        "| kept by | GB written | GB kept | files | seconds a turn |",
        "| --- | --- | --- | --- | --- |",
    ]
    ours = talk["llm-mtplx"]
    rows = [("llm-mtplx", ours)]
    rows.append(("the same, ten minutes later", {**ours, **ours["kept_after_upkeep"]}))
    packed = {"written_bytes": ours["written_bytes"] + ours["written_by_compaction_bytes"]}
    rows.append(("the same, idle for a day", {**ours, **packed, **ours["kept_when_idle"]}))
    if "mtplx" in talk:
        rows.append((f"mtplx {talk['mtplx_version']}, cold tier", talk["mtplx"]))
    rows.append(("`save_prompt_cache` every turn", talk["save_prompt_cache"]))
    for name, row in rows:
        written, kept = (f"{row[key] / 1e9:.2f}" for key in ("written_bytes", "kept_bytes"))
        lines.append(f"| {name} | {written} | {kept} | {row['files']:,} | {row['turn_s']:.2f} |")
    return "\n".join(lines) + "\n"
