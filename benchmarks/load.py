"""From process start to the first token, and prefill, beside mlx-lm on the same weights.

    uv run python -m benchmarks.load --out benchmarks/results/load.json

The model is the demo widened to 320 MB, saved as a converted checkpoint with its head. Loading: a
fresh process each, both kinds in turn; medians, files in the page cache. Prefill: in one process,
in turn; mlx-lm's loop, ours, and ours without the head, whose history ours fills as it reads.
Tokenizer: its vocabulary has 2,048 tokens; one of 248,320 is made and read by both.
"""

import argparse
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.blas import preload

from .decode import machine

PROMPT = "Tell me a story."
LENGTHS = (256, 768)
VOCABULARY = 248_320


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        print(json.dumps(TASKS[args.task](args)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = Path(scratch) / "model"
        in_own_process("save", args)
        report = {"machine": machine(), "model": "320MB", "load": compare_loading(args)}
        report["tokenizer_s"] = in_own_process("tokenizer", args)
        report["prefill"] = in_own_process("prefill", args)
        report |= report["prefill"].pop("facts")
    show(report)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def in_own_process(task: str, args: argparse.Namespace) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    with tempfile.TemporaryDirectory() as cache:
        environment = {"LLM_MTPLX_BLAS": "libopenblas.so.0", **kept, "LLM_MTPLX_CACHE_DIR": cache}
        environment |= bytecode_in(args.folder.parent)
        command = [sys.executable, "-m", "benchmarks.load", "--task", task]
        command += ["--folder", str(args.folder), "--repeats", str(args.repeats)]
        # CLOCK_MONOTONIC is the machine's, so the child can count from here.
        command += ["--started", str(time.monotonic())]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def bytecode_in(folder: Path) -> dict[str, str]:
    """Environment in which modules are compiled once, as they are where a user runs them."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def compare_loading(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Median milliseconds by step, and in all."""
    runs: dict[str, list[dict[str, float]]] = {"llm-mtplx": [], "mlx-lm": []}
    for repeat in range(args.repeats + 1):
        for contender, samples in runs.items():
            sample = in_own_process(contender, args)
            if repeat:  # the first fills the page cache and compiles
                samples.append(sample)
    return {
        contender: {
            step: round(statistics.median(s[step] for s in samples), 1) for step in samples[0]
        }
        for contender, samples in runs.items()
    }


class Steps:
    """Milliseconds by step, from the start of the process on."""

    def __init__(self, started: float) -> None:
        self.started = self.last = started
        self.spent: dict[str, float] = {}

    def done(self, step: str) -> None:
        now = time.monotonic()
        self.spent[step] = (now - self.last) * 1000
        self.last = now

    def time(self, place: Any, name: str, step: str) -> None:
        """Count what ``place.name`` takes; steps do not overlap."""
        function = getattr(place, name)

        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            began = time.monotonic()
            try:
                return function(*args, **options)
            finally:
                self.spent[step] = self.spent.get(step, 0.0) + (time.monotonic() - began) * 1000

        setattr(place, name, timed)

    def total(self) -> dict[str, float]:
        whole = (time.monotonic() - self.started) * 1000
        return {**self.spent, "other": whole - sum(self.spent.values()), "total": whole}


def load_ours(args: argparse.Namespace) -> dict[str, float]:
    steps = Steps(args.started)
    steps.done("python and llm")
    preload()
    from llm_mtplx.engine import engine, load, memory, turn
    from llm_mtplx.protocol import Reasoning, Request, Text
    from llm_mtplx.speculative.decoder import Decoder

    steps.done("imports")
    steps.time(load, "inspect", "read headers")
    steps.time(load, "ChatTokenizer", "tokenizer")
    steps.time(load, "load_trunk", "weights")
    steps.time(load, "load_head", "head")
    steps.time(memory, "keeper", "sessions and fingerprint")
    steps.time(turn.Turn, "__init__", "prompt and lookup")
    steps.time(turn.Turn, "_read_prompt", "prefill")
    steps.time(Decoder, "first", "first token")
    request = Request("m", args.folder, [{"role": "user", "content": PROMPT}], max_tokens=1)
    for event in engine.shared_engine().stream(request):
        if isinstance(event, Reasoning | Text):
            return steps.total()
    raise AssertionError("no token came")


def load_mlx_lm(args: argparse.Namespace) -> dict[str, float]:
    steps = Steps(args.started)
    steps.done("python and llm")
    preload()
    import mlx.core as mx
    import mlx_lm.models.qwen3_5  # noqa: F401  # load() would import it
    from mlx_lm import load, utils
    from mlx_lm.generate import generate_step

    steps.done("imports")
    steps.time(utils, "load_tokenizer", "tokenizer")
    steps.time(utils, "load_model", "weights")
    model, tokenizer = load(str(args.folder))[:2]
    steps.last = time.monotonic()
    messages = [{"role": "user", "content": PROMPT}]
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    prompt = tokenizer.encode(text, add_special_tokens=False)
    steps.done("prompt and lookup")
    next(generate_step(mx.array(prompt), model, max_tokens=1))
    steps.done("prefill")
    return steps.total()


def save_model(args: argparse.Namespace) -> None:
    """The widened model as mlx-lm converts it, with its head in a file of its own."""
    preload()
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from llm_mtplx.demo import MODEL_DIR

    from .contenders import build

    model = build("320MB")
    args.folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODEL_DIR / name, args.folder)
    shutil.copy(MODEL_DIR / "generation_config.json", args.folder)
    config = json.loads((MODEL_DIR / "config.json").read_text())
    # The demo's rope settings, under the names mlx-lm has read them into.
    wide = {name: value for name, value in vars(model.trunk.args).items() if value is not None}
    wide.pop("rope_scaling", None)
    config["text_config"] = {**config["text_config"], **wide, "mtp_num_hidden_layers": 1}
    config["text_config"].pop("layer_types", None)
    config["mtp_norm_encoding"] = "absolute"
    (args.folder / "config.json").write_text(json.dumps(config))
    trunk = dict(tree_flatten(model.trunk.model.parameters()))
    mx.save_safetensors(str(args.folder / "model.safetensors"), trunk)
    head = {f"mtp.{name}": value for name, value in tree_flatten(model.head.parameters())}
    mx.save_safetensors(str(args.folder / "mtp.safetensors"), head)


def compare_tokenizers(args: argparse.Namespace) -> dict[str, float]:
    """Median seconds to read a tokenizer as large as those of the models for daily use."""
    preload()
    from mlx_lm.utils import load_tokenizer

    from llm_mtplx.chat.tokenizer import ChatTokenizer

    folder = args.folder.parent / "tokenizer"
    save_tokenizer(folder)
    ways: dict[str, Callable[[Path], Any]] = {"llm-mtplx": ChatTokenizer, "mlx-lm": load_tokenizer}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, read in ways.items():
            began = time.perf_counter()
            read(folder)
            spent[name].append(time.perf_counter() - began)
    return {name: round(statistics.median(seconds), 2) for name, seconds in spent.items()}


def save_tokenizer(folder: Path) -> None:
    """The demo's with tokens and merges made up, as many as a large vocabulary has."""
    from llm_mtplx.demo import MODEL_DIR

    folder.mkdir()
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODEL_DIR / name, folder)
    tokenizer = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    known, chance = list(vocabulary), random.Random(0)
    size = len(vocabulary) + len(tokenizer["added_tokens"])
    while size < VOCABULARY:
        pair = chance.choice(known), chance.choice(known)
        if (merged := "".join(pair)) in vocabulary or len(merged) > 12:
            continue
        vocabulary[merged] = size
        known.append(merged)
        merges.append(pair)
        size += 1
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))


