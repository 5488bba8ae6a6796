"""What the engine remembers turns with: the bank, the store, and a keeper for each model."""

import time

from ..coldstore import ColdStore
from ..limits import limits, store_limits
from ..sessions.bank import Bank
from ..sessions.budgets import bank_limits
from ..sessions.fingerprint import Fingerprint
from ..sessions.keeper import Keeper, Persistence
from ..settings import cache_dir
from ..speculative.decoder import KERNEL_CHUNK, OPS_CHUNK
from .facts import facts
from .load import LoadedModel


def bank() -> Bank:
    return Bank(bank_limits(), time.monotonic)


def store() -> ColdStore | None:
    """The store on SSD; None where the user has turned it off."""
    if limits().cache == "off":
        return None
    return ColdStore(cache_dir(), store_limits())


def keeper(model: LoadedModel, bank: Bank, store: ColdStore | None) -> Keeper:
    persistence = None
    if store is not None:
        told = facts()
        dtype = str(model.trunk.dtype)
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
