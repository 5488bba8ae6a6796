"""Histories of one store, made by hypothesis, that must agree with the model of it.

    python -m tests.coldstore.machine --steps 1000000 --minutes 600 --out FILE

runs as many steps, or for as long, and writes down how many there were.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from llm_mtplx.coldstore import BLOCK, ColdStore, Collector, StoreLimits
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.root import StoreRoot

from .lines import FINGERPRINT, WAIT, files, in_child, killer, restore, save_of, tokens
from .model import Line, ModelStore

MEMORY_DISK = Path("/dev/shm")
SHARED = tokens(BLOCK + 9)
LINES: list[Line] = [
    tuple([*SHARED[:common], *tokens(length - common, seed)])
    for common, seed in ((0, 1), (0, 2), (BLOCK - 1, 3), (BLOCK, 4), (BLOCK + 9, 5))
    for length in (common + 1, common + 40, BLOCK, BLOCK + 1, 2 * BLOCK + 20)
    if length > common
]
POINTERS = {line: Chain(FINGERPRINT, line).pointer(len(line)) for line in LINES}
# Nothing that was ever used is too old; the directory is walked by `collect_garbage` alone.
LIMITS = StoreLimits(free_floor_bytes=0, grace_s=1e9, reconcile_every_s=1e12)
STEPS = 18  # of the longest save
conversations = st.sampled_from(["a", "b", "c"])
lines = st.integers(0, len(LINES) - 1).map(LINES.__getitem__)


def may_take_long(machine: "StoreMachine") -> bool:
    """These steps cost as much as many others: not every time."""
    return machine.taken % 12 == 0


class StoreMachine(RuleBasedStateMachine):
    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("time.time", lambda: float(self.now))
        self.now = 10**6
        self.taken = 0
        where = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        self.cache_dir = Path(tempfile.mkdtemp(dir=where))
        self.model = ModelStore()
        self.store = ColdStore(self.cache_dir, LIMITS)

    def _step(self, name: str) -> None:
        self.taken += 1
        self.steps[name] += 1

    def teardown(self) -> None:
        self._patch.undo()
        assert self.store.close(WAIT)
        shutil.rmtree(self.cache_dir)

    @rule(line=lines, name=conversations)
    def save(self, line: Line, name: str) -> None:
        self._step("save")
        missing = self.store.missing(Chain(FINGERPRINT, line))
        assert self.store.save(save_of(line, name, missing)) is None
        assert self.store.flush(WAIT)
        self.model.save(line, name, self.now)

    @rule(line=lines, more=st.booleans())
    def read(self, line: Line, more: bool) -> None:
        """What comes back is checked by `restore`."""
        self._step("read")
        asked = (*line, 7, 8, 9) if more else line
        restored, _ = restore(self.store, asked)
        assert restored.misses == ()
        assert self.store.flush(WAIT)
        assert restored.position == len(self.model.read(asked, self.now))

    @rule(line=lines)
    def look(self, line: Line) -> None:
        self._step("look")
        found = self.store.lookup(FINGERPRINT, line)
        assert found.position == len(self.model.restorable(line))

    @rule(name=conversations)
    def forget(self, name: str) -> None:
        self._step("forget")
        gone = self.store.forget(name)
        assert gone.conversations == (name in self.model.tips)
        self.model.forget(name)

    @rule(age=st.integers(-50, 300))
    def forget_unused(self, age: int) -> None:
        self._step("forget unused")
        before = len(self.model.tips)
        self.model.forget_unused(self.now - age)
        gone = self.store.forget(older_than=age)
        assert gone.conversations == before - len(self.model.tips)

    @rule(idle=st.integers(-50, 300))
    def compact(self, idle: int) -> None:
        self._step("compact")
        assert self.store.compact(idle).finished

    @rule()
    def reopen(self) -> None:
        self._step("reopen")
        report = self.store.report()
        assert (report.drops, report.misses) == ({}, {})
        used = {each.name: each.used for each in report.conversations}
        assert used == {name: self.model.last_use(name) for name in self.model.tips}
        assert self.store.close(WAIT)
        self.store = ColdStore(self.cache_dir, LIMITS)

    @precondition(may_take_long)
    @rule()
    def collect_garbage(self) -> None:
        """What is in use stays, whatever else goes."""
        self._step("gc")
        collector = Collector(StoreRoot(self.cache_dir), LIMITS)
        try:
            done = collector.apply(collector.plan_gc(), lambda held: True)
            assert done.failed == 0
        except StoreError as error:
            assert error.reason == "store_absent"
        finally:
            collector.close()

    @precondition(may_take_long)
    @rule(line=lines, name=conversations, at=st.integers(0, STEPS))
    def killed_while_saving(self, line: Line, name: str, at: int) -> None:
        """All of a save, or none of it that can be seen."""
        self._step("kill while saving")

        def child() -> None:
            store = ColdStore(self.cache_dir, LIMITS, killer(at))
            store.save(save_of(line, name, store.missing(Chain(FINGERPRINT, line))))
            assert store.flush(WAIT)

        assert in_child(child) in (0, -9)
        saved = POINTERS[line]
        if any(tip.checkpoint == saved for tip in self.store.tips(name)):
            # That it was there before, and this save of it noted no use, is as good.
            (used,) = (c.used for c in self.store._manifest.checkpoints() if c.key.hex() == saved)
            assert used in (self.now, self.model.used.get(line))
            self.model.save(line, name, used)

    @precondition(may_take_long)
    @rule(at=st.integers(0, STEPS))
    def killed_while_compacting(self, at: int) -> None:
        self._step("kill while compacting")
        store = ColdStore(self.cache_dir, LIMITS, killer(at))
        assert in_child(lambda: store.compact(-(10**6))) in (0, -9)  # type: ignore[arg-type]

    @rule(seconds=st.integers(-100, 200))
    def time_passes(self, seconds: int) -> None:
        """Or is set back."""
        self._step("clock")
        self.now += seconds

    @invariant()
    def conversations_agree(self) -> None:
        """One a step, in turn."""
        name = "abc"[self.taken % 3]
        told = {(tip.checkpoint, tip.position) for tip in self.store.tips(name)}
        assert told == {(POINTERS[line], len(line)) for line in self.model.tips.get(name, ())}

    @invariant()
    def nothing_is_left_of_nothing(self) -> None:
        if not self.model.tips and self.taken % 50 == 0:
            self.store.forget(everything=True)
            assert files(self.cache_dir, "*") == []


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    # From Python 3.12 on, forking beside other threads warns.
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    began, clock = time.monotonic(), time.time()
    while StoreMachine.steps.total() < args.steps and time.monotonic() - began < 60 * args.minutes:
        run(100, 100)
        print(f"{StoreMachine.steps.total():,} steps", flush=True)
    report = {
        "command": "python -m tests.coldstore.machine " + " ".join(sys.argv[1:]),
        "began": datetime.fromtimestamp(clock, UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "steps": StoreMachine.steps.total(),
        "by_rule": dict(StoreMachine.steps),
        "failures": 0,  # one would have ended it
    }
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
