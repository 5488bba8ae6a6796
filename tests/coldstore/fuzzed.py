"""What must hold whatever was done to a store: turns, and upkeep, on a damaged one."""

import json
import os
import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click.testing
import mlx.core as mx
import numpy as np

from llm_mtplx.architectures.mlx_lm_compat import ArraysCache, KVCache
from llm_mtplx.architectures.state import State
from llm_mtplx.coldstore import ColdStore, Collector, StoreLimits
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.root import StoreRoot
from llm_mtplx.coldstore.upkeep import census
from llm_mtplx.coldstore.upkeep import schedule as upkeep
from llm_mtplx.coldstore.upkeep.schedule import Upkeep
from llm_mtplx.commands import mtplx
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.keeper import Keeper, Persistence
from llm_mtplx.sessions.persist import save_line
from llm_mtplx.sessions.reasons import Reason
from llm_mtplx.sessions.session import Checkpoint, Session
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..dictated import LIMITS, keeper, small_model
from ..sessions.talk import Clock, Talk
from ..speculative.states import arrays_of, named_arrays
from ..tiny import random_trunk_and_head
from .lines import tokens
from .mutations import Mutation, Mutator
from .pristine import Site

WAIT = 20.0
FINGERPRINT, OTHERS = "model-a", "model-b"
TINY: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 64,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MESSAGE_START = 1
NEW = 4  # tokens of an answer
UPKEEP = 0.3  # of all mutations are followed by upkeep before a turn
WIDE = 0.1  # of upkeep looks at all 256 directories
REAL = 0.04  # of all turns that restored something forward the rest of their tokens
COLD = 0.004  # of those that begin with an empty state, which is looked at in any case
_STORES_OWN = re.compile(r"[0-9a-f]{64}\.(kv|st|json)|\.[0-9a-f]{64}\.[0-9a-f]{32}\.tmp")


class Inline(Executor):
    """Reads on the thread that asks, for one reader; for more, a pool as ever. A thread that is
    begun for every file costs more than all else that a mutation does."""

    def __new__(cls, readers: int, name: str) -> Any:
        return super().__new__(cls) if readers == 1 else ThreadPoolExecutor(readers, name)

    def __init__(self, readers: int, name: str) -> None: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **named))
        except BaseException as error:
            done.set_exception(error)
        return done


class Broken(AssertionError):
    """Something that must hold does not."""


@dataclass
class Counts:
    mutations: Counter[str] = field(default_factory=Counter)
    upkeep: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # why a turn restored less
    turns: int = 0
    forwarded: int = 0  # turns that computed their answer
    engine_turns: int = 0
    not_healed: Counter[str] = field(default_factory=Counter)  # what only the user can mend

    def as_json(self) -> dict[str, Any]:
        return {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(self).items()}


def limits(rng: random.Random) -> StoreLimits:
    """Nothing waits for a clock; whether garbage is young is left to chance."""
    return StoreLimits(
        free_floor_bytes=0,
        busy_s=2.0,
        write_busy_s=2.0,
        duty=1.0,
        grace_s=rng.choice((0.0, 600.0)),
        readers=rng.choice((1, 1, 1, 3)),
    )


def _places(shards: Sequence[str]) -> list[tuple[str, str]]:
    return [(area, shard) for area in census.AREA_NAMES for shard in shards]


def may_stay(done: Sequence[Mutation]) -> bool:
    """Whether only the user can mend it: what is not the store's is not removed by it."""
    nodes = ("node", "stranger", "hard link", "mode")
    return any(
        m.part in ("marker", "folder") or (m.kind in nodes and m.part != "entry") for m in done
    )


