"""Record what transformers' own logits processors make of random logits.

Run in the training environment: ``uv run --group train python -m tests.golden.make_shaping``.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

OUT = Path(__file__).parent / "shaping.npz"
CASES, VOCABULARY, CONTEXT = 500, 48, 12


def main() -> None:
    rng = np.random.default_rng(20)
    logits = rng.normal(0, 3, (CASES, VOCABULARY)).astype(np.float32)
    context = rng.integers(0, VOCABULARY, (CASES, CONTEXT))
    settings = np.stack(
        [
            rng.choice([0.3, 0.6, 1.0, 1.3, 2.0], CASES),  # temperature
            rng.choice([0, 1, 2, 5, 20, 47], CASES),  # top_k
            rng.choice([0.05, 0.3, 0.8, 0.95, 1.0], CASES),  # top_p
            rng.choice([0.0, 0.02, 0.1, 0.5], CASES),  # min_p
            rng.choice([1.0, 0.8, 1.1, 1.5], CASES),  # repetition penalty
        ],
        axis=1,
    )
    probs = np.stack([shaped(*case) for case in zip(logits, context, settings, strict=True)])
    np.savez_compressed(OUT, logits=logits, context=context, settings=settings, probs=probs)


def shaped(logits: np.ndarray, context: np.ndarray, settings: np.ndarray) -> np.ndarray:
    temperature, top_k, top_p, min_p, repetition = settings.tolist()
    ids = torch.tensor(context[None])
    scores = torch.tensor(logits[None])
    scores = RepetitionPenaltyLogitsProcessor(repetition)(ids, scores)
    scores = TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k:
        scores = TopKLogitsWarper(int(top_k))(ids, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(ids, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(ids, scores)
    return torch.softmax(scores.double(), dim=-1)[0].numpy()


if __name__ == "__main__":
    main()
