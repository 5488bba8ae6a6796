"""`python -m tools.demo_model.build --out DIR`: tokenizer, data, training, export, evaluation."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tools.demo_model import tokenizer as demo_tokenizer
from tools.demo_model.conversations import Grammar
from tools.demo_model.export import export
from tools.demo_model.network import DemoModel
from tools.demo_model.packing import to_text
from tools.demo_model.shape import Shape
from tools.demo_model.train import SEED, Plan, Trainer


def build_tokenizer(conversations: int = 20_000) -> Tokenizer:
    grammar = Grammar(SEED + 2)
    return demo_tokenizer.train(to_text(grammar.draw()) for _ in range(conversations))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in `folder`, learned first if there is none."""
    path = folder / "tokenizer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        build_tokenizer().save(str(path))
    return Tokenizer.from_file(str(path))


def main() -> None:
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    parser.add_argument("--work", type=Path, help="checkpoints (default: OUT.work)")
    parser.add_argument("--minutes", type=float, default=plan.minutes, help="limit of stage one")
    parser.add_argument("--drill-minutes", type=float, default=plan.drill_minutes)
    parser.add_argument("--head-minutes", type=float, default=plan.head_minutes)
    parser.add_argument("--tokens", type=int, default=plan.tokens)
    parser.add_argument("--drill-tokens", type=int, default=plan.drill_tokens)
    parser.add_argument("--head-tokens", type=int, default=plan.head_tokens)
    parser.add_argument("--matrix-lr", type=float, default=plan.matrix_lr)
    parser.add_argument("--checkpoint", type=Path, help="export this instead of training")
    args = parser.parse_args()

    # More threads than idle cores make a step many times slower: they wait for each other.
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    work: Path = args.work or args.out.with_name(args.out.name + ".work")
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(work)
    model = DemoModel(Shape())
    if args.checkpoint:
        model.load_state_dict(torch.load(args.checkpoint, weights_only=True))
    else:
        plan = replace(
            plan,
            minutes=args.minutes,
            drill_minutes=args.drill_minutes,
            head_minutes=args.head_minutes,
            tokens=args.tokens,
            drill_tokens=args.drill_tokens,
            head_tokens=args.head_tokens,
            matrix_lr=args.matrix_lr,
        )
        Trainer(model, tokenizer, plan, work).train()
    export(model, tokenizer, args.out)

    from tools.demo_model.evaluate import evaluate

    print(json.dumps(evaluate(args.out), indent=2))


if __name__ == "__main__":
    main()
