"""The demo model in PyTorch: a Qwen3.5 trunk and its MTP head, for packed training rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.demo_model.delta import RESET, chunked_delta_rule, normalize, shifted_conv
from tools.demo_model.shape import Shape


class CentredNorm(nn.Module):
    """RMS norm whose stored gain is an offset from one."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + self.weight, self.eps)


class GatedNorm(nn.Module):
    """RMS norm with a plain gain, times silu of the gate."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps) * F.silu(gate.float())


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.5 / inputs**0.5)
    return layer


class GatedDeltaNet(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = 2 * shape.key_width + shape.value_width
        self.in_proj_qkv = linear(shape.hidden, width)
        self.in_proj_z = linear(shape.hidden, shape.value_width)
        self.in_proj_b = linear(shape.hidden, shape.linear_value_heads)
        self.in_proj_a = linear(shape.hidden, shape.linear_value_heads)
        self.conv1d = nn.Conv1d(width, width, shape.conv_kernel, groups=width, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(shape.linear_value_heads))
        # Half-lives from a few tokens to a few hundred: some heads remember, some look around.
        rates = torch.logspace(-2.5, 0, shape.linear_value_heads)
        self.A_log = nn.Parameter(rates.log())
        self.norm = GatedNorm(shape.linear_value_dim, shape.eps)
        self.out_proj = linear(shape.value_width, shape.hidden)

    def forward(self, x: Tensor, document: Tensor, starts: Tensor) -> Tensor:
        s = self.shape
        batch, length, _ = x.shape
        mixed = shifted_conv(self.in_proj_qkv(x), self.conv1d.weight, document)
        z = self.in_proj_z(x).view(batch, length, s.linear_value_heads, s.linear_value_dim)
        beta = self.in_proj_b(x).float().sigmoid()
        rate = F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        log_decay = (-self.A_log.exp() * rate).masked_fill(starts.unsqueeze(-1), RESET)
        q, k, v = mixed.float().split([s.key_width, s.key_width, s.value_width], -1)
        keys = (batch, length, s.linear_key_heads, s.linear_key_dim)
        q = normalize(q.view(keys)) * s.linear_key_dim**-0.5
        k = normalize(k.view(keys))
        v = v.view(batch, length, s.linear_value_heads, s.linear_value_dim)
        with torch.autocast("cpu", enabled=False):
            out = chunked_delta_rule(q, k, v, log_decay, beta)
        return self.out_proj(self.norm(out, z).reshape(batch, length, -1))


class GatedAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = linear(shape.hidden, 2 * shape.heads * shape.head_dim)
        self.k_proj = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.v_proj = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.o_proj = linear(shape.heads * shape.head_dim, shape.hidden)
        self.q_norm = CentredNorm(shape.head_dim, shape.eps)
        self.k_norm = CentredNorm(shape.head_dim, shape.eps)

    def rotate(self, x: Tensor, position: Tensor) -> Tensor:
        """Partial rotary embedding of x [B,T,H,D] at position [B,T]."""
        width = int(self.shape.head_dim * self.shape.rotary_factor)
        half = width // 2
        powers = torch.arange(half, device=x.device, dtype=torch.float32) / half
        angle = position[..., None, None].float() * self.shape.rope_theta**-powers
        cos, sin = angle.cos(), angle.sin()
        a, b, rest = x.split([half, half, x.shape[-1] - width], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def project(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query [B,H,T,D], gate [B,T,H*D], key and value [B,Hkv,T,D]."""
        s = self.shape
        batch, length, _ = x.shape
        both = self.q_proj(x).view(batch, length, s.heads, 2 * s.head_dim)
        query, gate = both.chunk(2, -1)
        key = self.k_proj(x).view(batch, length, s.kv_heads, s.head_dim)
        value = self.v_proj(x).view(batch, length, s.kv_heads, s.head_dim)
        query = self.rotate(self.q_norm(query), position).transpose(1, 2)
        key = self.rotate(self.k_norm(key), position).transpose(1, 2)
        return query, gate.reshape(batch, length, -1), key, value.transpose(1, 2).float()

    def finish(self, mixed: Tensor, gate: Tensor) -> Tensor:
        batch, _, length, _ = mixed.shape
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(mixed * gate.float().sigmoid())

    def forward(self, x: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        query, gate, key, value = self.project(x, position)
        repeat = self.shape.heads // self.shape.kv_heads
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.finish(mixed, gate)


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.intermediate)
        self.up_proj = linear(shape.hidden, shape.intermediate)
        self.down_proj = linear(shape.intermediate, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape, full: bool) -> None:
        super().__init__()
        self.input_layernorm = CentredNorm(shape.hidden, shape.eps)
        self.post_attention_layernorm = CentredNorm(shape.hidden, shape.eps)
        if full:
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDeltaNet(shape)
        self.mlp = Mlp(shape)
        self.full = full

    def feed(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.post_attention_layernorm(x))


