"""Our shaping equals transformers' processors."""

from pathlib import Path

import mlx.core as mx
import numpy as np

from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from ..speculative.reference import device_probs


def test_shaping_equals_transformers() -> None:
    golden = np.load(Path(__file__).parent / "shaping.npz")
    cases = zip(
        golden["logits"], golden["context"], golden["settings"], golden["probs"], strict=True
    )
    shaped_cases = 0
    for logits, context, settings, want in cases:
        temperature, top_k, top_p, min_p, repetition = settings.tolist()
        penalties = Penalties(PenaltySettings(repetition), context.tolist())
        (got,) = device_probs(
            penalties.apply(mx.array(logits[None])),
            Sampling(temperature, int(top_k), top_p, min_p),
        )
        # transformers computes in float32.
        assert np.abs(got - want).max() < 1e-5
        assert np.array_equal(np.flatnonzero(got), np.flatnonzero(want))
        shaped_cases += np.count_nonzero(got) < len(logits)
    assert shaped_cases > 300
