"""A store is damaged in every way we can think of, and used: answers, limits and witnesses hold.

    python -m tests.coldstore.fuzz --mutations 100000 --seed 1 --out FILE

runs processes side by side, each over its own copy of a store in memory. ``--only N`` does one
mutation of a seed again.
"""

import argparse
import faulthandler
import json
import logging
import math
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MEMORY_DISK = Path("/dev/shm")
HANG_S = 60.0  # of one mutation; they take hundredths
ROOM = 24 << 30  # bytes of addresses: what claims to be larger must not be believed
LEAKS_EVERY = 500
FORMS = ("closed", "killed")
ENGINE_EVERY = 400  # mutations for one that goes through the engine's turns
KEPT = 20  # failures that are told in full


class Worker:
    """Every ``stride``-th mutation of a seed. Tells how far it is by lines of JSON."""

    def __init__(self, seed: int, where: Path) -> None:
        from llm_mtplx.coldstore import restore

        from .fuzzed import Counts, EngineTurns, Inline, Turns

        restore.ThreadPoolExecutor = Inline  # type: ignore[misc, assignment]
        os.fsync = lambda handle: None  # nothing here outlives the machine
        self.counts = Counts()
        self._seed = seed
        self._turns = {form: Turns(where / form, self.counts, form) for form in FORMS}
        self._engine = EngineTurns(where / "engine", self.counts)
        self._raised: list[str] = []
        threading.excepthook = self._note
        self._log: deque[str] = deque(maxlen=40)  # what the store said, for a failure
        self._listen()

    def _note(self, args: threading.ExceptHookArgs) -> None:
        told = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
        self._raised.append("".join(told))

    def _listen(self) -> None:
        from llm_mtplx.coldstore.reasons import StoreError

        log, begin = self._log, StoreError.__init__

        def noted(error: StoreError, reason: Any, detail: str = "") -> None:
            begin(error, reason, detail)
            log.append(str(error))

        class Keep(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                log.append(f"{record.name}: {record.getMessage()}")

        StoreError.__init__ = noted  # type: ignore[method-assign]
        root = logging.getLogger("llm_mtplx")
        root.addHandler(Keep())
        root.setLevel(logging.INFO)
        root.propagate = False

    def one(self, index: int) -> dict[str, Any] | None:
        """Mutation ``index``; what failed, if something did."""
        rng = random.Random(f"{self._seed}:{index}")
        turns: Any = self._turns[FORMS[index // 7 % len(FORMS)]]
        if index % ENGINE_EVERY == ENGINE_EVERY - 1:
            turns = self._engine
        error, done = "", None
        self._log.clear()
        try:
            done = turns.one(rng)
        except Exception as failure:
            error, done = traceback.format_exc(), failure.args[-1]
        if self._raised:
            error += "".join(self._raised)
            self._raised.clear()
        if not error:
            return None
        error += "".join(f"| {line}\n" for line in self._log)
        return {"index": index, "mutations": [str(each) for each in done or ()], "error": error}


def work(
    seed: int, indices: range, where: Path, at: mmap.mmap | None, seconds: float = math.inf
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    began = time.monotonic()
    worker = Worker(seed, where)
    done, told, handles = 0, time.monotonic(), 0
    tell = lambda line: print(json.dumps(line), flush=True)  # noqa: E731
    for index in indices:
        if time.monotonic() - began > seconds:
            break
        if at is not None:
            at[:8] = index.to_bytes(8, "little")
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        failed = worker.one(index)
        faulthandler.cancel_dump_traceback_later()
        if failed is not None:
            tell({"failed": failed})
        done += 1
        if done % LEAKS_EVERY == 0:
            now = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
            if handles and now > handles + 8:
                tell({"failed": {"index": index, "mutations": [], "error": f"{now} open files"}})
            handles = max(handles, now)
        if time.monotonic() - told > 1 or index == indices[-1]:
            told = time.monotonic()
            tell({"done": done})
    tell({"done": done, "counts": worker.counts.as_json()})


class Fuzz:
    """The processes of one run, and what they told."""

    def __init__(
        self,
        mutations: int,
        seed: int,
        jobs: int,
        quiet: bool = False,
        seconds: float = math.inf,
    ) -> None:
        self._until = time.monotonic() + seconds
        self.mutations, self.seed, self.jobs, self.quiet = mutations, seed, jobs, quiet
        self.failures: list[dict[str, Any]] = []
        self.failed = 0
        self.counts: list[dict[str, Any]] = []
        self._done = [0] * jobs
        self._told = 0.0
        self._lock = threading.Lock()

    @property
    def done(self) -> int:
        return sum(self._done)

    def run(self) -> None:
        where = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="mtplx-fuzz-", dir=where) as base:
            threads = [
                threading.Thread(target=self._job, args=(job, Path(base)))
                for job in range(self.jobs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _job(self, job: int, base: Path) -> None:
        """One part of the mutations; after a process died, the rest of them in another."""
        start, finished = job, 0
        attempt = 0
        while start < self.mutations and time.monotonic() < self._until:
            where = base / f"{job}-{attempt}"
            (where / "user").mkdir(parents=True)
            (where / "at").write_bytes((2**64 - 1).to_bytes(8, "little"))
            command = [sys.executable, "-m", "tests.coldstore.fuzz", "--seed", str(self.seed)]
            command += ["--part", f"{start}:{self.mutations}:{self.jobs}", "--where", str(where)]
            command += ["--seconds", str(self._until - time.monotonic())]
            environment = {**os.environ, "LLM_USER_PATH": str(where / "user")}
            with (
                (where / "stderr").open("w+") as stderr,
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
                ) as process,
            ):
                assert process.stdout is not None
                whole = False
                for line in process.stdout:
                    whole |= self._hear(job, finished, json.loads(line))
                code = process.wait()
                if whole and code == 0:
                    return
                stderr.seek(0)
                index = int.from_bytes((where / "at").read_bytes(), "little")
                said = stderr.read()[-6000:]
            error = f"the process ended with {code}, hung for {HANG_S:.0f} s or died:\n{said}"
            self._fail({"index": index, "mutations": [], "error": error})
            attempt += 1
            if index >= self.mutations or attempt > KEPT:
                return
            finished += (index - start) // self.jobs + 1
            start = index + self.jobs

    def _hear(self, job: int, before: int, line: dict[str, Any]) -> bool:
        """Whether it was the last."""
        with self._lock:
            if "done" in line:
                self._done[job] = before + line["done"]
                if time.monotonic() - self._told > 5 and not self.quiet:
                    self._told = time.monotonic()
                    print(f"{self.done:,} mutations, {self.failed} failures", flush=True)
        if "failed" in line:
            self._fail(line["failed"])
        if "counts" in line:
            self.counts.append(line["counts"])
        return "counts" in line

    def _fail(self, failure: dict[str, Any]) -> None:
        with self._lock:
            self.failed += 1
            if len(self.failures) >= KEPT:
                return
            self.failures.append(failure)
        if not self.quiet:
            print(told(failure), file=sys.stderr, flush=True)

    def totals(self) -> dict[str, Any]:
        """What the processes counted, together."""
        total: dict[str, Any] = {}
        for counts in self.counts:
            for name, value in counts.items():
                if isinstance(value, int):
                    total[name] = total.get(name, 0) + value
                else:
                    total[name] = Counter(total.get(name, {})) + Counter(value)
        return {
            name: value if isinstance(value, int) else dict(value.most_common())
            for name, value in total.items()
        }


def told(failure: dict[str, Any]) -> str:
    done = "\n  ".join(failure["mutations"])
    return f"--- mutation {failure['index']}\n  {done}\n{failure['error']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=int, help="this mutation of the seed alone")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--where", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part is not None:
        with (args.where / "at").open("r+b") as file:
            work(
                args.seed,
                range(*map(int, args.part.split(":"))),
                args.where,
                mmap.mmap(file.fileno(), 8),
                args.seconds,
            )
        # The counts are out: what is left of the process need not be taken down in order.
        sys.stdout.flush()
        os._exit(0)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", flush=True)
    fuzz = Fuzz(args.mutations, seed, args.jobs, seconds=60 * args.minutes)
    if args.only is not None:
        fuzz = Fuzz(args.only + 1, seed, 10**9)
        fuzz._done = [0]
        where = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="mtplx-fuzz-", dir=where) as base:
            os.environ["LLM_USER_PATH"] = base
            work(seed, range(args.only, args.only + 1), Path(base), None)
        return
    began, clock = time.monotonic(), time.time()
    fuzz.run()
    report = {
        "command": "python -m tests.coldstore.fuzz " + " ".join(sys.argv[1:]),
        "began": datetime.fromtimestamp(clock, UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "seed": seed,
        "mutated_stores": fuzz.done,
        "failures": fuzz.failed,
        **fuzz.totals(),
    }
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if fuzz.failed else 0)


if __name__ == "__main__":
    main()
