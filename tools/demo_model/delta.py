"""The gated delta rule, in chunks, for training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

RESET = -40.0  # log decay that forgets the state, yet keeps float32 sums of decays accurate


def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, chunk: int = 32
) -> Tensor:
    """q, k [B,T,Hk,Dk], v [B,T,Hv,Dv], log_decay and beta [B,T,Hv] -> [B,T,Hv,Dv].

    q and k are already normalized; T is a multiple of `chunk`.
    """
    batch, length, key_heads, key_dim = k.shape
    heads, value_dim = v.shape[2:]
    n = length // chunk
    repeat = heads // key_heads

    def split(x: Tensor) -> Tensor:
        return x.reshape(batch, n, chunk, x.shape[2], -1).permute(1, 0, 3, 2, 4)

    q, k, v = split(q), split(k), split(v)
    beta = split(beta.unsqueeze(-1))
    total = split(log_decay.unsqueeze(-1)).cumsum(-2)
    gap = total - total.transpose(-1, -2)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    decay = gap.masked_fill(~lower, float("-inf")).exp()

    key_products = (k @ k.transpose(-1, -2)).repeat_interleave(repeat, 2)
    query_products = (q @ k.transpose(-1, -2)).repeat_interleave(repeat, 2)
    q, k = q.repeat_interleave(repeat, 2), k.repeat_interleave(repeat, 2)

    power = -(beta * key_products * decay).tril(-1)
    inverse = power + torch.eye(chunk, device=q.device, dtype=q.dtype)
    steps = 2
    while steps < chunk:
        power = power @ power
        inverse = inverse + inverse @ power
        steps *= 2

    from_start = total.exp()
    mixed = inverse @ torch.cat([v * beta, k * (beta * from_start)], -1)
    values, erase = mixed.split([value_dim, key_dim], -1)
    within = query_products * decay
    query = q * from_start
    last = total[..., -1:, :]
    write = (k * (last - total).exp()).transpose(-1, -2)
    keep = last.exp()

    state = torch.zeros(batch, heads, key_dim, value_dim, dtype=q.dtype, device=q.device)
    outputs = []
    reads = torch.cat([erase, query], -2)
    for i in range(n):
        read = reads[i] @ state
        new = values[i] - read[..., :chunk, :]
        outputs.append(read[..., chunk:, :] + within[i] @ new)
        state = state * keep[i] + write[i] @ new
    out = torch.stack(outputs, 1)
    return out.permute(0, 1, 3, 2, 4).reshape(batch, length, heads, value_dim)


def normalize(x: Tensor) -> Tensor:
    """x / sqrt(sum(x^2) + 1e-6) over the last axis."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def shifted_conv(x: Tensor, weight: Tensor, document: Tensor) -> Tensor:
    """Causal depthwise convolution [B,T,C] that never looks into another document."""
    taps = weight.shape[-1]
    out = x * weight[:, 0, taps - 1]
    for back in range(1, taps):
        same = (document[:, back:] == document[:, :-back]).unsqueeze(-1)
        past = F.pad(x[:, :-back] * same, (0, 0, back, 0))
        out = out + past * weight[:, 0, taps - 1 - back]
    return F.silu(out)
