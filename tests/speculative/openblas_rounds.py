"""Run as a program with OpenBLAS loaded before MLX: rounds against fresh prefills.

Prints JSON: the BLAS in use; the largest deviation of any array of any state after a round from
that of a fresh prefill, relative to the array's own maximum; and, where drafted ids part from
plain ones, the gap between the two largest logits there.
"""

import json

from llm_mtplx.architectures.blas import preload

preload()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

from llm_mtplx.architectures.runtime import blas  # noqa: E402
from llm_mtplx.speculative.decoder import Decoder  # noqa: E402
from llm_mtplx.speculative.distributions import Sampling  # noqa: E402

from ..tiny import random_trunk_and_head  # noqa: E402
from .test_rounds import (  # noqa: E402
    PROMPT,
    ScriptedDecoder,
    never,
    plain_ids,
    prefilled,
    settled_arrays,
)

LENGTH = 48


def main() -> None:
    tiny = random_trunk_and_head()
    oracle = PROMPT + plain_ids(tiny[0], PROMPT, LENGTH + 8)
    deviation = 0.0
    gaps = []
    for depth in (1, 2, 3, 4):
        for wrong_at in (None, 0, depth - 1):
            decoder = ScriptedDecoder(tiny, oracle, wrong_at)
            list(decoder.prefill(PROMPT))
            ids = [decoder.first()]
            while len(ids) < LENGTH:
                ids += decoder.round(depth, LENGTH - len(ids), never).tokens
                got = settled_arrays(decoder.state, tiny)
                want = prefilled(tiny, decoder.state.ids)
                deviation = max(deviation, *(relative(got[name], want[name]) for name in want))
            parted = first_difference(PROMPT + ids, oracle)
            if parted is not None:
                gaps.append(top_gap(tiny, oracle[:parted]))
    print(json.dumps({"blas": blas(), "deviation": deviation, "gaps": gaps}))


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def first_difference(ids: list[int], oracle: list[int]) -> int | None:
    pairs = enumerate(zip(ids, oracle, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), None)


def top_gap(tiny, prefix: list[int]) -> float:
    decoder = Decoder(*tiny, Sampling())
    list(decoder.prefill(prefix))
    logits = tiny[0].logits(decoder.state.hidden)[0, 0]
    best = np.sort(np.array(logits.astype(mx.float32)))
    return float(best[-1] - best[-2])


if __name__ == "__main__":
    main()
