"""The gated delta rule over many rows at once: a chunk's matmuls instead of a loop over rows.

A head's state S [Dv, Dk] follows, with decay g_t, step size beta_t and row t's q, k, v:

    delta_t = beta_t (v_t - g_t S_{t-1} k_t)        S_t = g_t S_{t-1} + delta_t k_t^T
    y_t     = S_t q_t

Within a chunk of C rows that begins at state S, with G_t = g_1 ... g_t, this is the WY form (Yang
et al. 2024, "Gated Delta Networks"):

    (I + M) delta = beta (v - G (K S^T)),           M_ti = beta_t (G_t / G_i) (k_t . k_i), i < t
    y   = G (Q S^T) + A delta,                      A_ti = (G_t / G_i) (q_t . k_i), i <= t
    S'  = G_C S + sum_i (G_C / G_i) delta_i k_i^T

M is strictly lower triangular, so (I + M)^-1 = (I - M)(I + M^2)(I + M^4)... ends exactly. What does
not depend on S is computed for all chunks together; a short loop over chunks carries S.

Chunks begin at multiples of C of the *absolute* position, wherever a forward begins, so that the
same rows are mostly summed in the same order whatever was restored before them.
"""

from typing import Any

import mlx.core as mx

from .runtime import Backend

CHUNK = 16  # rows; measured fastest of 16, 32 and 64, and the closest to the loop
MIN_ROWS = 8  # a forward of fewer rows loops over them, which is faster there


# What of this shapes the numbers of a state: part of its fingerprint.
RULE: dict[str, Any] = {"kind": "wy", "rows": CHUNK, "from": MIN_ROWS, "at": "absolute positions"}


def pays(backend: Backend, own_blas: bool) -> bool:
    """Whether chunks are faster than what mlx-lm runs. Metal has a kernel for all rows. The mlx
    wheel's own BLAS (``own_blas``) multiplies so slowly that the loop is as fast, and there a state
    is promised to be that of any other way of reading, bit for bit."""
    return backend == "cuda" or (backend == "cpu" and not own_blas)


def chunked_update(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    log_g: mx.array,
    beta: mx.array,
    state: mx.array,
    start: int,
) -> tuple[mx.array, mx.array]:
    """All rows of one forward.

    ``q``, ``k`` [1, T, Hk, Dk]; ``v`` [1, T, Hv, Dv]; ``log_g``, ``beta`` [1, T, Hv]; ``state``
    [1, Hv, Dv, Dk] float32; ``start``: the absolute position of row 0. Returns y [1, T, Hv, Dv] in
    the dtype of ``q``, and the state after the last row, float32. Everything between is float32:
    as in the loop, bfloat16 is rounded to at y alone.
    """
    _, rows, key_heads, key_size = q.shape
    value_heads, value_size = v.shape[2:]
    assert k.shape == q.shape and v.shape[1] == rows and value_heads % key_heads == 0
    assert log_g.shape == beta.shape == (1, rows, value_heads)
    assert state.shape == (1, value_heads, value_size, key_size)
    dtype = q.dtype
    before = start % CHUNK
    after = -(before + rows) % CHUNK
    chunks = (before + rows + after) // CHUNK

    def split(x: mx.array) -> mx.array:
        """[1, T, H, ...] -> [chunks, H, C, ...]. A row of zeros changes nothing: it decays by
        exp(0) and steps by beta = 0."""
        x = x[0].astype(mx.float32)
        x = mx.pad(x, [(before, after)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(chunks, CHUNK, *x.shape[1:]).swapaxes(1, 2)

    q, k, v = split(q), split(k), split(v)
    log_g, beta = split(log_g), split(beta)[..., None]  # [chunks, Hv, C], [chunks, Hv, C, 1]
    # log G_t / G_i, summed from row i + 1 to row t: as a difference of two long sums it would lose
    # the digits of weak decays that follow a strong one.
    strictly = mx.tri(CHUNK, k=-1)
    between = mx.cumsum(log_g[..., None] * strictly, axis=-2)
    lower = mx.tri(CHUNK, dtype=mx.bool_)
    ratio = mx.exp(mx.where(lower, between, -mx.inf))  # [chunks, Hv, C, C], 0 above the diagonal
    repeats = value_heads // key_heads
    kt = k.swapaxes(-1, -2)
    kk, qk = _repeat(k @ kt, repeats), _repeat(q @ kt, repeats)
    q, k = _repeat(q, repeats), _repeat(k, repeats)

    inverse = _inverse(beta * (ratio * strictly) * kk)
    decayed = mx.exp(mx.cumsum(log_g, axis=-1))[..., None]  # G, [chunks, Hv, C, 1]
    values = inverse @ (beta * v)
    keys = inverse @ ((beta * decayed) * k)
    reads = decayed * q
    mixes = ratio * qk
    # G_C / G_t, the last row's ratios
    writes = (ratio[..., -1, :, None] * k).swapaxes(-1, -2)  # [chunks, Hv, Dk, C]
    last = decayed[..., -1:, :]  # [chunks, Hv, 1, 1]

    carried = state[0].swapaxes(-1, -2)  # S^T, [Hv, Dk, Dv]
    outputs = []
    for n in range(chunks):
        delta = values[n] - keys[n] @ carried
        outputs.append(reads[n] @ carried + mixes[n] @ delta)
        carried = last[n] * carried + writes[n] @ delta
    y = mx.stack(outputs).swapaxes(1, 2).reshape(1, -1, value_heads, value_size)
    return y[:, before : before + rows].astype(dtype), carried.swapaxes(-1, -2)[None]


def _repeat(x: mx.array, repeats: int) -> mx.array:
    """Of [chunks, Hk, ...], each key head for its value heads."""
    return mx.repeat(x, repeats, axis=1) if repeats > 1 else x


def _inverse(m: mx.array) -> mx.array:
    """(I + m)^-1 of strictly lower triangular ``m`` [..., C, C]."""
    identity = mx.eye(CHUNK)
    inverse, power, reach = identity - m, m, 2
    while reach < CHUNK:
        power = power @ power
        inverse = inverse @ (identity + power)
        reach *= 2
    return inverse
