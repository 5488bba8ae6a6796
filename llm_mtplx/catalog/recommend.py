"""Which packs to offer first on a machine."""

from . import known
from .fit import GIB, Verdict, verdict
from .machine import prefers_float16

_SMALL = ("qwen3.5-4b-mtp", "qwen3.5-4b-mtp-quality")
_NEWEST = ("qwen3.8-27b-mtp", "qwen3.8-27b-mtp-bare", "qwen3.8-27b-mtp-quality")
_QWEN3_6 = ("qwen3.6-27b-mtp", "qwen3.6-27b-mtp-bare", "qwen3.6-27b-mtp-quality")
_NINE = ("mimo-v2.6-qwen-9b-mtp", "qwen3.5-9b-mtp")
_EXPERTS = ("qwen3.6-35b-a3b-mtp", "qwen3.6-35b-a3b-mtp-quality")

# From this many GiB on: the order for M3 and later, and for M1 and M2.
ORDER: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        48,
        (*_NEWEST, *_QWEN3_6, *_EXPERTS, *_NINE, "bonsai-2-27b-mtp", *_SMALL),
        (*_NEWEST, *_QWEN3_6, *_EXPERTS, "qwen3.5-9b-mtp"),
    ),
    (
        32,
        (*_NEWEST, *_QWEN3_6[:2], *_NINE, *_EXPERTS, _QWEN3_6[2], "bonsai-2-27b-mtp", *_SMALL),
        (*_NEWEST, "qwen3.5-9b-mtp", *_QWEN3_6[:2], *_EXPERTS, _QWEN3_6[2]),
    ),
    (16, ("bonsai-2-27b-mtp", *_NINE, *_SMALL), ("qwen3.5-9b-mtp",)),
    (0, _SMALL, ("qwen3.5-9b-mtp",)),
)


def recommended(memory: int, chip: str) -> list[known.Pack]:
    """Packs that fit into ``memory``, the best first; none for an Intel Mac."""
    if "Intel" in chip:
        return []
    old = prefers_float16(chip)
    _, new_order, old_order = next(order for order in ORDER if memory >= order[0] * GIB)
    packs = (known.pack(model_id) for model_id in (old_order if old else new_order))
    return [pack for pack in packs if pack is not None and _fits(pack, memory, old)]


def _fits(pack: known.Pack, memory: int, float16: bool) -> bool:
    download = pack.float16 if float16 and pack.float16 else pack.bfloat16
    return verdict(memory, int(download.peak_gib * GIB)) != Verdict.TOO_LARGE
