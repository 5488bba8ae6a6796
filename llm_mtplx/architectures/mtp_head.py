"""The MTP head: one full-attention layer that guesses the token after the next.

For the trunk's hidden row h_t (after its final norm) and the next token x_{t+1}:

    u = fc([norm_e(embed(x_{t+1})) ; norm_h(h_t)])      embedding first
    s = norm(layer(u))                                  logits are lm_head(s)

and s stands in for h_{t+1} when the head goes on from its own guess. This is the order of vLLM's
``Qwen3_5MultiTokenPredictor``. Embedding and lm_head are the trunk's, or lm_head a copy of it in
fewer bits; where the trunk has experts, the layer has them too.
"""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from .attention import decoder_layer
from .mlx_lm_compat import (
    GrowingKVCache,
    KVCache,
    TrunkArgs,
    full_attention_layer,
)
from .pieces import Piece
from .trunk import Trunk


class MTPHead(nn.Module):
    def __init__(self, args: TrunkArgs) -> None:
        super().__init__()
        size, eps = args.hidden_size, args.rms_norm_eps
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.layers = [full_attention_layer(args)]
        self.norm = nn.RMSNorm(size, eps=eps)
        self.lm_head: nn.Module | None = None

    def make_cache(self, max_rows: int | None = None) -> KVCache:
        return GrowingKVCache(max_rows)

    def __call__(self, hidden: mx.array, embeddings: mx.array, cache: KVCache) -> mx.array:
        """Rows (h_t, embed(x_{t+1})), each [1, T, H] -> [1, T, H]; T rows join the history."""
        return self.forward_all(hidden, embeddings, [Piece(hidden.shape[1])], [cache])

    def forward_all(
        self,
        hidden: mx.array,
        embeddings: mx.array,
        pieces: Sequence[Piece],
        caches: Sequence[KVCache],
    ) -> mx.array:
        """The same for several conversations: both [1, sum of T_i, H] -> [1, sum of T_i, H]."""
        fused = mx.concatenate(
            [self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(hidden)], axis=-1
        )
        return self.norm(decoder_layer(self.layers[0], self.fc(fused), pieces, caches))

    def logits(self, hidden: mx.array, trunk: Trunk) -> mx.array:
        """Its hidden rows [1, T, H] -> logits [1, T, V]."""
        return trunk.logits(hidden) if self.lm_head is None else self.lm_head(hidden)
