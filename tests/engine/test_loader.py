"""Who may load a model, who waits, and that nobody waits for ever. The holders are processes."""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_mtplx.catalog import fit
from llm_mtplx.catalog.fit import GIB
from llm_mtplx.engine import loader
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.engine.load import load
from llm_mtplx.engine.loader import copies_that_fit, hold, release
from llm_mtplx.errors import EngineError
from llm_mtplx.protocol import Event, Finished, Notice, Request
from llm_mtplx.settings import cache_dir

from ..coldstore.lines import WAIT, in_child
from ..folders import copy_demo

# From Python 3.12 on, forking beside other threads warns.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

MEMORY = 16 * GIB


class Other:
    """A forked process that does something, says so, and stays until it is killed."""

    def __init__(self, action: Callable[[], object]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                action()
                os.write(writing, b"x")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        os.close(reading)

        self._alive = True

    def kill(self) -> None:
        if self._alive:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._alive = False


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is none too many ends the test, not the day."""
    monkeypatch.setattr(loader, "WAIT_S", WAIT)


@pytest.fixture
def other() -> Iterator[Callable[[Callable[[], object]], Other]]:
    started: list[Other] = []

    def start(action: Callable[[], object]) -> Other:
        started.append(Other(action))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def big(tmp_path: Path) -> Iterator[Path]:
    """A folder with 8 GiB of weights, none of which take space."""
    folder = tmp_path / "big"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(8 * GIB)
    yield folder
    release(folder)


def take(
    folder: Path,
    notice: Callable[[str], None] = lambda line: None,
    cancelled: Callable[[], bool] = lambda: False,
    memory: int = MEMORY,
) -> bool:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return hold(folder, fit.Needs(size, 65_536), notice, cancelled, memory)


@pytest.mark.parametrize(
    "weights, memory, copies",
    [
        (16 * GIB, 16 * GIB, 1),
        (16 * GIB, 48 * GIB, 1),
        (16 * GIB, 64 * GIB, 2),
        (16 * GIB, 128 * GIB, 4),
        (2 * GIB, 4 * GIB, 1),
        (2 * GIB, 16 * GIB, 2),
        (2 * GIB, 512 * GIB, 8),
        (GIB, GIB, None),
        (0, 0, None),
    ],
)
def test_how_many_copies_fit(weights: int, memory: int, copies: int | None) -> None:
    assert copies_that_fit(fit.Needs(weights, 0), memory) == copies


def test_nobody_waits_for_a_small_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    assert not take(tmp_path, memory=0)
    assert not cache_dir().exists()


def test_a_second_process_waits_and_says_for_whom(
    big: Path, other: Callable[[Callable[[], object]], Other]
) -> None:
    holder = other(lambda: take(big))
    lines: list[str] = []
    waits, got = threading.Event(), threading.Event()

    def notice(line: str) -> None:
        lines.append(line)
        waits.set()

    def wait() -> None:
        assert take(big, notice)
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(WAIT)
    assert not got.is_set()
    holder.kill()  # as a crash would end it
    thread.join(WAIT)
    assert got.is_set()
    (line,) = lines
    assert line.startswith(f"big is loaded by process {holder.pid}, and a second copy")


def test_where_two_fit_two_load_and_the_third_waits(
    big: Path, other: Callable[[Callable[[], object]], Other]
) -> None:
    memory = 32 * GIB
    first = other(lambda: take(big, memory=memory))
    other(lambda: take(big, memory=memory))
    with pytest.raises(EngineError, match="stopped before it began"):
        take(big, cancelled=lambda: True, memory=memory)
    first.kill()
    assert take(big, cancelled=lambda: True, memory=memory)


def test_a_process_never_waits_for_itself(big: Path) -> None:
    assert take(big)
    assert not take(big)
    assert not take(big / ".." / "big")
    release(big)
    release(big)
    assert take(big)


def test_what_a_process_leaves_behind_does_not_hold_its_lock(
    big: Path, other: Callable[[Callable[[], object]], Other], tmp_path: Path
) -> None:
    """A child that outlives a holder that crashed."""
    note = tmp_path / "pid"

    def action() -> None:
        take(big)
        note.write_text(str(Other(lambda: None).pid))

    other(action).kill()
    left = int(note.read_text())
    try:
        os.kill(left, 0)
        assert take(big, cancelled=lambda: True)
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_child_does_not_wait_for_the_parent_that_may_wait_for_it(big: Path) -> None:
    assert take(big)

    def child() -> None:
        with pytest.raises(EngineError, match=f"loaded by process {os.getppid()}.*Stop that"):
            take(big, notice=pytest.fail)  # not even for a moment

    assert in_child(child) == 0


def test_two_that_hold_what_the_other_wants(
    big: Path, other: Callable[[Callable[[], object]], Other], tmp_path: Path
) -> None:
    second = tmp_path / "second"
    second.mkdir()
    os.link(big / "model.safetensors", second / "model.safetensors")
    other(lambda: take(big))
    assert take(second)
    try:
        with pytest.raises(EngineError, match="big is loaded by process"):
            take(big, notice=pytest.fail)
    finally:
        release(second)


def test_no_wait_is_endless(
    big: Path,
    other: Callable[[Callable[[], object]], Other],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other(lambda: take(big))
    monkeypatch.setattr(loader, "WAIT_S", 0.0)
    looks = iter(range(9))
    with pytest.raises(EngineError, match="try again when it has finished"):
        take(big, cancelled=lambda: next(looks, None) is None)


def test_a_lock_file_that_says_nothing(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert take(big)
    (lock,) = (cache_dir() / "loaders").iterdir()
    for content in (b"", b"[]", b'{"pid": null, "since": 0}'):
        lock.write_bytes(content)
        assert str(loader._holder(big)) == "another process"
    lock.write_bytes(b'{"pid": 7, "since": 1000}')
    monkeypatch.setattr("time.time", lambda: 1000 + 5 * 60)
    assert str(loader._holder(big)) == "process 7 (for 5 minutes)"
    monkeypatch.setattr("time.time", lambda: 500)
    assert str(loader._holder(big)) == "process 7"


def test_locks_are_private_and_optional(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        assert take(big)
    finally:
        os.umask(before)
    place = cache_dir() / "loaders"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()] == [0o600]
    release(big)
    monkeypatch.setenv("LLM_MTPLX_CACHE_DIR", str(big / "model.safetensors"))
    assert not take(big)  # no place for a lock is no reason not to answer


def test_a_load_that_fails_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SMALL_BYTES", 0)
    folder = copy_demo(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(Exception):  # noqa: B017 - whatever it is
        load(folder, lambda line: None)
    assert list((cache_dir() / "loaders").iterdir())
    assert not loader._held


def test_the_engine_waits_says_so_and_answers(
    tmp_path: Path,
    other: Callable[[Callable[[], object]], Other],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "SMALL_BYTES", 0)
    monkeypatch.setattr(loader, "COPIES", 1)
    folder = copy_demo(tmp_path / "model")
    holder = other(lambda: take(folder))
    messages = [{"role": "user", "content": "Count from 1 to 5."}]
    events: list[Event] = []
    for event in shared_engine().stream(Request("m", folder, messages, max_tokens=4)):
        events.append(event)
        if isinstance(event, Notice):
            assert f"process {holder.pid}" in event.line
            holder.kill()
    assert sum(isinstance(event, Notice) for event in events) == 1
    assert isinstance(events[-1], Finished)
    assert folder in loader._held
    release(folder)
