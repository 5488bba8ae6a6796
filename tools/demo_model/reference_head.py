"""The MTP head over a whole sequence in plain MLX, to measure what its drafts are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx


class ReferenceHead:
    """Slow and simple: every depth for every position at once, float32."""

    def __init__(self, folder: Path, trunk: Any) -> None:
        weights: dict[str, mx.array] = mx.load(str(folder / "model.safetensors"))  # type: ignore[assignment]
        self.w = {
            name.removeprefix("mtp."): value.astype(mx.float32)
            for name, value in weights.items()
            if name.startswith("mtp.")
        }
        config = json.loads((folder / "config.json").read_text())["text_config"]
        self.eps: float = config["rms_norm_eps"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config["num_key_value_heads"]
        self.head_dim: int = config["head_dim"]
        rope = config["rope_parameters"]
        self.rotary = int(self.head_dim * rope["partial_rotary_factor"])
        self.theta: float = rope["rope_theta"]
        self.trunk = trunk
        self.embedding = trunk.model.embed_tokens

    def _norm(self, x: mx.array, name: str) -> mx.array:
        return mx.fast.rms_norm(x, 1.0 + self.w[f"{name}.weight"], self.eps)

    def _linear(self, x: mx.array, name: str) -> mx.array:
        return x @ self.w[f"{name}.weight"].T

    def _split(self, x: mx.array, heads: int) -> mx.array:
        return x.reshape(1, x.shape[1], heads, -1).transpose(0, 2, 1, 3)

    def _rotate(self, x: mx.array, offset: int) -> mx.array:
        return mx.fast.rope(
            x, self.rotary, traditional=False, base=self.theta, scale=1.0, offset=offset
        )

    def _feed(self, x: mx.array, mixed: mx.array, gate: mx.array) -> mx.array:
        layer = "layers.0"
        mixed = mixed.transpose(0, 2, 1, 3).reshape(1, x.shape[1], -1) * mx.sigmoid(gate)
        x = x + self._linear(mixed, f"{layer}.self_attn.o_proj")
        y = self._norm(x, f"{layer}.post_attention_layernorm")
        up = self._linear(y, f"{layer}.mlp.up_proj")
        gated = self._linear(y, f"{layer}.mlp.gate_proj")
        return x + self._linear(gated * mx.sigmoid(gated) * up, f"{layer}.mlp.down_proj")

    def drafts(self, ids: list[int], depth: int) -> list[list[int]]:
        """Greedy drafts: [d][t] is the guess for token t+2+d, made after the right t+1 .. t+1+d."""
        tokens = mx.array([ids])
        hidden = self.trunk.model(tokens).astype(mx.float32)
        embedded = self.embedding(tokens).astype(mx.float32)
        length = len(ids)
        repeat = self.heads // self.kv_heads
        allowed = mx.tril(mx.ones((length, length), dtype=mx.bool_))
        attention = "layers.0.self_attn"
        rows: list[tuple[mx.array, mx.array]] = []
        out = []
        for step in range(depth):
            shifted = mx.concatenate(
                [embedded[:, step + 1 :], mx.zeros_like(embedded[:, : step + 1])], axis=1
            )
            parts = [
                self._norm(shifted, "pre_fc_norm_embedding"),
                self._norm(hidden, "pre_fc_norm_hidden"),
            ]
            x = self._linear(mx.concatenate(parts, axis=-1), "fc")
            y = self._norm(x, "layers.0.input_layernorm")
            both = self._linear(y, f"{attention}.q_proj").reshape(1, length, self.heads, -1)
            query, gate = mx.split(both, 2, axis=-1)
            gate = gate.reshape(1, length, -1)
            query = self._norm(query, f"{attention}.q_norm").transpose(0, 2, 1, 3)
            key = self._split(self._linear(y, f"{attention}.k_proj"), self.kv_heads)
            key = self._norm(key, f"{attention}.k_norm")
            value = self._split(self._linear(y, f"{attention}.v_proj"), self.kv_heads)
            query, key = self._rotate(query, step), self._rotate(key, step)
            rows.append((mx.repeat(key, repeat, axis=1), mx.repeat(value, repeat, axis=1)))
            scale = self.head_dim**-0.5
            scores = (query @ rows[0][0].transpose(0, 1, 3, 2)) * scale
            scores = mx.where(allowed, scores, -mx.inf)
            own = [(query * k).sum(-1, keepdims=True) * scale for k, _ in rows[1:]]
            shares = mx.softmax(mx.concatenate([scores, *own], axis=-1), axis=-1)
            mixed = shares[..., :length] @ rows[0][1]
            for i, (_, v) in enumerate(rows[1:]):
                mixed = mixed + shares[..., length + i : length + i + 1] * v
            hidden = self._norm(self._feed(x, mixed, gate), "norm")
            guess = mx.argmax(self.embedding.as_linear(hidden.astype(mx.float32)), axis=-1)
            out.append([int(token) for token in guess[0].tolist()])  # type: ignore[arg-type, union-attr]
        return out
