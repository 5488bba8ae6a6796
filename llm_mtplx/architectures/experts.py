"""The layouts in which checkpoints store the experts of a mixture, made into mlx-lm's.

mlx-lm has one stacked tensor a projection: gate and up [E, I, H], down [E, H, I]. Checkpoints have
them too, or numbered one by one, or gate and up fused in one tensor (gate first), which comes as
[E, 2I, H] (a linear layer's layout) or as [E, H, 2I] (a matrix product's).
"""

import re
from pathlib import Path

import mlx.core as mx

from ..errors import ModelFolderError

Weights = dict[str, mx.array]

NUMBERED = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.((?:gate|up|down)_proj\.\w+)")
FUSED = re.compile(r"(.*\.mlp)\.experts\.gate_up_proj(?:\.weight)?")


def stack_experts(path: Path, weights: Weights, hidden: int, intermediate: int) -> Weights:
    """``weights`` with all experts stacked. Raises ModelFolderError for an unknown layout."""
    out, numbered = dict(weights), dict[str, dict[int, mx.array]]()
    for name in weights:
        if match := NUMBERED.fullmatch(name):
            target = f"{match[1]}.switch_mlp.{match[3]}"
            numbered.setdefault(target, {})[int(match[2])] = out.pop(name)
        elif match := FUSED.fullmatch(name):
            prefix = match[1]
            down = name.replace("gate_up_proj", "down_proj")
            if down not in out:
                raise ModelFolderError(f"{path}: {down} is missing; {name} needs it.")
            split = _split(out.pop(name), out.pop(down), hidden, intermediate)
            if split is None:
                raise ModelFolderError(
                    f"{path}: {name} has shape {list(weights[name].shape)} and its "
                    f"down_proj {list(weights[down].shape)}, which is not a known expert "
                    "layout."
                )
            for part, value in zip(("gate", "up", "down"), split, strict=True):
                out[f"{prefix}.switch_mlp.{part}_proj.weight"] = value
    for target, experts in numbered.items():
        if sorted(experts) != list(range(len(experts))):
            raise ModelFolderError(f"{path}: some of the experts of {target} are missing.")
        out[target] = mx.stack([experts[n] for n in range(len(experts))])
    return out


def _split(
    gate_up: mx.array, down: mx.array, hidden: int, intermediate: int
) -> tuple[mx.array, mx.array, mx.array] | None:
    """Gate, up and down as mlx-lm has them; None unless both tensors say the same layout."""
    shapes = (gate_up.shape[1:], down.shape[1:])
    if shapes == ((hidden, 2 * intermediate), (intermediate, hidden)):
        gate_up, down = gate_up.swapaxes(1, 2), down.swapaxes(1, 2)
    elif shapes != ((2 * intermediate, hidden), (hidden, intermediate)):
        return None
    # Owned and contiguous: a view would keep both halves, and be copied at every use.
    gate, up = (mx.contiguous(part) for part in mx.split(gate_up, 2, axis=1))
    return gate, up, mx.contiguous(down)