class Turns:
    """Two turns of one conversation at the level of states, on a model of a few hundred weights.

    What a cold run gives is computed once; a turn on the damaged store must give the same arrays.
    """

    def __init__(self, where: Path, counts: Counts, variant: str) -> None:
        self.counts = counts
        self.trunk, self.head = random_trunk_and_head(**TINY)
        self.trunk.model.set_dtype(mx.bfloat16)
        self.head.set_dtype(mx.bfloat16)
        self.other_trunk, self.other_head = random_trunk_and_head(
            seed=1, **{**TINY, "head_dim": 16, "linear_value_head_dim": 16}
        )
        line = [MESSAGE_START if at % 97 == 0 else 2 + i % 60 for at, i in enumerate(tokens(612))]
        self.marks = (200, 400, 600)
        self.prompts: list[list[int]] = [line]
        self.cold: list[Decoder] = []
        self.checkpoints: dict[int, Checkpoint] = {}
        for _ in range(2):
            decoder = self._run(self.prompts[-1], State.empty(self.trunk, self.head))
            self.cold.append(decoder)
            self.prompts.append([*decoder.state.ids, *range(20, 28)])
        self.other = [*line[:300], *(2 + i % 60 for i in tokens(260, 5))]
        self.genuine = [bytes(self.prompts[2]), bytes(self.other)]
        self.wanted: dict[int, dict[str, mx.array]] = {}  # by position
        built = where / "built"
        self._build(built, variant)
        self.site = Site(where / "site", 3600.0)
        self.site.adopt(built / "cache" / "sessions-v1", time.time())
        shutil.rmtree(built)

    def _run(self, prompt: list[int], state: State) -> Decoder:
        """Forward the rest of a prompt, answer, keep checkpoints."""
        position = state.position
        decoder = Decoder(self.trunk, self.head, Sampling(), state=state)
        marks = [m for m in (*self.marks, 612) if position < m < len(prompt)]
        for _ in decoder.prefill(prompt[position:], marks):
            if decoder.state.position in marks:
                at = decoder.state.position
                self.checkpoints.setdefault(at, Checkpoint.of(decoder.state))
        emitted = [decoder.first()]
        while len(emitted) < NEW:
            emitted += decoder.round(1, NEW - len(emitted), lambda token: False).tokens
        decoder.settle()
        self.checkpoints.setdefault(decoder.state.position, Checkpoint.of(decoder.state))
        return decoder

    def _build(self, where: Path, variant: str) -> None:
        """Three conversations of two models; blocks packed and not; ``killed``: by a process that
        left its index unfinished, announcements, a lock and a temporary file."""
        store = ColdStore(where / "cache", StoreLimits(free_floor_bytes=0))
        state = self.cold[0].state
        for position, role in ((200, "prefix"), (400, "tip"), (600, "tip")):
            checkpoint = self.checkpoints[position]
            chain = Chain(FINGERPRINT, state.ids)
            save_line(store, chain, state, checkpoint, "talk", role)  # type: ignore[arg-type]
        assert store.flush(WAIT)
        assert store.compact(-1e6).files
        branch = Decoder(self.trunk, self.head, Sampling())
        for _ in branch.prefill(self.other, [200]):
            pass
        shared = self.checkpoints[200]
        save_line(
            store, Chain(FINGERPRINT, branch.state.ids), branch.state, shared, "other", "prefix"
        )
        save_line(
            store,
            Chain(FINGERPRINT, branch.state.ids),
            branch.state,
            Checkpoint.of(branch.state),
            "other",
        )
        foreign = Decoder(self.other_trunk, self.other_head, Sampling())
        for _ in foreign.prefill(self.prompts[0][:300]):
            pass
        save_line(
            store,
            Chain(OTHERS, foreign.state.ids),
            foreign.state,
            Checkpoint.of(foreign.state),
            "third",
        )
        assert store.flush(WAIT)
        if variant == "closed":
            assert store.close(WAIT)
            return
        dead = "d" * 32
        keys = [bytes([n]) * 32 for n in range(3)]
        store._manifest.announce("block", keys, dead)
        held = where / "held"
        shutil.copytree(where / "cache", held)
        assert store.close(WAIT)
        shutil.rmtree(where / "cache")
        held.rename(where / "cache")
        root = where / "cache" / "sessions-v1"
        for lock in (root / "writers").iterdir():
            lock.rename(lock.with_name(f"{dead}.lock"))
        temp = root / "blobs" / "01" / f".{keys[1].hex()}.{dead}.tmp"
        temp.parent.mkdir(0o700, exist_ok=True)
        temp.write_bytes(b"half of a file")
        assert (root / "manifest.sqlite-wal").stat().st_size

    def one(self, rng: random.Random) -> list[Mutation]:
        """Damage the store, use it; what was done."""
        mutator = Mutator(self.site, rng)
        try:
            for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
                self.counts.mutations[mutator.mutate().kind] += 1
            self._use(rng, mutator.done)
        except BaseException as error:
            error.args = (*error.args, mutator.done)
            raise
        finally:
            self.site.reset()
        return mutator.done

    def _use(self, rng: random.Random, done: list[Mutation]) -> None:
        allowed = limits(rng)
        forgot = False
        if rng.random() < UPKEEP:
            forgot = self._tend(rng, allowed, done)
        # One fault may hide another until it is healed, and what is forgotten is not read.
        # An index that is found out while it is written to is rebuilt during the next turn.
        patience = len(done) + forgot + sum(m.kind == "swap" for m in done)
        only_files = not forgot and {m.kind for m in done} <= {"flip a bit", "truncate", "header"}
        while True:
            self._turn(0, rng, allowed, only_files and {m.part for m in done} == {"blob"})
            restored, reason = self._turn(1, rng, allowed)
            patience -= 1
            if restored == self.cold[0].state.position:
                break
            if patience < 0 or (patience == 0 and reason is not Reason.REBUILDING):
                if not may_stay(done):
                    raise Broken(f"not healed: {restored} tokens, {reason}")
                self.counts.not_healed[f"{done[0].part}: {reason}"] += 1
                break
        if not forgot and rng.random() < 0.3:
            self._look_at_the_other(allowed)
        self._check_outside()

    def _keeper(self, store: ColdStore) -> Keeper:
        def spelled(ids: Sequence[int]) -> str:
            return "<|im_start|>assistant\n" + " ".join(map(str, ids)) + "<|im_end|>"

        kept = Persistence(store, lambda: FINGERPRINT, 8)
        return Keeper(Bank(LIMITS, Clock()), "m", spelled, MESSAGE_START, kept)

    def _turn(
        self, number: int, rng: random.Random, allowed: StoreLimits, knows: bool = False
    ) -> tuple[int, Reason | None]:
        """One turn in a new process; how much it restored, and why not more. ``knows``: the store
        has not lost the row of anything, so that less has a reason."""
        self.counts.turns += 1
        cold, prompt = self.cold[number], self.prompts[number]
        store = ColdStore(self.site.cache, allowed)
        try:
            memory = self._keeper(store)
            for ids in memory.known_answers("talk", None, "on").values():
                if not any(bytes(ids) in line for line in self.genuine):
                    raise Broken(f"an answer that nobody made: {ids}")
            taken = memory.take(prompt, "talk", set(), self._empty, "on", True)
            position, reason = taken.loan.position, taken.reason
            state, checkpoint = taken.loan.session.state, taken.loan.checkpoint
            self._check_state(state, checkpoint, position, prompt)
            best = self.cold[0].state.position if number else 600
            if position < best:
                if not isinstance(reason, Reason) and (knows or not position):
                    raise Broken(f"{position} tokens restored, for no reason")
                self.counts.reasons[str(reason)] += 1
            if rng.random() < (REAL if position else COLD):
                self.counts.forwarded += 1
                warm = self._run(prompt, state)
                if warm.state.ids != cold.state.ids:
                    raise Broken(f"the answer differs: {warm.state.ids[len(prompt) :]}")
                _same(named_arrays(warm.state), named_arrays(cold.state))
            line = cold.state
            kept = [self.checkpoints[p] for p in sorted(self.checkpoints) if p <= line.position]
            tip = kept[-1]
            roles = {200: "prefix"}
            session = Session("m", "talk", line, kept)
            memory.give_back(session, tip, "on", roles)  # type: ignore[arg-type]
            if not store.flush(WAIT):
                raise Broken("the writer hangs")
            if not store.reconciled(WAIT):
                raise Broken("the rebuild hangs")
        finally:
            if not store.close(WAIT):
                raise Broken("the store does not close")
        return position, reason

    def _empty(self) -> State:
        return State.empty(self.trunk, self.head)

    def _check_state(
        self, state: State, checkpoint: Checkpoint | None, position: int, prompt: list[int]
    ) -> None:
        """What was restored is what a cold run has at that position, bit for bit."""
        if state.ids != prompt[:position]:
            raise Broken("the ids differ")
        if not position:
            if any(a is not None for a in state.arrays()):
                raise Broken("an empty state holds something")
            return
        wanted = self.checkpoints.get(position)
        if wanted is None or checkpoint is None:
            raise Broken(f"nobody kept a state at {position}")
        if position not in self.wanted:
            self.wanted[position] = self._wanted_at(position, wanted)
        _equal(arrays_of(state), self.wanted[position])

    def _wanted_at(self, position: int, kept: Checkpoint) -> dict[str, mx.array]:
        """The arrays of a cold run at a checkpoint."""
        want = {"hidden": kept.hidden}
        recurrent = iter(kept.recurrent)
        cold = arrays_of(self.cold[0].state)
        for at, cache in enumerate(self.cold[0].state.cache):
            if isinstance(cache, ArraysCache):
                want[f"conv {at}"], want[f"recurrent {at}"] = next(recurrent)
            elif isinstance(cache, KVCache):
                for name in (f"keys {at}", f"values {at}"):
                    want[name] = cold[name][:, :, :position]
        for name in ("head keys", "head values"):
            want[name] = cold[name][:, :, : position - 1]
        want = {name: mx.contiguous(array) for name, array in want.items()}
        mx.eval(want)
        return want

    def _look_at_the_other(self, allowed: StoreLimits) -> None:
        """Another conversation is restored, or there is a reason."""
        store = ColdStore(self.site.cache, allowed)
        try:
            memory = self._keeper(store)
            prompt = [*self.other, 3]
            taken = memory.take(prompt, "other", set(), self._empty, "on", False)
            if not taken.loan.position and not isinstance(taken.reason, Reason):
                raise Broken("the other conversation is gone, for no reason")
        finally:
            store.close(WAIT)

    def _check_outside(self) -> None:
        if touched := self.site.touched():
            raise Broken(f"touched outside the store: {touched}")

    def _tend(self, rng: random.Random, allowed: StoreLimits, done: list[Mutation]) -> bool:
        """Upkeep of one kind; whether it may have removed a conversation. Most walks leave out
        directories that are not there: a row may name one, but looking at hundreds of names for
        it takes as long as all the rest."""
        shards = sorted(census.SHARDS if rng.random() < WIDE else self._shards())
        with (
            patch.multiple(census, SHARDS=shards),
            patch.object(upkeep, "_PLACES", _places(shards)),
        ):
            return self._tend_once(rng, allowed, done)

    def _shards(self) -> set[str]:
        """Directories that the store has, and some that it may not."""
        found = {"00", "01", "ff"}
        for area in census.AREA_NAMES:
            with suppress(OSError):
                found.update(os.listdir(self.site.root / area))
        return found.intersection(census.SHARDS)

    def _tend_once(self, rng: random.Random, allowed: StoreLimits, done: list[Mutation]) -> bool:
        name = rng.choice(
            ("report", "gc", "gc", "upkeep", "compact", "forget", "forget all", "command")
        )
        self.counts.upkeep[name] += 1
        if name == "command":
            return self._command(rng)
        if name == "gc":
            collector = Collector(StoreRoot(self.site.cache), allowed)
            try:
                plan = collector.plan_gc(rng.choice((None, 1e9)))
                json.dumps(plan.told())
                collector.apply(plan, lambda held: True)
            except StoreError:
                pass
            finally:
                collector.close()
            return True
        if name == "upkeep":
            Upkeep(StoreRoot(self.site.cache), allowed, threading.Event()).run()
            return True
        store = ColdStore(self.site.cache, allowed)
        try:
            if name == "report":
                json.dumps(vars(store.report()), default=vars)
            elif name == "compact":
                store.compact(-1e6, seconds=5.0)
            elif name == "forget":
                named = rng.choice(("talk", "other", None))
                store.forget(named, older_than=None if named else rng.choice((-1e6, 0.0, 1e9)))
            else:
                gone = store.forget(everything=True)
                if gone.reason is None and not may_stay(done):
                    self._check_nothing_left()
        finally:
            store.close(WAIT)
        return name.startswith("forget")

    def _check_nothing_left(self) -> None:
        left = [
            path.name
            for area in ("blobs", "entries")
            for path in (self.site.root / area).glob("*/*")
            if _STORES_OWN.fullmatch(path.name)
            and path.name[:3].lstrip(".")[:2] in path.parent.name
        ]
        if left:
            raise Broken(f"after forgetting everything there are {left}")

    def _command(self, rng: random.Random) -> bool:
        args = rng.choice(
            (
                ["status"],
                ["status", "--json"],
                ["gc"],
                ["gc", "--json"],
                ["gc", "--apply"],
                ["gc", "--apply", "--max-size", "1K"],
                ["forget", "talk"],
                ["forget", "--all"],
                ["forget", "--older-than", "0"],
            )
        )
        os.environ["LLM_MTPLX_CACHE_DIR"] = str(self.site.cache)
        result = click.testing.CliRunner().invoke(mtplx, args)
        unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
        if unexpected or "Traceback" in result.output:
            raise Broken(f"llm mtplx {' '.join(args)}: {result.exception!r}") from result.exception
        if result.exit_code not in (0, 1) or (result.exit_code and args[0] == "status"):
            raise Broken(f"llm mtplx {' '.join(args)}: exit code {result.exit_code}")
        if result.exit_code and "Error: " not in result.output:
            raise Broken(f"llm mtplx {' '.join(args)}: {result.output!r}")
        return args[0] != "status" and args != ["gc"] and args != ["gc", "--json"]


