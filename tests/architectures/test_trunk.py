"""Our walk over mlx-lm's modules is mlx-lm's forward, bit for bit."""

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.gated_delta import Tape
from llm_mtplx.architectures.trunk import Trunk

from ..tiny import random_model

IDS = [3, 5, 7, 11, 13, 2, 40, 41, 42]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("taped", [True, False])
def test_logits_equal_mlx_lm(tied: bool, taped: bool) -> None:
    trunk = Trunk(random_model(tie_word_embeddings=tied))
    ours, theirs = trunk.make_cache(), trunk.make_cache()
    for ids in (IDS[:5], IDS[5:6], IDS[6:]):
        tokens = mx.array([ids])
        hidden = trunk.forward(tokens, ours, Tape() if taped else None)
        want = trunk.model(tokens, cache=theirs)
        assert np.array_equal(np.array(trunk.logits(hidden)), np.array(want))


def test_rows_of_a_verify_equal_single_rows() -> None:
    trunk = Trunk(random_model())
    together, alone = trunk.make_cache(), trunk.make_cache()
    block = trunk.forward(mx.array([IDS]), together, Tape())
    for row, token in enumerate(IDS):
        single = trunk.forward(mx.array([[token]]), alone)
        assert np.array_equal(np.array(block[:, row : row + 1]), np.array(single)), row


@pytest.mark.parametrize("keep", range(1, 6))
@pytest.mark.parametrize("replay", [True, False])
def test_cut_by_kept_states_and_by_replay(keep: int, replay: bool, monkeypatch) -> None:
    """The fused kernel's way back (replay) is exercised here through the ops recurrence."""
    monkeypatch.setattr(
        "llm_mtplx.architectures.gated_delta.recurrence_is_a_kernel", lambda dim: replay
    )
    trunk = Trunk(random_model())
    cut, straight = trunk.make_cache(), trunk.make_cache()
    for cache in (cut, straight):
        trunk.forward(mx.array([[9, 8]]), cache)
    tape = Tape()
    trunk.forward(mx.array([IDS[:5]]), cut, tape)
    trunk.cut(cut, tape, forwarded=5, keep=keep)
    trunk.forward(mx.array([IDS[:keep]]), straight)
    after_cut = trunk.forward(mx.array([[1, 2, 3]]), cut)
    after_straight = trunk.forward(mx.array([[1, 2, 3]]), straight)
    assert np.array_equal(np.array(after_cut), np.array(after_straight))
