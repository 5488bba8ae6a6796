"""The engine: one thread that owns MLX, the resident models and the queue of turns."""

import asyncio
import atexit
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import EngineError, MtplxError, RequestError
from .blas import preload
from .protocol import Event, Failed, Finished, Notice, Progress, Request

if TYPE_CHECKING:
    from ..coldstore import ColdStore
    from ..sessions.bank import Bank
    from ..sessions.keeper import Keeper
    from .load import LoadedModel
    from .tuning import Measured
    from .turn import Turn
    from .verify import Verified
    from .warm import Warmed

T = TypeVar("T")

logger = logging.getLogger(__name__)

EXIT_WAIT_S = 3.0


class Job:
    """A request on its way through the engine. ``sink`` is called on the engine's thread."""

    def __init__(self, request: Request, sink: Callable[[Event], None]) -> None:
        self.request = request
        self.sink = sink
        self.abandoned = False  # nobody waits for the end any more
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop within one round. Harmless after the end."""
        self._cancelled.set()

    def abandon(self) -> None:
        """As ``cancel``, and nothing of the answer is kept unless it has ended already."""
        self.abandoned = True
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()


class EventStream:
    """The events of one turn, for one reader; the last is Finished."""

    def __init__(self, job: Job, events: "queue.SimpleQueue[Event]") -> None:
        self._job = job
        self._events = events

    def cancel(self) -> None:
        """Let the turn end within one round; its Finished still comes."""
        self._job.cancel()

    def __iter__(self) -> Iterator[Event]:
        """Leaving the loop abandons the turn. Raises what the turn failed with."""
        try:
            while True:
                event = self._events.get()
                if isinstance(event, Failed):
                    raise event.error
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._job.abandon()


class Engine:
    """Runs tasks one after the other. MLX is imported and used on its thread only."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._models: dict[Path, LoadedModel] = {}
        self._keepers: dict[Path, Keeper] = {}
        self._current: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="mtplx-engine", daemon=True)
        self._thread.start()
        # A daemon thread inside MLX at interpreter shutdown would crash: stop it before.
        atexit.register(self.close)

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the engine's thread and wait for its result."""
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._put(task)
        return future.result()

    def _submit(self, request: Request, sink: Callable[[Event], None]) -> Job:
        job = Job(request, sink)
        self._put(lambda: self._serve(job))
        return job

    def _put(self, task: Callable[[], object]) -> None:
        if self._closed:
            raise EngineError("The engine has stopped because this process is ending.")
        self._tasks.put(task)

    def stream(self, request: Request) -> "EventStream":
        """Start a turn and read its events from another thread."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        return EventStream(self._submit(request, events.put), events)

    async def astream(self, request: Request) -> AsyncIterator[Event]:
        """As ``stream``, for a running event loop."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def sink(event: Event) -> None:
            # A loop that was closed has nobody left who listens.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = self._submit(request, sink)
        try:
            while True:
                event = await events.get()
                if isinstance(event, Failed):
                    raise event.error
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            job.abandon()

    def close(self) -> None:
        """Cancel what runs and wait until the thread is idle, a stated time at most.

        The thread itself stays, asleep: MLX keeps its streams per thread, and a thread that ends
        takes the process down with them.
        """
        if self._closed or os.getpid() != self.pid:
            return
        self._closed = True
        current = self._current
        if current is not None:
            current.cancel()
        began = time.monotonic()
        idle = threading.Event()
        self._tasks.put(idle.set)
        idle.wait(EXIT_WAIT_S)
        store = self.__dict__.get("_store")
        if store is not None:
            from ..limits import limits

            # What is not written by then is a miss later.
            store.close(max(began + limits().exit_save_s - time.monotonic(), 0.0))

    def _run(self) -> None:
        preload()
        while True:
            self._tasks.get()()

    def _serve(self, job: Job) -> None:
        if self._closed:
            return
        if job.cancelled:
            job.sink(Failed(EngineError("The answer was stopped before it began.")))
            return
        self._current = job
        turn = None
        try:
            turn = self._turn(job)
            event: Event = turn.run()
        except MtplxError as error:
            turn, event = None, Failed(error)
        except Exception as error:
            wrapped = EngineError(f"The engine failed: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            turn, event = None, Failed(wrapped)
        self._current = None
        dropped = job.abandoned
        job.sink(event)
        if turn is not None:
            self._keep(turn, dropped)

    def _turn(self, job: Job) -> "Turn":
        from .turn import Turn

        model = self._resident(job)
        keeper = self._keepers[job.request.folder]
        return Turn(model, job.request, keeper, job.sink, lambda: job.cancelled)

    def _keep(self, turn: "Turn", dropped: bool) -> None:
        """The answer is out: what goes wrong from here on is a state less, not an error."""
        try:
            if dropped:
                turn.drop_answer()
            else:
                turn.keep()
        except Exception as error:
            logger.warning("a turn's state was not kept: %r", error)

    @cached_property
    def _sessions(self) -> "Bank":
        from .memory import bank

        return bank()

    @cached_property
    def _store(self) -> "ColdStore | None":
        from .memory import store

        return store()

    def _resident(self, job: Job) -> "LoadedModel":
        folder = job.request.folder
        if folder not in self._models:
            job.sink(Progress("loading"))
            model = self._load(folder, lambda line: job.sink(Notice(line)), lambda: job.cancelled)
            self._add(folder, model)
        return self._models[folder]

    def _add(self, folder: Path, model: "LoadedModel") -> None:
        from .memory import keeper

        self._models[folder] = model
        self._keepers[folder] = keeper(model, self._sessions, self._store)

    def _load(
        self,
        folder: Path,
        notice: Callable[[str], None],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> "LoadedModel":
        from ..catalog import fit, footprint, machine
        from .load import load
        from .tuning import recorded_depth

        model = load(folder, notice, cancelled)
        plan = fit.plan(machine.memory_bytes(), footprint.of_folder(model.folder))
        model = replace(model, context_window=min(model.context_window, plan.window))
        depth = recorded_depth(model.folder)
        return model if depth is None else replace(model, depth=depth, break_even=0.0)

    def verify(self, folder: Path, notice: Callable[[str], None]) -> "Verified":
        """Compare one answer cold, from RAM, from SSD and without drafts."""

        def task() -> "Verified":
            from .verify import verify

            if folder not in self._models:
                self._add(folder, self._load(folder, notice))
            return verify(self._models[folder])

        return self.call(task)

    def warm(self, requests: Sequence[Request], notice: Callable[[str], None]) -> "Warmed":
        """Keep the state after what all ``requests`` of one model begin with."""

        def task() -> "Warmed":
            from .warm import warm

            folder = requests[0].folder
            if folder not in self._models:
                self._add(folder, self._load(folder, notice))
            return warm(self._models[folder], self._keepers[folder], requests)

        return self.call(task)

    def tune(
        self, folder: Path, tokens: int, repeats: int, notice: Callable[[str], None]
    ) -> "Measured":
        """Measure which depth is fastest, save it, and use it from now on."""

        def task() -> "Measured":
            from .load import load
            from .tuning import measure, save

            model = load(folder, notice)
            if model.head is None:
                raise RequestError(f"{folder} has no MTP head: there is no depth to tune.")
            measured = measure(model, tokens, repeats)
            save(model.folder, measured)
            self._add(folder, replace(model, depth=measured.depth, break_even=0.0))
            return measured

        return self.call(task)


_engine: Engine | None = None
_engine_lock = threading.Lock()


def shared_engine() -> Engine:
    """This process's engine. A child forked after it started gets one clear error."""
    global _engine
    with _engine_lock:
        if _engine is not None and _engine.pid != os.getpid():
            raise EngineError(
                "This process was forked from one in which MLX was running, which MLX cannot "
                "survive. Start a new process instead (multiprocessing: use 'spawn')."
            )
        if _engine is None:
            _engine = Engine()
        return _engine


def _new_lock() -> None:
    global _engine_lock
    _engine_lock = threading.Lock()


# The parent may fork while another of its threads holds the lock.
os.register_at_fork(after_in_child=_new_lock)