def compare_prefill(args: argparse.Namespace) -> dict[str, Any]:
    """Median tokens per second by prompt length."""
    preload()
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    from llm_mtplx.architectures.runtime import facts
    from llm_mtplx.engine.load import load
    from llm_mtplx.speculative.decoder import Decoder
    from llm_mtplx.speculative.distributions import Sampling

    model = load(args.folder, print)
    text = model.tokenizer.encode(PROMPT) * 1000

    def ours(head: Any, ids: list[int]) -> int:
        decoder = Decoder(model.trunk, head, Sampling())
        for _ in decoder.prefill(ids):
            pass
        return decoder.first()

    def theirs(ids: list[int]) -> int:
        return int(next(generate_step(mx.array(ids), model.trunk.model, max_tokens=1))[0])

    contenders: dict[str, Callable[[list[int]], int]] = {
        "mlx-lm": theirs,
        "llm-mtplx": lambda ids: ours(model.head, ids),
        "llm-mtplx without head": lambda ids: ours(None, ids),
    }
    rates: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        ids = text[:length]
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        for repeat in range(args.repeats + 1):
            for name, run in contenders.items():
                began = time.perf_counter()
                run(ids)
                if repeat:
                    spent[name].append(time.perf_counter() - began)
        rates[str(length)] = {n: round(length / statistics.median(s), 1) for n, s in spent.items()}
    told = facts()
    return {"tokens_per_s": rates, "facts": {"blas": told["blas"], "versions": told["versions"]}}


TASKS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "save": save_model,
    "llm-mtplx": load_ours,
    "mlx-lm": load_mlx_lm,
    "tokenizer": compare_tokenizers,
    "prefill": compare_prefill,
}


def show(report: dict[str, Any]) -> None:
    for contender, steps in report["load"].items():
        print(f"{contender}, ms:", steps)
    print(f"tokenizer of {VOCABULARY} tokens, s:", report["tokenizer_s"])
    for length, rates in report["prefill"]["tokens_per_s"].items():
        print(f"prefill of {length} tokens, tokens/s:", rates)


if __name__ == "__main__":
    main()
