"""Turns on a resident engine: the same answers, and no way to hang."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_mtplx.attach import client as attach
from llm_mtplx.attach import socket_path as place
from llm_mtplx.attach.client import Attachment, NoEngine, ask, connect
from llm_mtplx.attach.server import holder
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.errors import EngineError, ModelFolderError
from llm_mtplx.protocol import Event, Finished, Request, Text

from ..folders import copy_demo, save_random_model
from ..resident import TIMEOUT_S, resident
from ..waiting import until

HELLO = [{"role": "user", "content": "Count from 1 to 5."}]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user directory of a running engine."""
    path = tmp_path_factory.mktemp("resident")
    with resident(path, "--no-http"):
        yield path


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(home))


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("models") / "endless")


def request(folder: Path = MODEL_DIR, **options) -> Request:
    return Request("mtplx-demo", folder, HELLO, **{"temperature": 0, **options})


def on_resident(asked: Request) -> Attachment:
    return Attachment(connect(), asked)


def text(events: list[Event]) -> str:
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, Text))


def wait_until_idle() -> None:
    until(lambda: ask("status")["engine"]["running"] is None)


@contextlib.contextmanager
def ends_before_its_end() -> Iterator[None]:
    """The one turn of the block ends because nobody reads it, not because it is over."""
    before = ask("status")["engine"]["turns"].get("interrupted", 0)
    yield
    wait_until_idle()
    assert ask("status")["engine"]["turns"]["interrupted"] == before + 1


@pytest.mark.parametrize("temperature", [0.0, 0.6, 2.5])
def test_the_answer_is_the_same(temperature: float) -> None:
    """There and here, drafted and not."""
    drawn = list(on_resident(request(temperature=temperature)))
    seed = drawn[-1].seed
    assert seed is not None and seed == int(float(seed))
    for depth in (None, 0, 4):
        again = request(temperature=temperature, seed=seed, depth=depth)
        assert text(list(on_resident(again))) == text(drawn)
        here = list(shared_engine().stream(again))
        assert text(here) == text(drawn)
        assert here[-1].seed == seed


def test_the_same_on_an_event_loop() -> None:
    async def collect() -> list[Event]:
        return [event async for event in on_resident(request())]

    assert text(asyncio.run(collect())) == text(list(on_resident(request())))


def test_an_error_is_the_same() -> None:
    with pytest.raises(ModelFolderError, match="does not exist"):
        list(on_resident(request(Path("/nowhere"))))


def test_cancel_ends_the_turn_with_what_it_cost(endless: Path) -> None:
    events = on_resident(request(endless))
    for event in events:
        if isinstance(event, Text):
            events.cancel()
        if isinstance(event, Finished):
            assert event.finish_reason == "interrupted"
            return
    raise AssertionError("no end")


def test_a_reader_that_leaves_ends_the_turn(endless: Path) -> None:
    with ends_before_its_end(), contextlib.closing(iter(on_resident(request(endless)))) as events:
        assert any(isinstance(event, Text) for event in events)


def test_the_same_with_a_task_that_is_cancelled(endless: Path) -> None:
    async def leave() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for event in on_resident(request(endless)):
                if isinstance(event, Text):
                    started.set()

        task = asyncio.create_task(read())
        begun = asyncio.create_task(started.wait())
        await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
        assert begun.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ends_before_its_end():
        asyncio.run(leave())


def test_whoever_is_not_the_same_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MTPLX_CACHE", "off")
    with pytest.raises(NoEngine, match="store is 'off' here"):
        on_resident(request())


def test_changed_files_are_loaded_anew(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    before = text(list(on_resident(request(folder, max_tokens=8))))
    shutil.rmtree(folder)
    save_random_model(folder)
    assert text(list(on_resident(request(folder, max_tokens=8)))) != before


def test_a_folder_that_looks_different_there_is_not_answered_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llm_mtplx.attach.handshake.folder_identity", lambda folder: "other")
    with pytest.raises(NoEngine, match="different files"):
        on_resident(request())


def test_a_stale_socket_is_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "other"))
    with pytest.raises(NoEngine, match="no engine is running"):
        connect()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket_path()))
    try:
        with pytest.raises(NoEngine, match="nothing answers"):
            connect()
    finally:
        place.socket_path().unlink()


@pytest.mark.parametrize("how", ["mode", "link", "file", "absent"])
def test_only_a_directory_of_our_own_is_trusted(tmp_path: Path, how: str) -> None:
    path = tmp_path / "place"
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    if how == "mode":
        path.mkdir()
        path.chmod(0o750)
    elif how == "link":
        path.symlink_to(real)
    elif how == "file":
        path.touch(0o700)
    assert place.is_ours(real)
    assert not place.is_ours(path)


def test_another_directory_is_refused_on_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "directory", lambda: tmp_path)
    monkeypatch.setattr(attach, "directory", lambda: tmp_path)
    tmp_path.chmod(0o755)
    place.socket_path().touch()
    with pytest.raises(NoEngine, match="only you can access"):
        connect()
    with pytest.raises(EngineError, match="only you can access"):
        place.make_directory()
    # Nor is it believed who holds the place: 'stop' would end that process.
    with place.socket_path().with_suffix(".lock").open("w") as lock:
        lock.write("4242")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert holder(place.socket_path()) is None
        tmp_path.chmod(0o700)
        assert holder(place.socket_path()) == 4242


def test_paths_fit_a_socket_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", "/" + "long/" * 60)
    assert len(str(place.socket_path())) < 100


def test_the_peer_is_known() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert place.peer_uid(ours) == os.getuid()


def test_another_users_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "peer_uid", lambda connection: os.getuid() + 1)
    with pytest.raises(NoEngine, match="another user"):
        connect()


NO_MLX = """
import sys
from click.testing import CliRunner
from llm.cli import cli
before = set(sys.modules)
for how in ([], ["--async"], ["-c"]):
    result = CliRunner().invoke(cli, ["-m", "mtplx-demo", "What is the capital of France?", *how])
    assert result.exit_code == 0 and "Paris" in result.output, result.output
heavy = ("mlx", "mlx_lm", "transformers", "tokenizers", "starlette", "llm_mtplx.coldstore")
print([name for name in heavy if name in set(sys.modules) - before])
"""


def test_the_calling_process_loads_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MLX], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_hung_engine_is_left_alone_or_an_error(
    endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = ask("status")["pid"]
    attachment = on_resident(request(endless))
    events = iter(attachment)
    assert any(isinstance(event, Text) for event in events)
    os.kill(pid, signal.SIGSTOP)
    attachment._connection.settimeout(0.2)
    monkeypatch.setattr(attach, "CONNECT_S", 0.2)
    try:
        with pytest.raises(EngineError, match="not responding"):
            list(events)
        with pytest.raises(NoEngine):
            on_resident(request())
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until_idle_after_hang()


def wait_until_idle_after_hang() -> None:
    def is_idle() -> bool:
        with contextlib.suppress(NoEngine):
            return ask("status")["engine"]["running"] is None
        return False

    until(is_idle)


def test_an_engine_that_dies_in_mid_answer_is_an_error(endless: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_USER_PATH", str(tmp_path / "dies"))
        with resident(tmp_path / "dies", "--no-http") as process:
            events = iter(on_resident(request(endless)))
            assert any(isinstance(event, Text) for event in events)
            process.kill()
            with pytest.raises(EngineError, match="in the middle of the answer"):
                list(events)
            process.wait(TIMEOUT_S)
            with pytest.raises(NoEngine):
                connect()
