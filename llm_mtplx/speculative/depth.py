"""How many tokens to draft where the request leaves it open.

Never decided by a clock: the same prompt must give the same text on every run. A saved
measurement of this model on this machine decides; without one, these rules.
"""

from typing import Literal

FAMILY_DEPTH = 3

Backend = Literal["metal", "cuda", "cpu"]

# A head that was wrong this often in a row is no help for the rest of the answer.
USELESS_DRAFTS = 64


def default_depth(backend: Backend, dtype: str, quantized: bool, own_blas: bool) -> int:
    """The depth that cannot lose to plain decoding by much on any text.

    On a CPU a verify of w rows costs about w times one row in quantized weights, and in float32
    with the reference BLAS of the mlx wheel (``own_blas``); drafting then only loses. Half
    precision costs 1.3 times for two rows. Elsewhere a verify is bound by memory, not by rows.
    """
    if backend != "cpu":
        return FAMILY_DEPTH
    if quantized or (dtype == "float32" and own_blas):
        return 0
    return FAMILY_DEPTH if dtype == "float32" else 1
