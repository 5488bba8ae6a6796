"""A whole ``llm -c`` process to its first words, with and without what the disk has kept.

    uv run python -m benchmarks.continue --out benchmarks/results/continue.json

The model is the bundled one widened to 320 MB (``widen.py``): a first turn of so many tokens is
answered and kept; then new processes go on with it, each from the same user directory, one with
its state from the SSD, one with ``-o cache off``. Seconds from starting the process to the first
byte of the answer, medians; the page cache is dropped for the store's files, not for the model's.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from llm_mtplx.demo import MODEL_DIR

from .decode import machine
from .restore import drop_cache, rounded

SIZE = "320MB"
LENGTHS = (64, 256, 1024, 2048, 4096)
SENTENCE = "My name is Tamsin, I live in Porto, and I like to count from 1 to {}. "
ANSWER = ("-o", "temperature", "0", "-o", "max_tokens", "8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="results are added to what it holds")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        print(json.dumps(build(args.build)))
        return
    report = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = in_own_process(folder / "wide-demo")
        report |= {"machine": machine(), "model": f"demo-{SIZE}", **made}
        for length in args.lengths:
            run = rounded(measure(folder, length, args.repeats))
            report.setdefault("runs", {})[str(length)] = run
            print(f"{length:,} tokens:", run)
            if args.out:
                args.out.write_text(json.dumps(report, indent=1) + "\n")


def in_own_process(folder: Path) -> dict[str, Any]:
    """Build the model there, where MLX's memory is given back afterwards."""
    command = [sys.executable, "-m", "benchmarks.continue", "--build", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def build(folder: Path) -> dict[str, Any]:
    """The widened model as a folder that llm can add."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from llm_mtplx.architectures.runtime import facts

    from . import contenders
    from .widen import SIZES

    model = contenders.build(SIZE)
    assert model.head is not None
    folder.mkdir()
    for path in MODEL_DIR.iterdir():
        if path.name != "model.safetensors":
            shutil.copy(path, folder)
    config = json.loads((MODEL_DIR / "config.json").read_text())
    text = {**config["text_config"], **SIZES[SIZE].config, "dtype": "float32"}
    text["layer_types"] *= text["num_hidden_layers"] // len(text["layer_types"])
    config |= {"text_config": text, "dtype": "float32", "mtp_norm_encoding": "absolute"}
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.trunk.model.parameters()))
    weights |= {f"mtp.{name}": value for name, value in tree_flatten(model.head.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return {"weights_mb": contenders.weights_mb(model), "versions": facts()["versions"]}


def measure(folder: Path, length: int, repeats: int) -> dict[str, Any]:
    kept = folder / f"user-{length}"
    llm(kept, "mtplx", "add", str(folder / "wide-demo"), "-a", "wide")
    first_answer(kept, "-m", "wide", prompt_of(length), *ANSWER)
    spent: dict[str, list[float]] = {"ssd": [], "off": []}
    told: dict[str, dict[str, Any]] = {}
    for _ in range(repeats):
        for contender, mode in (("ssd", "on"), ("off", "off")):
            user = folder / "user"
            shutil.copytree(kept, user)
            drop_cache(user / "mtplx")
            question = ("-c", "What is my name?", *ANSWER, "-o", "cache", mode)
            spent[contender].append(first_answer(user, *question))
            told[contender] = last_response(user)
            shutil.rmtree(user)
    assert told["ssd"]["cache"]["source"] == "ssd" and told["off"]["cache"]["source"] is None
    shutil.rmtree(kept)
    cache = told["ssd"]["cache"]
    return {
        "restored": cache["restored"],
        "prefilled": cache["prefilled"],
        "restore_ms": cache["restore_ms"],
        "first_words_s": {name: statistics.median(times) for name, times in spent.items()},
        "in_the_engine_s": {name: one["ttft_ms"] / 1000 for name, one in told.items()},
    }


def prompt_of(tokens: int) -> str:
    from llm_mtplx.chat.tokenizer import ChatTokenizer

    tokenizer = ChatTokenizer(MODEL_DIR)
    sentences: list[str] = []
    while len(tokenizer.encode("".join(sentences))) < tokens:
        sentences.append(SENTENCE.format(len(sentences) + 2))
    return "".join(sentences)


def llm(user: Path, *args: str) -> None:
    user.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "llm", *args]
    subprocess.run(command, env=environment(user), stdout=subprocess.DEVNULL, check=True)


def first_answer(user: Path, *args: str) -> float:
    """Seconds from the start of the process to the first byte it prints."""
    command = [sys.executable, "-m", "llm", *args]
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment(user), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - started
        process.stdout.read()
    assert first and process.returncode == 0
    return seconds


def environment(user: Path) -> dict[str, str]:
    # Where set, OPENBLAS_* forces a kernel that need not suit the processor.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "LLM_"))}
    return {**kept, "LLM_USER_PATH": str(user)}


def last_response(user: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "llm", "logs", "--json", "-n", "1"]
    done = subprocess.run(command, env=environment(user), stdout=subprocess.PIPE, check=True)
    told: dict[str, Any] = json.loads(done.stdout)[0]["response_json"]
    return told


if __name__ == "__main__":
    main()
