"""Several conversations in one forward have the numbers that each has alone, bit for bit."""

import random

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from llm_mtplx.architectures.gated_delta import Tape
from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.pieces import Piece, join, split
from llm_mtplx.architectures.trunk import Cache, Trunk
from llm_mtplx.engine.load import load

from ..forms import save_raw
from ..tiny import random_trunk_and_head


def arrays(cache: Cache) -> list[mx.array]:
    found: list[mx.array] = []
    for layer in cache:
        found += layer.cache if hasattr(layer, "cache") else layer.keys_and_values()
    return found


@pytest.fixture(params=["float32", "bfloat16", "4 bits", "qwen3_5_moe", "qwen3_next"])
def model(request, tmp_path) -> tuple[Trunk, MTPHead]:
    if request.param in ("qwen3_5_moe", "qwen3_next"):
        loaded = load(save_raw(tmp_path / "model", request.param), lambda done, total: None)
        assert loaded.head is not None
        return loaded.trunk, loaded.head
    trunk, head = random_trunk_and_head()
    if request.param == "bfloat16":
        trunk.model.set_dtype(mx.bfloat16)
        head.set_dtype(mx.bfloat16)
    if request.param == "4 bits":
        for each in (trunk.model, head):
            nn.quantize(each, group_size=32, bits=4)
    return trunk, head


def equal(got: list[mx.array], want: list[mx.array]) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        assert np.array_equal(np.array(g.astype(mx.float32)), np.array(w.astype(mx.float32)))


@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_as_alone(model: tuple[Trunk, MTPHead], seed: int) -> None:
    """Of any number of rows, taped or not, and cut back to any of them."""
    trunk, head = model
    rng = random.Random(seed)
    together = [trunk.make_cache() for _ in range(4)]
    alone = [trunk.make_cache() for _ in range(4)]
    heads = [[head.make_cache() for _ in range(4)] for _ in range(2)]
    for turn in range(4):
        here = rng.sample(range(4), rng.randint(1, 4))  # some join, some leave
        counts = [rng.choice((1, 1, 2, 4, 9)) for _ in here]
        if turn == 1:
            counts = [3] * len(here)
        ids = [mx.array([[rng.randrange(60) for _ in range(n)]]) for n in counts]
        taped = [rng.random() < 0.5 for _ in here]
        tapes = [[Tape() if tape else None for tape in taped] for _ in range(2)]
        packed = trunk.forward_all(ids, [together[i] for i in here], tapes[0])
        single = [
            trunk.forward(tokens, alone[i], tape)
            for tokens, i, tape in zip(ids, here, tapes[1], strict=True)
        ]
        equal(packed, single)
        pieces = [Piece(n) for n in counts]
        drafts = head.forward_all(
            join(packed), trunk.embed(join(ids)), pieces, [heads[0][i] for i in here]
        )
        equal(
            split(drafts, pieces),
            [
                head(rows, trunk.embed(tokens), heads[1][i])
                for rows, tokens, i in zip(single, ids, here, strict=True)
            ],
        )
        for at, (i, n) in enumerate(zip(here, counts, strict=True)):
            if taped[at]:
                keep = rng.randint(1, n)
                for cache, tape in ((together[i], tapes[0][at]), (alone[i], tapes[1][at])):
                    assert tape is not None
                    trunk.cut(cache, tape, forwarded=n, keep=keep)
            equal(arrays(together[i]), arrays(alone[i]))
            equal(*([heads[k][i].keys, heads[k][i].values] for k in range(2)))
