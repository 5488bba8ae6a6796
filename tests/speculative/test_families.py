"""With experts, and with Qwen3-Next's layers, rounds and the way back are as exact."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.gated_delta import Tape
from llm_mtplx.engine.load import load
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..forms import save_raw
from .states import assert_equal, named_arrays
from .test_rounds import (
    LENGTH,
    PROMPT,
    ScriptedDecoder,
    Tiny,
    generate,
    never,
    plain_ids,
    prefilled,
    settled_arrays,
)

IDS = [3, 5, 7, 11, 13, 2, 40, 41]


@pytest.fixture(scope="module", params=["qwen3_5_moe", "qwen3_next"])
def model(request, tmp_path_factory) -> Tiny:
    folder: Path = tmp_path_factory.mktemp("families") / request.param
    loaded = load(save_raw(folder, request.param), print)
    assert loaded.head is not None
    return loaded.trunk, loaded.head


@pytest.fixture(scope="module")
def oracle(model: Tiny) -> list[int]:
    return PROMPT + plain_ids(model[0], PROMPT, LENGTH + 8)


@pytest.mark.parametrize("taped", [True, False])
def test_logits_equal_mlx_lm(model: Tiny, taped: bool) -> None:
    trunk = model[0]
    ours, theirs = trunk.make_cache(), trunk.make_cache()
    for ids in (IDS[:5], IDS[5:6], IDS[6:]):
        tokens = mx.array([ids])
        hidden = trunk.forward(tokens, ours, Tape() if taped else None)
        want = trunk.model(tokens, cache=theirs)
        assert np.array_equal(np.array(trunk.logits(hidden)), np.array(want))


@pytest.mark.parametrize(("depth", "wrong_at"), [(1, 0), (3, None), (3, 1), (5, 4), (5, None)])
def test_every_round_leaves_the_plain_state(
    model: Tiny, oracle: list[int], depth: int, wrong_at: int | None
) -> None:
    decoder = ScriptedDecoder(model, oracle, wrong_at)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        ids += decoder.round(depth, LENGTH - len(ids), never).tokens
        state = decoder.state
        assert_equal(settled_arrays(state, model), prefilled(model, oracle[: state.position]))
    assert PROMPT + ids == oracle[: len(PROMPT) + LENGTH]


@pytest.mark.parametrize("depth", [0, 1, 3, 5])
def test_the_real_head_and_plain_give_the_same_ids(
    model: Tiny, oracle: list[int], depth: int
) -> None:
    decoder = Decoder(*model, Sampling())
    assert PROMPT + generate(decoder, PROMPT, LENGTH, depth) == oracle[: len(PROMPT) + LENGTH]


@pytest.mark.parametrize("replay", [True, False])
def test_cut_back_to_every_row(model: Tiny, replay: bool, monkeypatch) -> None:
    monkeypatch.setattr(
        "llm_mtplx.architectures.gated_delta.recurrence_is_a_kernel", lambda dim: replay
    )
    trunk = model[0]
    for keep in range(1, 6):
        cut, straight = trunk.make_cache(), trunk.make_cache()
        tape = Tape()
        trunk.forward(mx.array([IDS[:5]]), cut, tape)
        trunk.cut(cut, tape, forwarded=5, keep=keep)
        trunk.forward(mx.array([IDS[:keep]]), straight)
        after_cut = trunk.forward(mx.array([[1, 2]]), cut)
        after_straight = trunk.forward(mx.array([[1, 2]]), straight)
        assert np.array_equal(np.array(after_cut), np.array(after_straight)), keep


def test_many_rows_at_once_leave_the_state_of_single_rows(model: Tiny) -> None:
    """From 64 routed rows on mlx-lm sorts them by expert."""
    ids = [int(i) for i in np.random.default_rng(2).integers(0, 2000, 70)]
    singly = Decoder(*model, Sampling())
    for token in ids:
        list(singly.prefill([token]))
    assert_equal(named_arrays(singly.state), prefilled(model, ids))
