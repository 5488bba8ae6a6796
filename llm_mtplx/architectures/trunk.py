"""The target model: mlx-lm's Qwen 3.5 or Qwen3-Next, dense or with experts, layer by layer."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .attention import decoder_layer
from .gated_delta import Tape
from .mlx_lm_compat import ArraysCache, GrowingKVCache, TrunkArgs
from .pieces import Piece, join, split

Cache = list[Any]  # one KVCache or ArraysCache a layer


class Trunk:
    """Forwards token ids and gives hidden rows (after the final norm) and logits."""

    def __init__(self, model: nn.Module) -> None:
        text = getattr(model, "language_model", model)
        self.model = model
        self.args: TrunkArgs = text.args
        self.max_rows: int | None = None  # that a cache ever takes room for
        self.reads_in_chunks = False  # the recurrence of many rows: see chunked.py
        self._text = text
        self._inner = text.model
        kinds = [layer.is_linear for layer in self._inner.layers]
        self._first_attention = kinds.index(False)
        self.shapes: list[tuple[Any, Any]] = []  # as `shapes_of` found them, by head

    @property
    def dtype(self) -> mx.Dtype:
        """Of the activations."""
        return self._inner.norm.weight.dtype

    @property
    def attention_gain(self) -> float:
        """The mean gain of the first attention's query norm."""
        gains = self._inner.layers[self._first_attention].self_attn.q_norm.weight
        return float(gains.astype(mx.float32).mean().item())

    @property
    def lm_head(self) -> nn.Module:
        """What gives the logits: the embedding where it serves for both."""
        return self._inner.embed_tokens if self.args.tie_word_embeddings else self._text.lm_head

    def make_cache(self) -> Cache:
        kinds = (layer.is_linear for layer in self._inner.layers)
        return [
            ArraysCache(size=2) if linear else GrowingKVCache(self.max_rows) for linear in kinds
        ]

    def embed(self, tokens: mx.array) -> mx.array:
        """Token ids [1, T] -> embeddings [1, T, H]."""
        return self._inner.embed_tokens(tokens)

    def forward(self, tokens: mx.array, cache: Cache, tape: Tape | None = None) -> mx.array:
        """Token ids [1, T] -> hidden rows [1, T, H]; the cache moves on by T rows."""
        return self.forward_all([tokens], [cache], [tape])[0]

    def forward_all(
        self, tokens: Sequence[mx.array], caches: Sequence[Cache], tapes: Sequence[Tape | None]
    ) -> list[mx.array]:
        """The same for several conversations in one forward: ids [1, T_i] -> rows [1, T_i, H]."""
        pieces = [
            Piece(ids.shape[1], tape, self._offset(cache) if self.reads_in_chunks else None)
            for ids, cache, tape in zip(tokens, caches, tapes, strict=True)
        ]
        hidden = self.embed(join(tokens))
        for index, layer in enumerate(self._inner.layers):
            hidden = decoder_layer(layer, hidden, pieces, [cache[index] for cache in caches])
        return split(self._inner.norm(hidden), pieces)

    def _offset(self, cache: Cache) -> int:
        return int(cache[self._first_attention].offset)

    def logits(self, hidden: mx.array) -> mx.array:
        """Hidden rows [1, T, H], the trunk's or the head's -> logits [1, T, V]."""
        tied = self.args.tie_word_embeddings
        return self.lm_head.as_linear(hidden) if tied else self.lm_head(hidden)

    def cut(self, cache: Cache, tape: Tape, forwarded: int, keep: int) -> None:
        """Keep the first ``keep`` >= 1 of the last ``forwarded`` rows."""
        if keep == forwarded:
            return
        tape.cut(keep)
        self.trim(cache, forwarded - keep)

    def trim(self, cache: Cache, rows: int) -> None:
        """Forget the last ``rows`` of the attention KV. Recurrent state is a tape's to cut."""
        for layer, layer_cache in zip(self._inner.layers, cache, strict=True):
            if not layer.is_linear:
                layer_cache.trim(rows)
