"""Matmuls of many rows in half precision, through a float32 BLAS.

MLX multiplies bfloat16 and float16 matrices on a CPU with code of its own, which a BLAS beats many
times over as soon as there are rows enough to pay for widening the weights. Products are summed in
float32 either way and the result is rounded once, so only the order of the sum differs.
"""

import mlx.core as mx
import mlx.nn as nn

MIN_ROWS = 32  # more than any verify has: decoding keeps MLX's own matmul


class WidenedLinear(nn.Linear):
    """A linear layer whose weights are widened for the rows of a prompt."""

    def __call__(self, x: mx.array) -> mx.array:
        """``x`` [..., T, in] -> [..., T, out], in the dtype of ``x``."""
        if x.shape[-2] < MIN_ROWS:
            return super().__call__(x)
        y = x.astype(mx.float32) @ self["weight"].astype(mx.float32).T
        if "bias" in self:
            y = y + self["bias"].astype(mx.float32)
        return y.astype(x.dtype)


def widen_linears(model: nn.Module) -> None:
    """Make every half-precision linear layer of ``model`` one of these; the weights are shared."""
    for module in model.modules():
        # Quantized layers are classes of their own and keep their kernels.
        if type(module) is nn.Linear and module.weight.dtype in (mx.bfloat16, mx.float16):
            module.__class__ = WidenedLinear
