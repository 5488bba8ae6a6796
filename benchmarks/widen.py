"""The bundled model with the memory traffic of a larger one: same answers, same acceptance.

The residual stream is padded with zeros, heads and MLP neurons are added whose outputs are
multiplied by zero, and four whole layers that add nothing. Everything that is only read is
random, so that the memory is really read. It shows the engine's speed, not a larger model's
acceptance.
"""

from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.qwen3_5 import Model, ModelArgs

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.engine.load import LoadedModel

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    hidden: int
    intermediate: int
    layers: int
    heads: int  # attention query heads; half as many key/value heads
    value_heads: int  # of the recurrent layers; half as many key heads

    @property
    def config(self) -> dict[str, int]:
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads // 2,
            "linear_num_value_heads": self.value_heads,
            "linear_num_key_heads": self.value_heads // 2,
        }


SIZES = {
    "320MB": Size(768, 2048, 8, 12, 24),
    "540MB": Size(1024, 2432, 8, 16, 32),
}


def widen(model: LoadedModel, size: Size) -> LoadedModel:
    """The same function in ``size``, float32."""
    config = {**vars(model.trunk.args)}
    old = {
        name: np.array(value.astype(mx.float32))
        for name, value in tree_flatten(model.trunk.model.parameters())
    }
    trunk = Trunk(Model(ModelArgs("qwen3_5", {**config, **size.config})))
    trunk.model.eval()
    widener = _Widener(np.random.default_rng(0), config["hidden_size"], size.hidden, config)
    targets = dict(tree_flatten(trunk.model.parameters()))
    trunk.model.load_weights(
        [
            (name, mx.array(widener.fill(name, old.get(name), v.shape)))
            for name, v in targets.items()
        ]
    )
    assert model.head is not None
    head = MTPHead(trunk.args)
    head.eval()
    old_head = {
        name: np.array(value.astype(mx.float32))
        for name, value in tree_flatten(model.head.parameters())
    }
    head.load_weights(
        [
            (name, mx.array(widener.fill(name, old_head[name], value.shape)))
            for name, value in tree_flatten(head.parameters())
        ]
    )
    mx.eval(trunk.model.parameters(), head.parameters())
    return replace(model, trunk=trunk, head=head)


class _Widener:
    def __init__(
        self, rng: np.random.Generator, hidden: int, wide: int, config: dict[str, Any]
    ) -> None:
        self.rng = rng
        self.hidden = hidden
        self.wide = wide
        self.key_dim = config["linear_num_key_heads"] * config["linear_key_head_dim"]

    def fill(self, name: str, old: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
        """The wide form of one weight; ``old`` is None in the added layers."""
        leaf = ".".join(name.split(".")[-2:])
        silent = leaf in ("o_proj.weight", "out_proj.weight", "down_proj.weight")
        if old is None and silent:
            return np.zeros(shape, np.float32)
        out = self._noise(name, shape)
        if old is None:
            return out
        if silent or leaf == "embed_tokens.weight":
            out[:] = 0
            out[: old.shape[0], : old.shape[1]] = old
        elif leaf == "in_proj_qkv.weight" or leaf == "conv1d.weight":
            self._fill_qkv(out, old)
        elif leaf == "fc.weight":
            out[self.hidden :] = 0
            out[: self.hidden, : self.hidden] = old[:, : self.hidden]
            out[: self.hidden, self.wide : self.wide + self.hidden] = old[:, self.hidden :]
        elif old.ndim == 1 and shape == (self.wide,):
            # An RMS over zeros too is smaller by this factor.
            out[:] = 1.0
            out[: self.hidden] = old * np.sqrt(self.hidden / self.wide)
        else:
            out[tuple(slice(0, n) for n in old.shape)] = old
        return out

    def _fill_qkv(self, out: np.ndarray, old: np.ndarray) -> None:
        """Rows are q, k, v one after the other; old heads come first in each."""
        # The value rows are twice the key rows, old and new.
        wide_key = out.shape[0] // 4
        parts = [(0, 0, self.key_dim), (wide_key, self.key_dim, self.key_dim)]
        parts.append((2 * wide_key, 2 * self.key_dim, 2 * self.key_dim))
        for to, start, rows in parts:
            block = old[start : start + rows]
            out[to : to + rows, : block.shape[1]] = block

    def _noise(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith("norm.weight") or len(shape) == 1:
            return np.ones(shape, np.float32)
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return self.rng.normal(0, scale, shape).astype(np.float32)
