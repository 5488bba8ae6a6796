"""The loaded models and what is remembered with each. Lives on the engine's thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..architectures.runtime import facts
from ..catalog import fit, footprint, machine
from ..catalog.folder import inspect
from ..catalog.places import folder_identity
from ..coldstore import ColdStore
from ..sessions.bank import Bank
from ..sessions.keeper import Keeper
from .budgets import bank_limits
from .load import LoadedModel, load_inspected
from .loader import release
from .memory import clear, keeper, store
from .tuned import recorded

VERIFY_ROWS = 16  # more than any draft has


@dataclass
class Resident:
    model_id: str
    model: LoadedModel
    identity: str  # of the folder, as it was loaded
    needs: fit.Needs
    last_used: float = 0.0
    keepers: dict[str, Keeper] = field(default_factory=dict)  # by salt


class Residents:
    """Loads on demand; unloads the least recently used where memory does not hold both."""

    def __init__(self) -> None:
        self._loaded: dict[Path, Resident] = {}

    @cached_property
    def bank(self) -> Bank:
        return Bank(bank_limits(self._needs()), time.monotonic)

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

    def is_current(self, folder: Path) -> bool:
        """Whether ``get`` would find it loaded."""
        found = self._loaded.get(folder)
        return found is not None and found.identity == folder_identity(folder)

    def used(self, folder: Path) -> None:
        """It is in use now."""
        found = self._loaded.get(folder)
        if found is not None:
            found.last_used = time.monotonic()

    def fit_beside(self, folder: Path, tokens: Sequence[int]) -> bool:
        """Whether turns of so many tokens may be in progress at once with a loaded model."""
        return fit.fit_beside(machine.memory_bytes(), self._loaded[folder].needs, tokens)

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
            inspected = inspect(folder)
            needs = footprint.of_folder(inspected)
            self._make_room(needs)
            model = load_inspected(inspected, needs, notice, cancelled)
            plan = fit.plan(machine.memory_bytes(), needs)
            model = replace(model, context_window=min(model.context_window, plan.window))
            # A verify may run past the end of the window by its drafts.
            model.trunk.max_rows = model.context_window + VERIFY_ROWS
            tuned = recorded(model.folder)
            if tuned is not None:
                model = replace(
                    model,
                    depth=tuned.depth,
                    break_even=0.0,
                    costs=tuned.costs,
                    verify_costs=tuned.rows,
                    pace=None,
                )
            self._loaded[folder] = Resident(model_id, model, identity, needs)
            self.bank.limit_to(bank_limits(self._needs()))
        found = self._loaded[folder]
        found.last_used = time.monotonic()
        return found

    def keeper(self, resident: Resident, salt: str) -> Keeper:
        """What remembers for one salt: its states are found under no other."""
        if salt not in resident.keepers:
            resident.keepers[salt] = keeper(resident.model, self.bank, self.store, salt)
        return resident.keepers[salt]

    def drop(self, folder: Path) -> None:
        """Unload a model. What the store has of its sessions stays there."""
        gone = self._loaded.pop(folder, None)
        if gone is not None:
            for each in gone.keepers.values():
                self.bank.unload(each.model)
            self.bank.limit_to(bank_limits(self._needs()))
            del gone
            clear()
        release(folder)

    def tidy(self, unload_after_s: float) -> None:
        """Drop what nobody has used for long; models never where that is 0."""
        self.bank.drop_idle()
        oldest = time.monotonic() - unload_after_s
        # By folder: who holds a model while it is dropped keeps its memory.
        unused = [f for f, resident in self._loaded.items() if resident.last_used < oldest]
        for folder in unused if unload_after_s else ():
            self.drop(folder)

    def _make_room(self, needs: fit.Needs) -> None:
        by_use = sorted(self._loaded, key=lambda folder: self._loaded[folder].last_used)
        for folder in by_use:
            if fit.fit_together(machine.memory_bytes(), [needs, *self._needs()]):
                return
            self.drop(folder)

    def _needs(self) -> list[fit.Needs]:
        return [resident.needs for resident in self._loaded.values()]
