"""What this machine and installation are, for doctor and benchmarks."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..catalog.machine import memory_bytes
from ..speculative.depth import Backend

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
    maps = Path("/proc/self/maps")
    mapped = maps.read_text() if maps.exists() else ""
    libraries = {Path(line.split()[-1]).name for line in mapped.splitlines() if "/" in line}
    for prefix in ("libmkl_rt", "libopenblas"):
        found = sorted(name for name in libraries if name.startswith(prefix))
        if found:
            return found[0]
    return WHEEL_BLAS
