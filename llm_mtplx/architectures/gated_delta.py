"""The GatedDeltaNet layer, run so that a verify can be cut back to any of its rows.

Attention KV is cut by moving an offset. Recurrent state cannot be cut, so a verify records what
each recurrent layer needs to return to an earlier row: the state after each row where the
recurrence is a loop of ops anyway (they exist in passing), and its inputs where it is one fused
kernel (the kept rows are then run again). The trunk is never forwarded twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn

from .chunked import MIN_ROWS, chunked_update
from .mlx_lm_compat import (
    ArraysCache,
    GatedDeltaNet,
    compute_g,
    gated_delta_step,
    gated_delta_update,
    log_decay,
    normalize_qk,
    project,
    recurrence_is_a_kernel,
)
from .pieces import Piece, join, split


@dataclass
class LayerRecord:
    """One recurrent layer's part of a verify of T rows."""

    layer: GatedDeltaNet
    cache: ArraysCache
    conv_input: mx.array  # [1, conv - 1 + T, C]
    states: list[mx.array] | None  # after each row: [1, Hv, Dv, Dk]
    inputs: tuple[mx.array, ...]  # q, k, v, a, b of all rows
    state_before: mx.array | None

    def cut(self, keep: int) -> None:
        """Leave the cache as if only the first ``keep`` >= 0 rows had been forwarded."""
        window = self.layer.conv_kernel_size - 1
        self.cache[0] = mx.contiguous(self.conv_input[:, keep : keep + window])
        if keep == 0:
            self.cache[1] = self.state_before
        elif self.states is not None:
            self.cache[1] = self.states[keep - 1]
        else:
            rows = (x[:, :keep] for x in self.inputs)
            _, self.cache[1] = gated_delta_update(
                *rows, self.layer.A_log, self.layer.dt_bias, self.state_before
            )


@dataclass
class Tape:
    """What one verify recorded, one entry a recurrent layer."""

    layers: list[LayerRecord] = field(default_factory=list)

    def cut(self, keep: int) -> None:
        for record in self.layers:
            record.cut(keep)

    def forget_states(self) -> None:
        """Keep the state before the rows alone; a cut runs the kept rows again."""
        for record in self.layers:
            record.states = None


def gated_delta_net(
    layer: GatedDeltaNet, x: mx.array, pieces: Sequence[Piece], caches: Sequence[ArraysCache]
) -> mx.array:
    """``x`` [1, sum of T_i, H] through one recurrent layer; each state moves on by its rows.

    ``chunked_from`` of a piece: the absolute position of its first row, where many rows may be
    summed chunk by chunk. A verify loops all the same: it needs the state after each row.
    """
    qkv, z, b, a = project(layer, x)
    outputs = [
        _recur(layer, *each)
        for each in zip(
            pieces, caches, split(qkv, pieces), split(b, pieces), split(a, pieces), strict=True
        )
    ]
    return layer.out_proj(layer.norm(join(outputs), z).reshape(1, x.shape[1], -1))


def _recur(
    layer: GatedDeltaNet,
    piece: Piece,
    cache: ArraysCache,
    qkv: mx.array,
    b: mx.array,
    a: mx.array,
) -> mx.array:
    """One piece: qkv [1, T, C], b and a [1, T, Hv] -> y [1, T, Hv, Dv]."""
    rows, tape = piece.rows, piece.tape
    window = layer.conv_kernel_size - 1
    before = cache[0]
    if before is None:
        before = mx.zeros((1, window, layer.conv_dim), dtype=qkv.dtype)
    conv_input = mx.concatenate([before, qkv], axis=1)
    conv_out = nn.silu(layer.conv1d(conv_input))

    q, k, v = mx.split(conv_out, [layer.key_dim, 2 * layer.key_dim], axis=-1)
    q = q.reshape(1, rows, layer.num_k_heads, layer.head_k_dim)
    k = k.reshape(1, rows, layer.num_k_heads, layer.head_k_dim)
    v = v.reshape(1, rows, layer.num_v_heads, layer.head_v_dim)
    q, k = normalize_qk(q, k, inv_scale=layer.head_k_dim**-0.5, eps=1e-6)

    inputs = (q, k, v, a, b)
    state_before = cache[1]
    states = None
    if tape is None and piece.chunked_from is not None and rows >= MIN_ROWS:
        y, state = chunked_update(
            q,
            k,
            v,
            log_decay(layer.A_log, a, layer.dt_bias),
            mx.sigmoid(b),
            _no_state(layer) if state_before is None else state_before,
            piece.chunked_from,
        )
    elif tape is None or rows == 1 or recurrence_is_a_kernel(layer.head_k_dim):
        y, state = gated_delta_update(*inputs, layer.A_log, layer.dt_bias, state_before)
    else:
        y, states = _row_by_row(layer, inputs, state_before)
        state = states[-1]

    cache[0] = mx.contiguous(conv_input[:, -window:])
    cache[1] = state
    if tape is not None:
        tape.layers.append(LayerRecord(layer, cache, conv_input, states, inputs, state_before))
    return y


def _row_by_row(
    layer: GatedDeltaNet, inputs: tuple[mx.array, ...], state: mx.array | None
) -> tuple[mx.array, list[mx.array]]:
    """The ops form of the recurrence with the state after each row kept."""
    q, k, v, a, b = inputs
    beta = mx.sigmoid(b)
    g = compute_g(layer.A_log, a, layer.dt_bias)
    repeats = layer.num_v_heads // layer.num_k_heads
    if repeats > 1:
        q = mx.repeat(q, repeats, axis=-2)
        k = mx.repeat(k, repeats, axis=-2)
    if state is None:
        state = _no_state(layer)
    outputs, states = [], []
    for t in range(q.shape[1]):
        y, state = gated_delta_step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], state)
        outputs.append(y)
        states.append(state)
    return mx.stack(outputs, axis=1), states


def _no_state(layer: GatedDeltaNet) -> mx.array:
    shape = (1, layer.num_v_heads, layer.head_v_dim, layer.head_k_dim)
    return mx.zeros(shape, dtype=mx.float32)
