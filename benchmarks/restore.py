"""Going on with a session from RAM and from disk: ours, mlx-lm's prompt cache, the mtplx package.

    uv run python -m benchmarks.restore --out benchmarks/results/restore.json

A synthetic state of a 27B model's shape (``shape27b.py``). Every sample is a process of its own,
stores take turns, and cold means that the page cache was dropped for the files; figures are
medians. The mtplx package is measured where ``--mtplx`` names a folder that holds it
(``pip install --no-deps --target FOLDER mtplx``).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PARTS = ("ram", "ssd", "turns", "lookup")
RAM_TOKENS = (54_000, 96_768, 97_000)
SSD_TOKENS = (1_536, 10_000, 54_000, 97_000)
SHORT = 10_000  # up to here all three are measured, with a turn
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="results are added to what it holds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tokens", nargs="+", type=int, help="only these lengths")
    parser.add_argument("--mtplx", type=Path, help="folder with the installed mtplx package")
    parser.add_argument("--dir", type=Path, help="where to write the stores")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sample:
        print(json.dumps(take_sample(json.loads(args.sample))))
        return
    report = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    report |= sample(kind="about")
    if args.mtplx:
        report["mtplx"] = next(args.mtplx.glob("mtplx-*.dist-info")).name[6 : -len(".dist-info")]
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        for part in args.parts:
            run = {"ram": run_ram, "ssd": run_ssd, "turns": run_turns, "lookup": run_lookup}[part]
            told = run(args, Path(folder))
            report[part] = {**report.get(part, {}), **told}
            if args.out:
                args.out.write_text(json.dumps(report, indent=1) + "\n")


def run_ram(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs = {}
    for tokens in args.tokens or RAM_TOKENS:
        runs[str(tokens)] = rounded(
            sample(kind="ram", tokens=tokens, folder=str(folder / f"ram-{tokens}"))
        )
        print(f"RAM, {tokens:,} tokens:", runs[str(tokens)])
    return runs


def run_ssd(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs = {}
    for tokens in args.tokens or SSD_TOKENS:
        names = ["ours", "mlx-lm"]
        if args.mtplx and tokens <= SHORT:
            names.append("mtplx")
        common = {"tokens": tokens, "package": str(args.mtplx)}
        run: dict[str, Any] = {}
        for name in names:
            turn = tokens <= SHORT or name == "ours"
            where = str(folder / name)
            run[name] = sample(kind="save", store=name, folder=where, turn=turn, **common)
        for warmth in ("cold", "warm"):
            loads: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
            for _ in range(args.repeats):
                for name in names:
                    where = folder / name
                    if warmth == "cold":
                        drop_cache(where)
                    told = sample(kind="load", store=name, folder=str(where), **common)
                    loads[name].append(told)
            for name, told in loads.items():
                run[name][f"{warmth}_s"] = statistics.median(t["s"] for t in told)
                run[name]["rss_ratio"] = max(t["rss_ratio"] for t in told)
                run[name]["state_mb"] = told[0]["state_mb"]
        for name in names:
            shutil.rmtree(folder / name)
            print(f"SSD, {tokens:,} tokens, {name}:", rounded(run[name]))
        runs[str(tokens)] = rounded(run)
    return runs


def run_turns(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    told = rounded(sample(kind="turns", folder=str(folder / "turns")))
    print("turns of 300 tokens:", told)
    return told


def run_lookup(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    where = str(folder / "lookup")
    sample(kind="many", folder=where)
    samples = [sample(kind="lookup", folder=where) for _ in range(args.repeats)]
    told = rounded({key: statistics.median(s[key] for s in samples) for key in samples[0]})
    print("lookup beside 100 conversations of 100,000 tokens:", told)
    return told


def sample(**wanted: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.restore", "--sample", json.dumps(wanted)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def take_sample(wanted: dict[str, Any]) -> dict[str, Any] | None:
    from . import restore_samples as samples

    kind, tokens = wanted["kind"], wanted.get("tokens", 0)
    folder, package = Path(wanted.get("folder", "")), Path(wanted.get("package", ""))
    if kind == "about":
        return about()
    if kind == "ram":
        return samples.ram(folder, tokens)
    if kind == "save":
        return samples.save(wanted["store"], folder, package, tokens, wanted["turn"])
    if kind == "load":
        return samples.load(wanted["store"], folder, package, tokens)
    if kind == "turns":
        return samples.turns(folder)
    if kind == "many":
        return samples.many_conversations(folder)
    return samples.lookup(folder)


def about() -> dict[str, Any]:
    from llm_mtplx.architectures.runtime import facts

    from .decode import machine

    return {"machine": machine(), "versions": facts()["versions"]}


def drop_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rounded(told: Any) -> Any:
    if isinstance(told, dict):
        return {key: rounded(value) for key, value in told.items()}
    return float(f"{told:.4g}") if isinstance(told, float) else told


if __name__ == "__main__":
    main()
