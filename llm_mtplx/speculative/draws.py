"""Every random decision of a request, from one seeded generator."""

import numpy as np

from .distributions import Distribution


class Draws:
    def __init__(self, seed: int | None) -> None:
        self._rng = np.random.default_rng(seed)

    def accepts(self, target: float, proposal: float) -> bool:
        """True with probability min(1, target / proposal); never where ``target`` is 0."""
        return self._rng.random() * proposal < target

    def pick(self, distribution: Distribution) -> int:
        cumulative = np.cumsum(distribution.probs)
        drawn = self._rng.random() * cumulative[-1]
        at = int(np.searchsorted(cumulative, drawn, side="right"))
        return int(distribution.ids[min(at, len(distribution.ids) - 1)])