class Head(nn.Module):
    """The MTP head: one full-attention layer over [embedding of x_{t+1}; hidden of t]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.pre_fc_norm_embedding = CentredNorm(shape.hidden, shape.eps)
        self.pre_fc_norm_hidden = CentredNorm(shape.hidden, shape.eps)
        self.fc = linear(2 * shape.hidden, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, full=True)])
        self.norm = CentredNorm(shape.hidden, shape.eps)

    def join(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        parts = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        return self.fc(torch.cat(parts, -1))

    def forward(
        self, embedded: list[Tensor], hidden: Tensor, position: Tensor, mask: Tensor
    ) -> list[Tensor]:
        """Hidden rows of depths 1, 2, ... as a decoder runs them.

        Depth d at column t stands in cache row t+d-1. It sees the trunk-fed rows up to t and
        the rows its own chain has written after them.
        """
        layer = self.layers[0]
        attention = layer.self_attn
        repeat = attention.shape.heads // attention.shape.kv_heads
        scale = attention.shape.head_dim**-0.5
        outputs: list[Tensor] = []
        rows: list[tuple[Tensor, Tensor]] = []
        for depth, tokens in enumerate(embedded):
            x = self.join(tokens, hidden)
            normed = layer.input_layernorm(x)
            query, gate, key, value = attention.project(normed, position + depth)
            key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
            rows.append((key, value))
            if depth == 0:
                mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            else:
                scores = query @ rows[0][0].transpose(-1, -2) * scale
                scores = scores.masked_fill(~mask, float("-inf"))
                own = [(query * k).sum(-1, keepdim=True) * scale for k, _ in rows[1:]]
                weights = torch.cat([scores, *own], -1).softmax(-1)
                length = scores.shape[-1]
                mixed = weights[..., :length] @ rows[0][1]
                for i, (_, v) in enumerate(rows[1:]):
                    mixed = mixed + weights[..., length + i, None] * v
            x = layer.feed(x + attention.finish(mixed, gate))
            hidden = self.norm(x)
            outputs.append(hidden)
        return outputs


class DemoModel(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList([Layer(shape, shape.is_full(i)) for i in range(shape.layers)])
        self.norm = CentredNorm(shape.hidden, shape.eps)
        self.mtp = Head(shape)

    def trunk(self, ids: Tensor, document: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        """Hidden rows after the final norm [B,T,H]."""
        x = self.embed_tokens(ids)
        starts = position == 0
        for layer in self.layers:
            normed = layer.input_layernorm(x)
            if layer.full:
                x = x + layer.self_attn(normed, position, mask)
            else:
                x = x + layer.linear_attn(normed, document, starts)
            x = layer.feed(x)
        return self.norm(x)

    def draft(
        self, ids: Tensor, hidden: Tensor, position: Tensor, mask: Tensor, depth: int
    ) -> list[Tensor]:
        """The head's hidden rows at depths 1..depth, fed with the true tokens."""
        embedded = [
            self.embed_tokens(torch.roll(ids, -(step + 1), dims=1)) for step in range(depth)
        ]
        return self.mtp(embedded, hidden, position, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embed_tokens.weight)


def document_mask(document: Tensor) -> Tensor:
    """[B,1,T,T], true where a row may look: same document, not later."""
    length = document.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=document.device).tril()
    return ((document[:, :, None] == document[:, None, :]) & causal).unsqueeze(1)
