"""What the engine remembers turns with: the bank, the store, and a keeper for each model."""

import os
import time

from ..coldstore import ColdStore
from ..limits import limits, store_limits
from ..sessions.bank import Bank, BankLimits
from ..sessions.fingerprint import Fingerprint
from ..sessions.keeper import Keeper, Persistence
from ..settings import cache_dir
from ..speculative.decoder import KERNEL_CHUNK, OPS_CHUNK
from .facts import facts
from .load import LoadedModel

GIB = 2**30


def bank() -> Bank:
    """Budgets by the machine's memory, where the user has set none. Weights are not known to
    this rule: it leaves them three quarters."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told = limits()
    total = told.ram_max_bytes or min(max(memory // 4, GIB), 48 * GIB)
    return Bank(
        BankLimits(
            total_bytes=total,
            per_session_bytes=told.ram_per_session_bytes or total * 2 // 3,
            entries=told.ram_max_entries or (48 if memory >= 96 * GIB else 24),
            idle_s=told.idle_ttl_s,
        ),
        time.monotonic,
    )


def store() -> ColdStore | None:
    """The store on SSD; None where the user has turned it off."""
    if limits().cache == "off":
        return None
    return ColdStore(cache_dir(), store_limits())


def keeper(model: LoadedModel, bank: Bank, store: ColdStore | None) -> Keeper:
    persistence = None
    if store is not None:
        told = facts()
        dtype = str(model.trunk.model.language_model.model.norm.weight.dtype)
        fingerprint = Fingerprint(
            model.folder,
            cache_dir() / "weights.json",
            {
                "versions": {name: told["versions"][name] for name in ("mlx", "mlx-lm")},
                "device": told["device"],
                "backend": told["backend"],
                "blas": told["blas"],
                "dtype": dtype,
                "head": model.head is not None,
                "chunks": [KERNEL_CHUNK, OPS_CHUNK],
                "salt": "",
            },
        )
        persistence = Persistence(store, lambda: fingerprint.value, limits().min_tokens)
    tokenizer = model.tokenizer
    return Keeper(bank, model.key, tokenizer.decode, tokenizer.message_start, persistence)
