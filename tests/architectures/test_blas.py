"""OpenBLAS under MLX: used where it should be, and exact within its rounding."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from llm_mtplx.architectures.blas import CANDIDATES
from llm_mtplx.speculative.depth import default_depth


def openblas() -> str | None:
    for name in CANDIDATES:
        try:
            ctypes.CDLL(name)  # its symbols stay out of this process's namespace
        except OSError:
            continue
        return name
    return None


needs_openblas = pytest.mark.skipif(
    sys.platform != "linux" or openblas() is None, reason="no OpenBLAS on this machine"
)


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


@needs_openblas
def test_a_library_that_is_loaded_beside_it_is_not_the_one_in_use() -> None:
    """As another program's numpy loads its own."""
    script = (
        "import ctypes; {load}\nfrom llm_mtplx.architectures.runtime import blas\nprint(blas())"
    )
    name = openblas()
    for load, used in (
        (f"ctypes.CDLL({name!r})", "the mlx wheel's own"),
        (f"ctypes.CDLL({name!r}, mode=ctypes.RTLD_GLOBAL)", "libopenblas"),
    ):
        done = run("-c", script.format(load=load))
        assert done.stdout.startswith(used)


@needs_openblas
def test_states_are_within_rounding_of_a_fresh_prefill() -> None:
    done = run("-m", "tests.speculative.openblas_rounds", LLM_MTPLX_BLAS=str(openblas()))
    report = json.loads(done.stdout)
    assert report["blas"].startswith("libopenblas")
    print(report)
    assert report["deviation"] <= 1e-4
    assert all(gap < 1e-3 for gap in report["gaps"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux CPUs choose a BLAS")
def test_which_processes_load_it() -> None:
    """llm itself does where one is found, another program only when told, ``off`` means off."""
    script = (
        "import sys; sys.argv[0] = {program!r}\n"
        "from llm_mtplx.architectures.blas import preload\n"
        "print(preload())"
    )

    def loaded(program: str, setting: str) -> str | None:
        out = run("-c", script.format(program=program), LLM_MTPLX_BLAS=setting).stdout.strip()
        return None if out == "None" else out

    found = openblas()
    assert loaded("bin/llm", "") == loaded("site-packages/llm/__main__.py", "") == found
    assert loaded("bin/llm", "off") is None
    assert loaded("my_script.py", "") is None
    assert loaded("my_script.py", "no-such-library.so") is None
    if found is not None:
        assert loaded("my_script.py", found) == found


@pytest.mark.parametrize(
    ("backend", "dtype", "quantized", "own_blas", "depth"),
    [
        ("metal", "bfloat16", True, False, 3),
        ("cuda", "bfloat16", False, False, 3),
        ("cpu", "float32", False, True, 0),
        ("cpu", "float32", False, False, 1),
        ("cpu", "bfloat16", True, True, 0),
        ("cpu", "float32", True, False, 0),
        ("cpu", "bfloat16", False, True, 1),
    ],
)
def test_default_depth(backend, dtype, quantized, own_blas, depth) -> None:
    assert default_depth(backend, dtype, quantized, own_blas) == depth
