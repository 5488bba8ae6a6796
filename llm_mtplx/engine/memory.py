"""What the engine remembers turns with: the bank, the store, and a keeper for each model."""

import gc
import logging

import mlx.core as mx

from ..architectures import chunked
from ..architectures.runtime import facts
from ..coldstore import ColdStore
from ..limits import limits
from ..once import first_time
from ..sessions.bank import Bank
from ..sessions.budgets import BankLimits, store_limits
from ..sessions.fingerprint import Fingerprint
from ..sessions.keeper import Keeper, Persistence
from ..settings import NoCacheDir, cache_dir
from ..speculative.decoder import KERNEL_CHUNK, OPS_CHUNK
from .load import LoadedModel

logger = logging.getLogger(__name__)


def clear() -> None:
    """Give memory that nothing uses any more back to the system."""
    gc.collect()
    mx.clear_cache()


def store() -> ColdStore | None:
    """The store on SSD; None where the user has turned it off, or nobody knows where it is."""
    if limits().cache == "off":
        return None
    try:
        return ColdStore(cache_dir(), store_limits())
    except NoCacheDir as error:
        line = f"mtplx: nothing is saved to disk: {error}"
        if first_time(line):
            logger.warning("%s", line)
        return None


def keeper_apart(model: LoadedModel, store: ColdStore | None = None) -> Keeper:
    """One that shares nothing with turns of the user's, for measuring; remembers in RAM, and in
    ``store`` where there is one."""
    bank = Bank(BankLimits(1 << 40, 1 << 40, entries=4, idle_s=0), lambda: 0.0)
    persistence = Persistence(store, lambda: "apart", min_tokens=1) if store else None
    tokenizer = model.tokenizer
    return Keeper(bank, model.key, tokenizer.decode, tokenizer.message_start, persistence)


def keeper(model: LoadedModel, bank: Bank, store: ColdStore | None, salt: str = "") -> Keeper:
    """``salt``: states made under one are used under no other."""
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
                "recurrence": chunked.RULE if model.trunk.reads_in_chunks else None,
                "salt": salt,
            },
        )
        persistence = Persistence(
            store,
            lambda: fingerprint.value,
            limits().min_tokens,
            fingerprint.wait,
            lambda: fingerprint.error,
        )
    tokenizer = model.tokenizer
    return Keeper(bank, model.key + salt, tokenizer.decode, tokenizer.message_start, persistence)
