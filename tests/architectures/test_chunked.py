"""A prompt read chunk by chunk is a prompt read row by row."""

import itertools
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.gated_delta import compute_g

from llm_mtplx.architectures import half_precision
from llm_mtplx.architectures.chunked import CHUNK, MIN_ROWS, RULE, chunked_update, pays
from llm_mtplx.architectures.gated_delta import Tape
from llm_mtplx.architectures.half_precision import widen_linears
from llm_mtplx.architectures.mlx_lm_compat import ArraysCache, build_model, log_decay
from llm_mtplx.architectures.trunk import Trunk

from .. import raw
from ..tiny import random_model

KEY, VALUE = 8, 6  # sizes of a key and of a value head


def inputs(rng: np.random.Generator, rows: int, heads: tuple[int, int]) -> dict[str, np.ndarray]:
    """Rows as a layer makes them: keys of length one, decays of any strength."""
    keys, values = heads
    k = rng.normal(size=(1, rows, keys, KEY))
    return {
        "q": rng.normal(size=(1, rows, keys, KEY)) * KEY**-0.5,
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": rng.normal(size=(1, rows, values, VALUE)),
        "log_g": -np.exp(rng.uniform(-9, 6, size=(1, rows, values))),
        "beta": rng.uniform(0, 1, size=(1, rows, values)),
        "state": rng.normal(size=(1, values, VALUE, KEY)),
    }


