"""What this machine and installation are, for doctor and benchmarks."""

import ctypes
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from ..catalog.machine import memory_bytes

Backend = Literal["metal", "cuda", "cpu"]
WHEEL_BLAS = "the mlx wheel's own"


def facts() -> dict[str, Any]:
    """Versions, backend, BLAS and memory. Names no host, user or path."""
    return {
        "versions": {
            "llm-mtplx": version("llm-mtplx"),
            "llm": version("llm"),
            "mlx": version("mlx"),
            "mlx-lm": version("mlx-lm"),
            "python": platform.python_version(),
        },
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(mx.device_info().get("device_name", "")),
        "backend": backend(),
        "blas": blas(),
        "memory_bytes": memory_bytes(),
    }


def memory_limits() -> dict[str, int | None]:
    """What MLX and the GPU's driver allow, in bytes; None where there is no such limit."""
    working_set = mx.device_info().get("max_recommended_working_set_size")
    return {
        "mlx_limit_bytes": mx.get_memory_limit(),
        "gpu_working_set_bytes": int(working_set) if working_set else None,
    }


def backend() -> Backend:
    """metal, cuda or cpu."""
    if mx.default_device() != mx.gpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def blas() -> str:
    """Which BLAS multiplies float32 matrices on the CPU."""
    if sys.platform == "darwin":
        return "Accelerate"
    library = _library_of("cblas_sgemm")
    return library if library.startswith(("libmkl_rt", "libopenblas")) else WHEEL_BLAS


class _DlInfo(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_of(symbol: str) -> str:
    """The file's name of the library whose ``symbol`` all of this process gets; "" where there is
    none. A library that somebody has loaded for itself alone does not count."""
    everything = ctypes.CDLL(None)
    try:
        address = ctypes.cast(getattr(everything, symbol), ctypes.c_void_p)
        info = _DlInfo()
        found = everything.dladdr(address, ctypes.byref(info))
    except AttributeError:
        return ""
    return Path(os.fsdecode(info.file or b"")).name if found else ""
