"""How many tokens to draft where the request leaves it open and nothing was measured yet.

No depth changes a token, so these rules are about speed alone. A saved measurement of this model on
this machine takes their place, and rounds that this process has timed do (see ``pace.py``).
"""

from collections.abc import Mapping
from itertools import pairwise

from ..architectures.runtime import Backend

FAMILY_DEPTH = 3
DEEPEST = 4  # that is chosen where the request leaves it open
HOPELESS = 1.5  # plain rounds that a draft costs more where drafting only loses

# A head that was wrong this often in a row is no help for the rest of the answer.
USELESS_DRAFTS = 64

# Where no measurement of the model exists: drafts examined before their share of right ones is
# judged, and the share below which first drafts may cost more than they bring. On a small model on
# a CPU a draft costs half a forward and a verify of two rows 1.3.
ENOUGH_DRAFTS = 48
BREAK_EVEN = {"cpu": 0.75, "metal": 0.4, "cuda": 0.4}


def default_depth(
    backend: Backend, dtype: str, quantized: bool, own_blas: bool, asked: int | None = None
) -> int:
    """A depth that does not lose to plain decoding; ``asked``: what the model's files ask for.

    On a CPU a verify of w rows costs about w times one row in quantized weights, and in float32
    with the reference BLAS of the mlx wheel (``own_blas``): drafting then only loses. In half
    precision, and in float32 with a fast BLAS, one draft pays even where two in five are wrong,
    and more of them only where nearly all are right: that is for a measurement to tell. On a GPU
    a verify is bound by memory, not by rows, and what the files ask for was measured on one.
    """
    if backend != "cpu":
        return FAMILY_DEPTH if asked is None else asked
    pays = not quantized and not (dtype == "float32" and own_blas)
    return min(int(pays), 1 if asked is None else asked)


def guessed_costs(backend: Backend, depth: int, most: int | None = None) -> dict[int, float]:
    """What rounds may cost, in plain rounds: by ``depth``, the default, and where a first draft
    breaks even. ``most``: the deepest that the model's files allow."""
    draft = BREAK_EVEN[backend] if depth else HOPELESS
    deepest = DEEPEST if most is None else max(min(DEEPEST, most), 1)
    return {d: 1 + draft * d for d in range(deepest + 1)}


ROW_SHARE = (
    0.55  # of what a draft adds to a round alone: its row in the verify; the rest is the head
)


def row_cost(costs: Mapping[int, float]) -> float:
    """What one row more in a verify costs in plain rounds, from what rounds cost by depth."""
    deepest = max(costs)
    return ROW_SHARE * (costs[deepest] - 1) / deepest if deepest else 0.0


def verify_cost(rows: int, measured: Mapping[int, float]) -> float:
    """What a verify of so many rows costs in plain rounds: on the line between, or beyond, the
    nearest two of ``measured``, which has at least one number of rows besides 1."""
    known = sorted({1: 1.0, **measured}.items())
    for (low, below), (high, above) in pairwise(known):
        if rows <= high or (high, above) == known[-1]:
            return below + (above - below) * (rows - low) / (high - low)
    raise ValueError("nothing was measured")


def shared_costs(costs: Mapping[int, float], company: int) -> dict[int, float]:
    """What rounds cost where ``company`` conversations share each forward, from what they cost one
    alone; in plain rounds of that company.

    A forward of r rows is taken to cost 1 + s (r - 1) plain rows. Measured on a CPU with OpenBLAS,
    a bit more than half of what a draft adds to a round alone is its row in the verify (s), the
    rest the head's, whose forward grows by a seventh with each conversation.
    """
    shared = {}
    for depth, cost in costs.items():
        slope = (cost - 1) / depth if depth else 0.0
        row = ROW_SHARE * slope
        draft = (slope - row) * (1 + 0.15 * (company - 1))
        plain = 1 + row * (company - 1)
        shared[depth] = (1 + row * (company * (depth + 1) - 1) + depth * draft) / plain
    return shared