def one_row_after_another(given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence itself, in float64."""
    q, k, v, log_g, beta, state = given.values()
    repeats = v.shape[2] // k.shape[2]
    q, k = np.repeat(q, repeats, axis=2)[0], np.repeat(k, repeats, axis=2)[0]
    state, outputs = state[0].copy(), []
    for t in range(len(q)):
        state *= np.exp(log_g[0, t])[:, None, None]
        delta = beta[0, t][:, None] * (v[0, t] - np.einsum("hvk,hk->hv", state, k[t]))
        state += delta[:, :, None] * k[t][:, None, :]
        outputs.append(np.einsum("hvk,hk->hv", state, q[t]))
    return np.stack(outputs)[None], state[None]


def in_chunks(given: dict[str, np.ndarray], start: int) -> tuple[np.ndarray, np.ndarray]:
    arrays = {name: mx.array(value.astype(np.float32)) for name, value in given.items()}
    y, state = chunked_update(*arrays.values(), start)
    return np.array(y), np.array(state)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 3 * CHUNK + 2),
    start=st.integers(0, 3 * CHUNK),
    heads=st.sampled_from([(1, 1), (2, 2), (2, 6)]),
)
def test_it_is_the_recurrence(seed: int, rows: int, start: int, heads: tuple[int, int]) -> None:
    given = inputs(np.random.default_rng(seed), rows, heads)
    for got, want in zip(in_chunks(given, start), one_row_after_another(given), strict=True):
        assert got.shape == want.shape
        assert relative(got, want) < 1e-5


def test_a_chunk_boundary_is_where_no_sum_crosses() -> None:
    """Rows read in two forwards that meet at a multiple of CHUNK have the bits of one forward."""
    given = inputs(np.random.default_rng(0), 3 * CHUNK, (2, 4))
    start = CHUNK - 5  # so that the boundary is at row 5
    whole_y, whole_state = in_chunks(given, start)
    first = {n: x if n == "state" else x[:, :5] for n, x in given.items()}
    first_y, state = in_chunks(first, start)
    rest = {n: state if n == "state" else x[:, 5:] for n, x in given.items()}
    rest_y, last = in_chunks(rest, start + 5)
    assert np.array_equal(np.concatenate([first_y, rest_y], axis=1), whole_y)
    assert np.array_equal(last, whole_state)


def test_the_log_of_the_decay_is_mlx_lms_decay() -> None:
    a_log, a, dt = (mx.random.normal(shape) for shape in ((4,), (1, 9, 4), (4,)))
    assert np.array_equal(mx.exp(log_decay(a_log, a, dt)), compute_g(a_log, a, dt))
    # Where the decay itself is 0 in float32 its logarithm still is a number.
    strong = log_decay(mx.full((1,), 9.0), mx.full((1, 1, 1), 50.0), mx.zeros((1,)))
    assert compute_g(mx.full((1,), 9.0), mx.full((1, 1, 1), 50.0), mx.zeros((1,))).item() == 0
    assert np.isfinite(np.array(strong)).all()


def families() -> dict[str, nn.Module]:
    found = {"dense": random_model()}
    for name in ("qwen3_5_moe", "qwen3_next"):
        mx.random.seed(1)
        found[name] = build_model(raw.config(name))
        found[name].eval()
        mx.eval(found[name].parameters())
    return found


def forwarded(trunk: Trunk, pieces: list[list[int]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Hidden rows of all pieces, and every array of the state after them."""
    cache = trunk.make_cache()
    hidden = mx.concatenate([trunk.forward(mx.array([ids]), cache) for ids in pieces], axis=1)
    arrays: list[Any] = []
    for layer in cache:
        arrays += layer.cache if isinstance(layer, ArraysCache) else layer.keys_and_values()
    mx.eval(hidden, arrays)
    return np.array(hidden.astype(mx.float32)), [np.array(a.astype(mx.float32)) for a in arrays]


def differences(got: tuple[Any, Any], want: tuple[Any, Any]) -> float:
    pairs = [(got[0], want[0]), *zip(got[1], want[1], strict=True)]
    return max(relative(one, other) for one, other in pairs)


def ids_of(trunk: Trunk, length: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(3).integers(0, trunk.args.vocab_size, length)]


@pytest.mark.parametrize("family", ["dense", "qwen3_5_moe", "qwen3_next"])
def test_hidden_rows_and_state_are_those_of_the_loop(family: str) -> None:
    trunk = Trunk(families()[family])
    ids = ids_of(trunk, 75)
    want = forwarded(trunk, [ids])
    trunk.reads_in_chunks = True
    got = forwarded(trunk, [ids])
    assert not np.array_equal(got[0], want[0])  # it was read otherwise
    assert differences(got, want) < 1e-5


def cut_at(ids: list[int], positions: list[int]) -> list[list[int]]:
    """Pieces of at most 512 rows, as prefill forwards them, that end at ``positions``."""
    borders = sorted({*positions, *range(0, len(ids), 512), len(ids)})
    return [ids[a:b] for a, b in itertools.pairwise(borders)]


def test_every_position_a_prompt_is_kept_at() -> None:
    """Restored = recomputed: the rows that follow a kept position, wherever that is."""
    trunk = Trunk(random_model(num_hidden_layers=2))
    trunk.reads_in_chunks = True
    ids = ids_of(trunk, 3_000)
    whole = forwarded(trunk, cut_at(ids, []))
    # As the end of a system prompt, rungs of the ladder, and an answer header fall.
    kept = [1, 7, 48, 256, 301, 1_024, 2_047, 2_991, 2_999]
    assert differences(forwarded(trunk, cut_at(ids, kept)), whole) < 1e-5
    trunk.reads_in_chunks = False
    assert differences(forwarded(trunk, cut_at(ids, [])), whole) < 1e-5


def test_decoding_goes_on_the_same() -> None:
    """Greedy continuations, read by chunks and by rows, each from 50 prompts."""
    trunk = Trunk(random_model())
    rng = np.random.default_rng(5)
    for _ in range(50):
        prompt = [int(i) for i in rng.integers(0, trunk.args.vocab_size, rng.integers(8, 60))]
        lines = []
        for trunk.reads_in_chunks in (False, True):
            cache, ids = trunk.make_cache(), list(prompt)
            hidden = trunk.forward(mx.array([ids]), cache)[:, -1:]
            for _ in range(8):
                logits = np.array(trunk.logits(hidden)[0, 0])
                best = np.sort(logits)[-2:]
                ids.append(int(logits.argmax()))
                hidden = trunk.forward(mx.array([ids[-1:]]), cache)
            lines.append((ids, float(best[1] - best[0])))
        (by_rows, gap), (by_chunks, _) = lines
        assert by_chunks == by_rows or gap < 1e-3, (prompt, gap)


def test_verifies_and_few_rows_loop() -> None:
    """A verify keeps the state after each row, and decoding the bits it always had."""
    trunk = Trunk(random_model())
    ids = ids_of(trunk, 40)

    def verified(chunks: bool) -> np.ndarray:
        trunk.reads_in_chunks = chunks
        cache = trunk.make_cache()
        few = trunk.forward(mx.array([ids[: MIN_ROWS - 1]]), cache)
        many = trunk.forward(mx.array([ids]), cache, Tape())
        return np.array(mx.concatenate([few, many], axis=1))

    assert np.array_equal(verified(True), verified(False))


def test_where_it_is_used() -> None:
    """Metal has a kernel; with the wheel's own BLAS the loop's bits are promised."""
    assert not pays("metal", own_blas=False)
    assert not pays("cpu", own_blas=True)
    assert pays("cpu", own_blas=False)
    assert pays("cuda", own_blas=True)
    assert RULE["rows"] == CHUNK and RULE["from"] == MIN_ROWS


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_widened_layers_round_once_as_mlx_does(dtype: mx.Dtype, bias: bool) -> None:
    layer = nn.Linear(64, 48, bias=bias)
    layer.set_dtype(dtype)
    model = nn.Sequential(layer)
    x = mx.random.normal((1, half_precision.MIN_ROWS, 64)).astype(dtype)
    own = layer(x)
    widen_linears(model)
    widened = layer(x)
    assert widened.dtype == dtype
    exact = x.astype(mx.float32) @ layer.weight.astype(mx.float32).T
    exact = exact + layer.bias.astype(mx.float32) if bias else exact

    def error(y: mx.array) -> float:
        return relative(np.array(y.astype(mx.float32)), np.array(exact))

    assert error(widened) <= error(own) < 1e-2
    few = x[:, : half_precision.MIN_ROWS - 1]
    assert np.array_equal(layer(few).astype(mx.float32), own[:, :-1].astype(mx.float32))


def test_quantized_layers_keep_their_kernels() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=32, bits=4, class_predicate=lambda path, m: path.endswith("0"))
    widen_linears(model)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == ["QuantizedLinear", "WidenedLinear"]
