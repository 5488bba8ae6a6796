"""A faster BLAS for MLX on Linux CPUs.

The mlx CPU wheel carries the reference BLAS, which is much slower than OpenBLAS on float32
matrices. Its symbols can be interposed: whatever library has them when libmlx is loaded
is used by the whole process. So this is done in processes that are llm itself, and elsewhere
only where LLM_MTPLX_BLAS asks for it.
"""

import ctypes
import logging
import os
import sys
from pathlib import Path

from ..once import first_time

logger = logging.getLogger(__name__)

CANDIDATES = ("libopenblas.so.0", "libopenblas.so")


def preload() -> str | None:
    """Load a BLAS before MLX is imported; returns its name, or None if nothing was loaded.

    LLM_MTPLX_BLAS names a library file to load, or is ``off``.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    named = os.environ.get("LLM_MTPLX_BLAS", "")
    if named == "off":
        return None
    names: tuple[str, ...] = (named,) if named else ()
    if not named and _is_llm_process():
        names = CANDIDATES
    for name in names:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            if named:
                _warn(named, error)
            continue
        return name
    return None


def _warn(named: str, error: OSError) -> None:
    line = f"LLM_MTPLX_BLAS: {named!r} cannot be loaded ({error}). Using MLX's own BLAS."
    if first_time(line):
        logger.warning("mtplx: %s", line)


def _is_llm_process() -> bool:
    program = Path(sys.argv[0])
    return program.name == "llm" or (program.name == "__main__.py" and program.parent.name == "llm")
