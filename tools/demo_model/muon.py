"""Muon: momentum whose matrices are orthogonalized before each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def orthogonalize(x: Tensor, steps: int = 5) -> Tensor:
    """The nearest (semi-)orthogonal matrices to x [N,R,C], by a quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    flip = x.shape[-2] > x.shape[-1]
    y = x.transpose(-1, -2) if flip else x
    y = (y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(steps):
        gram = y @ y.transpose(-1, -2)
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    y = y.to(x.dtype)
    return y.transpose(-1, -2) if flip else y


class Muon(torch.optim.Optimizer):
    """Matrices of one shape are orthogonalized together."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for shape, members in shapes.items():
                updates = []
                for parameter in members:
                    state = self.state[parameter]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(parameter)
                    state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                    updates.append(parameter.grad.lerp(state["momentum"], group["momentum"]))
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(
                    members, orthogonalize(torch.stack(updates)), strict=True
                ):
                    parameter.add_(update, alpha=-group["lr"] * scale)
