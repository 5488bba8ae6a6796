"""The engine: one thread that owns MLX, the resident models and the queue of turns."""

import atexit
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..architectures.blas import preload
from ..errors import EngineError, Interrupted, MtplxError
from ..protocol import Event, Failed, Finished, Notice, Progress, Request, Restored
from .fair import FairQueue
from .observe import Observer
from .parking import Parking, leave
from .streams import AsyncEventStream, EventStream, Job

if TYPE_CHECKING:
    from ..coldstore import ColdStore, Counters
    from .ahead import Ahead
    from .load import LoadedModel
    from .loaded_models import Residents
    from .scheduler import Scheduler
    from .turn import Turn
    from .warm import Warmed

T = TypeVar("T")

logger = logging.getLogger(__name__)

EXIT_WAIT_S = 3.0
PATIENCE_S = 30.0  # where the answer is complete and only its state is not kept yet
AHEAD = 16  # ended turns whose next ones may be read ahead
PARALLEL = 4  # turns in progress at once


@dataclass(frozen=True)
class Task:
    """Something to do on the engine's thread."""

    run: Callable[[], object]
    job: Job | None = None  # whose turn it begins
    beside: bool = False  # whether it may run while turns are in progress


class Engine:
    """Runs turns side by side, and everything else while none is in progress. MLX is imported and
    used on its thread only."""

    def __init__(self, parallel: int = PARALLEL) -> None:
        self.pid = os.getpid()
        self.observer = Observer()
        self.parallel = parallel  # turns in progress at once, at most
        self._tasks: FairQueue[Task] = FairQueue()
        self._jobs: set[Job] = set()  # neither begun nor given up
        self._begun: set[Job] = set()  # and not ended
        self._ahead: deque[Ahead] = deque(maxlen=AHEAD)
        self.stays = False  # whether this process is there for turns to come
        self._stopping = False  # whether it takes no more turns
        self._closed = False
        self._calls = 0  # under way
        self._parking = Parking()
        self._thread = threading.Thread(target=self._run, name="mtplx-engine", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise EngineError(f"The engine cannot start: {error}.") from None
        # A daemon thread inside MLX at interpreter shutdown would crash: stop it before.
        atexit.register(self.close)

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the engine's thread and wait for its result."""
        return self._begin(function).result()

    def _begin(self, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def task() -> None:
            self._calls += 1
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)
            finally:
                self._calls -= 1

        self._put(task)
        return future

    @property
    def waiting(self) -> int:
        """How many turns wait for their beginning."""
        return sum(not job.cancelled for job in tuple(self._jobs))

    @property
    def idle(self) -> bool:
        """Whether nothing is done, asked for or to be read ahead."""
        return not (self._begun or self._jobs or self._ahead)

    @property
    def idle_s(self) -> float:
        """How long there has been nothing to do."""
        if self._begun or self._jobs:
            return 0.0
        return time.monotonic() - self.observer.last_turn

    @property
    def saves(self) -> "Counters | None":
        """What this process wrote to the store and what it did not; None where it has none."""
        store = self._store
        return None if store is None else store.counters()

    @property
    def _store(self) -> "ColdStore | None":
        """The store, if it has been opened. For any thread."""
        residents = self.__dict__.get("_residents")
        return residents.__dict__.get("store") if residents is not None else None

    def tidy(self, unload_after_s: float) -> None:
        """Drop sessions and models that nobody has used for long."""

        def task() -> None:
            for turn in self._scheduler:
                self._residents.used(turn.model.folder.path)
            self._residents.tidy(unload_after_s)
            self._publish()

        if "_residents" in self.__dict__:
            self._put(task, beside=True)

    def forget(self, conversation: str | None, older_than: float) -> "Future[None]":
        """Drop what RAM has of a conversation (None: of all) that has been unused for
        ``older_than`` seconds, once what runs now has ended."""

        def task() -> None:
            kept = (a for a in self._ahead if conversation not in (None, a.request.conversation))
            self._ahead = deque(kept, maxlen=AHEAD)
            if "_residents" in self.__dict__:
                self._residents.bank.forget(conversation, older_than)
                self._publish()

        return self._begin(task)

    def interrupt(self) -> None:
        """Take no more turns; the readers of those that run and wait get an error now. What has
        been generated is kept."""
        self._stopping = True
        for job in (*tuple(self._jobs), *tuple(self._begun)):
            job.stop()

    def _submit(self, request: Request, sink: Callable[[Event], None], client: str = "") -> Job:
        if self._stopping:
            raise Interrupted("The engine is stopping and accepts no more requests. Ask again.")
        job = Job(request, sink)
        if len(self._begun) >= self.parallel:
            sink(Progress("waiting"))
        self._jobs.add(job)
        if self._stopping:  # since the question above
            job.stop()
        self._put(lambda: self._serve(job), client, job)
        self.observer.pace.waits(time.monotonic(), self.waiting)
        return job

    def _put(
        self,
        run: Callable[[], object],
        client: str = "",
        job: Job | None = None,
        beside: bool = False,
    ) -> None:
        if self._closed:
            raise EngineError("The engine has stopped because this process is ending.")
        self._tasks.put(Task(run, job, beside), client)

    def stream(self, request: Request) -> "EventStream":
        """Start a turn and read its events from another thread."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        return EventStream(self._submit(request, events.put), events)

    def astream(
        self,
        request: Request,
        client: str = "",
        alive_s: float | None = None,
        timeout_s: float | None = None,
    ) -> AsyncEventStream:
        """As ``stream``, for a running event loop. The turns of a client do not keep those of
        another waiting."""
        events = AsyncEventStream(alive_s, timeout_s)
        events.job = self._submit(request, events.sink, client)
        return events

    def close(self) -> None:
        """Cancel what runs and wait until the thread is idle, a stated time at most.

        The thread itself stays, asleep: MLX keeps its streams per thread, and a thread that ends
        takes the process down with them.
        """
        if self._closed or os.getpid() != self.pid:
            return
        self._closed = True
        for job in tuple(self._begun):
            job.cancel()
        began = time.monotonic()
        self._tasks.put(Task(self._park))
        self._parking.wait(EXIT_WAIT_S)
        store = self._store
        if store is not None:
            from ..limits import limits

            # What is not written by then is a miss later.
            store.close(max(began + limits().exit_save_s - time.monotonic(), 0.0))
        if not self._parking.wait(0.0 if self._cut_off else PATIENCE_S):
            leave()

    @property
    def _cut_off(self) -> bool:
        """Whether the process ends before what it waited for."""
        return self._calls > 0 or bool(self.observer.running)

    def _park(self) -> None:
        if self._tasks.waiting():
            self._tasks.put(Task(self._park))  # their readers hear first that they do not begin
        else:
            self._parking.enter()

    def _run(self) -> None:
        preload()
        while True:
            try:
                busy = self._turns_in_progress > 0
                wait = not busy and (self._closed or not self._ahead)
                task = self._tasks.get(wait, self._fits)
                if task is not None:
                    task.run()
                elif busy:
                    self._scheduler.step()
                else:
                    self._read_ahead()
            except Exception as error:
                # Turns and calls tell their own; what is left must not end this thread.
                logger.warning("the engine's housekeeping failed: %r", error)

    @property
    def _turns_in_progress(self) -> int:
        return len(self._scheduler) if "_scheduler" in self.__dict__ else 0

    def _fits(self, task: Task) -> bool:
        """Whether a task may begin now."""
        turns = self._turns_in_progress
        if not turns or task.beside:
            return True
        if task.job is None:
            return False
        # Loading another model may take the memory of one that is in use.
        loaded = self._residents.is_current(task.job.request.folder)
        return task.job.cancelled or (turns < self.parallel and loaded)

    def _serve(self, job: Job) -> None:
        self._begun.add(job)
        self._jobs.discard(job)
        self.observer.pace.waits(time.monotonic(), self.waiting)
        if self._closed or job.cancelled:
            job.sink(Failed(EngineError("The answer was stopped before it began.")))
            self._begun.discard(job)
            return
        number = self.observer.begin(job.request)
        try:
            turn = self._turn(job, number)
        except Exception as error:
            self._ended(job, number, None, error)
            return
        begun = self._scheduler.admit(turn, lambda end: self._ended(job, number, turn, end))
        if not begun:
            job.sink(Progress("waiting"))

    def _ended(
        self, job: Job, number: int, turn: "Turn | None", result: "Finished | Exception"
    ) -> None:
        dropped = job.abandoned
        if isinstance(result, Finished):
            self.observer.finish(number, job.request, result)
            job.sink(result)
            assert turn is not None
            self._keep(turn, job.request, dropped)
        else:
            self.observer.fail(number)
            if not isinstance(result, MtplxError):
                error = EngineError(f"The engine failed: {type(result).__name__}: {result}")
                error.__cause__ = result
                result = error
            job.sink(Failed(result))
        self._begun.discard(job)
        self._publish()

    def _turn(self, job: Job, number: int) -> "Turn":
        from .turn import Turn

        request, residents = job.request, self._residents
        turn: Turn | None = None

        def emit(event: Event) -> None:
            if isinstance(event, Progress):
                self.observer.progress(number, event.phase, event.done, event.total)
            elif isinstance(event, Restored):
                self.observer.progress(number, "reading", event.tokens, event.prompt_tokens)
            elif turn is not None:
                self.observer.progress(number, "answering", turn.answer.tokens)
            job.sink(event)

        resident = residents.get(
            request.model_id,
            request.folder,
            lambda line: emit(Notice(line)),
            lambda: emit(Progress("loading")),
            lambda: job.cancelled,
        )
        keeper = residents.keeper(resident, request.salt)
        turn = Turn(resident.model, request, keeper, emit, lambda: job.cancelled)
        return turn

    def _keep(self, turn: "Turn", request: Request, dropped: bool) -> None:
        """The answer is out: what goes wrong from here on is a state less, not an error."""
        try:
            if dropped:
                turn.drop_answer()
            else:
                self._residents.bank.stays = self.stays
                turn.keep()
                self._look_ahead(turn, request)
        except Exception as error:
            self.observer.not_kept(error)

    def _look_ahead(self, turn: "Turn", request: Request) -> None:
        from .ahead import Ahead

        if self.stays and request.cache == "on":
            ids = turn.sequel.onward() if turn.sequel is not None else []
            if ids:
                self._ahead.append(Ahead(request, turn.model.key, ids))

    def _read_ahead(self) -> None:
        from .ahead import read

        ahead = self._ahead[-1]
        try:
            resident = self._residents.find(ahead.request.folder)
            if resident is not None and resident.model.key == ahead.model:
                keeper = self._residents.keeper(resident, ahead.request.salt)
                read(resident.model, keeper, ahead, lambda: bool(self._tasks.waiting()))
                self._publish()
        finally:
            self._ahead.pop()  # not before: until then the engine is not idle

    def _publish(self) -> None:
        if not self.stays:
            return
        from .picture import picture

        try:
            self.observer.memory = picture(self._residents)
        except Exception as error:
            logger.warning("the engine's memory could not be described: %r", error)

    @cached_property
    def _scheduler(self) -> "Scheduler":
        from .scheduler import Scheduler

        def fit(turns: "Sequence[Turn]") -> bool:
            tokens = [turn.tokens for turn in turns]
            return self._residents.fit_beside(turns[0].model.folder.path, tokens)

        return Scheduler(fit)

    @cached_property
    def _residents(self) -> "Residents":
        from .loaded_models import Residents

        return Residents()

    def run_with(
        self, folder: Path, task: Callable[["LoadedModel"], T], notice: Callable[[str], None]
    ) -> T:
        """Run ``task`` with the model in ``folder``, on the engine's thread: MLX may be imported
        there and nowhere else."""
        return self.call(lambda: task(self._residents.get(folder.name, folder, notice).model))

    def warm(self, requests: Sequence[Request], notice: Callable[[str], None]) -> "Warmed":
        """Keep the state after what all ``requests`` of one model begin with."""

        def task() -> "Warmed":
            from .warm import warm

            first = requests[0]
            resident = self._residents.get(first.model_id, first.folder, notice)
            return warm(resident.model, self._residents.keeper(resident, first.salt), requests)

        return self.call(task)


def started_engine() -> Engine | None:
    """This process's engine if it has one."""
    return _engine


_engine: Engine | None = None
_engine_lock = threading.Lock()


def shared_engine() -> Engine:
    """This process's engine. A child forked after it started gets one clear error."""
    global _engine
    with _engine_lock:
        if _engine is not None and _engine.pid != os.getpid():
            raise EngineError(
                "This process was forked from one in which MLX was running, and MLX "
                "does not survive a fork. Start a new process instead (multiprocessing: "
                "use 'spawn')."
            )
        if _engine is None:
            _engine = Engine()
        return _engine


def _new_lock() -> None:
    global _engine_lock
    _engine_lock = threading.Lock()


# The parent may fork while another of its threads holds the lock.
os.register_at_fork(after_in_child=_new_lock)
