"""What would make an installation better, told from doctor's report. Imports no MLX."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

CUDA_BUILDS = ("mlx-cuda-13", "mlx-cuda-12")
MIB = 2**20


def advice(report: dict[str, Any]) -> list[str]:
    """One line each, what keeps a model from answering first."""
    return [*_memory(report), *_backend(report), *_store(report["store"]), *_depth(report["model"])]


def _memory(report: dict[str, Any]) -> list[str]:
    model, working_set = report["model"], report["memory_limits"]["gpu_working_set_bytes"]
    if not model["fits"]:
        return [
            f"{model['id']} does not fit into this machine's memory. "
            "'llm mtplx models --recommended' lists what does."
        ]
    if working_set and model["envelope_bytes"] > working_set and report["backend"] == "metal":
        return [
            "macOS lets the GPU use less memory than the plan gives the model; a long context may "
            "get slow. Allow more until the next start with: "
            f"sudo sysctl iogpu.wired_limit_mb={model['envelope_bytes'] // MIB}"
        ]
    return []


def _backend(report: dict[str, Any]) -> list[str]:
    lines = []
    if report["backend"] == "cpu" and report["blas"] == "the mlx wheel's own":
        lines.append(
            "MLX multiplies float32 matrices with the slow BLAS of its wheel. Install OpenBLAS "
            "and llm uses it: apt install libopenblas0-pthread (Debian, Ubuntu), dnf install "
            "openblas-threads (Fedora), pacman -S openblas (Arch)."
        )
    cuda = next((name for name in CUDA_BUILDS if _installed(name)), None)
    if report["backend"] == "cpu" and cuda is not None:
        lines.append(
            "MLX's CPU build has taken the place of its CUDA build. Bring it back with: "
            f"python -m pip install --force-reinstall --no-deps {cuda}=={version(cuda)}"
        )
    return lines


def _store(store: dict[str, Any]) -> list[str]:
    if not store["enabled"]:
        return []
    if not store["restorable"]:
        return [
            f"What was kept on disk cannot be used now ({store['last_miss_reason']}): prompts are "
            "read again. If that stays so, move the folder that 'llm mtplx status' names away."
        ]
    if store["skips_writes"] == "low_disk":
        return ["The disk is nearly full, so nothing more is kept. Free some of it."]
    if store["skips_writes"] == "write_budget":
        return [
            "As much was written in the last hour as is allowed, so nothing more is kept for now. "
            "LLM_MTPLX_WRITE_BUDGET_PER_HOUR allows more."
        ]
    return []


def _depth(model: dict[str, Any]) -> list[str]:
    if not model["head"] or model["tuned_depth"] is not None:
        return []
    return [f"'llm mtplx tune {model['id']}' measures how deep to draft with it on this machine."]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