class EngineTurns:
    """The same through the engine's turns: text, template and all; an answer's ids are those of a
    cold turn."""

    def __init__(self, where: Path, counts: Counts) -> None:
        self.counts = counts
        self.model = small_model()
        self.messages = [{"role": "system", "content": "You answer in short sentences."}]
        self.built = where / "built"
        with_store = self._talk(self.built / "cache", StoreLimits(free_floor_bytes=0))
        talk, close = with_store
        for text in ("One.", "Two and some more words."):
            talk.say(text)
            close()
        self.said, self.pointer = talk.messages, talk.pointer
        self.site = Site(where / "site", 3600.0)
        self.site.adopt(self.built / "cache" / "sessions-v1", time.time())
        shutil.rmtree(self.built)

    def _talk(self, cache: Path, allowed: StoreLimits) -> tuple[Talk, Callable[[], None]]:
        opened: list[ColdStore] = []

        def memory() -> Keeper:
            opened.append(ColdStore(cache, allowed))
            return keeper(self.model, Bank(LIMITS, Clock()), opened[-1])

        def close() -> None:
            assert opened[-1].close(WAIT)

        talk = Talk(
            self.model,
            Bank(LIMITS, Clock()),
            "talk",
            {"preserve_thinking": True},
            list(self.messages),
            memory,
        )
        return talk, close

    def one(self, rng: random.Random) -> list[Mutation]:
        mutator = Mutator(self.site, rng)
        try:
            for _ in range(rng.choice((1, 1, 2))):
                self.counts.mutations[mutator.mutate().kind] += 1
            talk, close = self._talk(self.site.cache, limits(rng))
            talk.messages, talk.pointer = list(self.said), self.pointer
            self.counts.engine_turns += 2
            talk.say("Three.")  # compares with a cold turn
            close()
            kept = talk.turn.decoder.state.position
            again = talk.say("Four.")
            close()
            if again.miss_reason == Reason.REBUILDING:
                # The index was found out while the turn before was written to it.
                kept = talk.turn.decoder.state.position
                again = talk.say("Five.")
                close()
            if again.restored < kept:
                if again.miss_reason is None and not may_stay(mutator.done):
                    raise Broken(f"{again.restored} of {kept} tokens, for no reason")
                if not may_stay(mutator.done):
                    raise Broken(f"not healed: {again.restored} tokens, {again.miss_reason}")
            if touched := self.site.touched():
                raise Broken(f"touched outside the store: {touched}")
        except BaseException as error:
            error.args = (*error.args, mutator.done)
            raise
        finally:
            self.site.reset()
        return mutator.done


def _equal(got: dict[str, mx.array], want: dict[str, mx.array]) -> None:
    """Bit for bit, in one computation."""
    if got.keys() != want.keys():
        raise Broken(f"arrays {sorted(got)}, not {sorted(want)}")
    for name, array in want.items():
        if (got[name].shape, got[name].dtype) != (array.shape, array.dtype):
            raise Broken(f"the state differs: {name} {got[name].shape} {got[name].dtype}")
    same = mx.stack([mx.array_equal(_bits(got[name]), _bits(want[name])) for name in want])
    for name, equal in zip(want, same.tolist(), strict=True):  # type: ignore[arg-type]
        if not equal:
            raise Broken(f"the state differs: {name} {got[name].shape}")


def _bits(array: mx.array) -> mx.array:
    return array.view(mx.uint16 if array.itemsize == 2 else mx.uint32)


def _same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    if got.keys() != want.keys():
        raise Broken(f"arrays {sorted(got)}, not {sorted(want)}")
    for name in want:
        if got[name].shape != want[name].shape or not np.array_equal(got[name], want[name]):
            raise Broken(f"the state differs: {name} {got[name].shape}")
