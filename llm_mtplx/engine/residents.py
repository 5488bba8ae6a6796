"""The loaded models and what is remembered with each. Lives on the engine's thread."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..catalog import fit, footprint, machine
from ..coldstore import ColdStore
from ..sessions.bank import Bank
from ..sessions.keeper import Keeper
from .facts import facts
from .hello import folder_identity
from .load import LoadedModel, load
from .loader import release
from .memory import bank, clear, keeper, store, weights_budget, weights_bytes
from .tuning import recorded_depth


@dataclass
class Resident:
    model_id: str
    model: LoadedModel
    identity: str  # of the folder, as it was loaded
    nbytes: int
    last_used: float = 0.0
    keepers: dict[str, Keeper] = field(default_factory=dict)  # by salt


class Residents:
    """Loads on demand; unloads the least recently used where memory does not hold both."""

    def __init__(self) -> None:
        self._loaded: dict[Path, Resident] = {}

    @cached_property
    def bank(self) -> Bank:
        return bank()

    @cached_property
    def store(self) -> ColdStore | None:
        return store()

    @cached_property
    def computed_with(self) -> dict[str, Any]:
        """What the numbers are computed with."""
        told = facts()
        return {name: told[name] for name in ("versions", "device", "backend", "blas")}

    @property
    def all(self) -> tuple[Resident, ...]:
        return tuple(self._loaded.values())

    def find(self, folder: Path) -> Resident | None:
        """A loaded model, as it was loaded."""
        return self._loaded.get(folder)

    def get(
        self,
        model_id: str,
        folder: Path,
        notice: Callable[[str], None],
        loading: Callable[[], None] = lambda: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Resident:
        """A loaded model; loaded anew where its files have changed since."""
        identity = folder_identity(folder)
        if folder in self._loaded and self._loaded[folder].identity != identity:
            self.drop(folder)
        if folder not in self._loaded:
            loading()
            self._make_room(weights_bytes(folder))
            model = load(folder, notice, cancelled)
            plan = fit.plan(machine.memory_bytes(), footprint.of_folder(model.folder))
            model = replace(model, context_window=min(model.context_window, plan.window))
            depth = recorded_depth(model.folder)
            if depth is not None:
                model = replace(model, depth=depth, break_even=0.0)
            self.add(model_id, folder, model, identity)
        found = self._loaded[folder]
        found.last_used = time.monotonic()
        return found

    def add(self, model_id: str, folder: Path, model: LoadedModel, identity: str) -> None:
        self._unload(folder)
        nbytes = weights_bytes(folder)
        self._loaded[folder] = Resident(model_id, model, identity, nbytes, time.monotonic())

    def keeper(self, resident: Resident, salt: str) -> Keeper:
        """What remembers for one salt: its states are found under no other."""
        if salt not in resident.keepers:
            resident.keepers[salt] = keeper(resident.model, self.bank, self.store, salt)
        return resident.keepers[salt]

    def drop(self, folder: Path) -> None:
        """Unload a model. What the store has of its sessions stays there."""
        self._unload(folder)
        release(folder)

    def _unload(self, folder: Path) -> None:
        gone = self._loaded.pop(folder, None)
        if gone is None:
            return
        for each in gone.keepers.values():
            self.bank.unload(each.model)
        del gone
        clear()

    def tidy(self, unload_after_s: float) -> None:
        """Drop what nobody has used for long; models never where that is 0."""
        self.bank.drop_idle()
        oldest = time.monotonic() - unload_after_s
        for folder, resident in list(self._loaded.items()):
            if unload_after_s and resident.last_used < oldest:
                self.drop(folder)

    def _make_room(self, nbytes: int) -> None:
        by_use = sorted(self._loaded, key=lambda folder: self._loaded[folder].last_used)
        for folder in by_use:
            if sum(r.nbytes for r in self._loaded.values()) + nbytes <= weights_budget():
                return
            self.drop(folder)
