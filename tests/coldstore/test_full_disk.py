"""A disk that is really full: a file system of a few megabytes, which the test's process mounts
where nobody else can see it."""

import ctypes
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore, StoreLimits

from .lines import WAIT, files, in_child, opened, restore, tokens
from .lines import write as save_turn

IDS = tokens(700)
CANNOT = 77  # an exit status
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def on_small_disk(place: Path, action: Callable[[Path], None]) -> None:
    """Run in a child that has 3 MB at ``place``."""

    def child() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            libc.unshare(CLONE_NEWNS)
            or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
            or libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=3m")
        ):
            os._exit(CANNOT)
        try:
            action(place)
        except BaseException:
            traceback.print_exc()
            raise

    code = in_child(child)
    if code == CANNOT:
        pytest.skip("no file system may be mounted here")
    assert code == 0


def fill(disk: Path) -> None:
    status = os.statvfs(disk)
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        ballast.write(bytes(status.f_bavail * status.f_frsize))
    assert os.statvfs(disk).f_bavail == 0


def filler(disk: Path, at: int) -> Callable[[str], None]:
    """A failpoint at whose ``at``-th step something else takes all that is free."""
    steps = 0

    def failpoint(name: str) -> None:
        nonlocal steps
        if steps == at:
            fill(disk)
        steps += 1

    return failpoint


def blobs(cache_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files(cache_dir, "*.[ks][vt]")}


def full_in_every_phase(disk: Path) -> None:
    limits = StoreLimits(free_floor_bytes=0)
    steps: list[str] = []
    dry = ColdStore(disk / "dry", limits, steps.append)
    save_turn(dry, IDS[:300])
    first = len(steps)
    save_turn(dry, IDS)
    whole = blobs(disk / "dry")
    assert dry.close(WAIT)
    drops = []
    for at in range(len(steps) - first):
        cache_dir = disk / str(at)
        with opened(cache_dir, free_floor_bytes=0) as before:
            save_turn(before, IDS[:300])
        store = ColdStore(cache_dir, limits, filler(disk, at))
        save_turn(store, IDS)
        drops.append(store.report().drops)
        assert drops[-1] in ({}, {"disk_full": 1})
        assert blobs(cache_dir).items() <= whole.items()  # nothing is half-written
        assert not files(cache_dir, ".*")
        assert restore(store, IDS)[0].position == (700 if not drops[-1] else 300)
        assert store.close(WAIT)
        fill(disk)  # with what is left of files that went
        late = ColdStore(cache_dir, StoreLimits(free_floor_bytes=64 << 10))
        assert restore(late, IDS[:300])[0].position == 300
        save_turn(late, tokens(300, seed=1))
        assert late.report().drops == {"low_disk": 1}
        assert late.report().disk_state == "full"
        (disk / "ballast").unlink()
        save_turn(late, IDS)
        assert late.report().drops == {"low_disk": 1}
        assert restore(late, IDS)[0].position == 700
        assert late.close(WAIT)
        shutil.rmtree(cache_dir)
    assert drops[-1] == {}  # all was committed
    assert drops.count({"disk_full": 1}) > len(drops) // 2


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_disk_that_fills_in_any_phase_of_a_save(tmp_path: Path) -> None:
    on_small_disk(tmp_path, full_in_every_phase)
