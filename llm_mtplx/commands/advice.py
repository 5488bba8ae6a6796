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
            (
                f"{model['id']} does not fit into this machine's memory. 'llm mtplx models "
                "--recommended' lists models that do."
            )
        ]
    if working_set and model["envelope_bytes"] > working_set and report["backend"] == "metal":
        return [
            (
                "macOS allows the GPU less memory than is planned for this model, so a long "
                "context may be slow. Raise the limit until the next restart with: sudo "
                f"sysctl iogpu.wired_limit_mb={model['envelope_bytes'] // MIB}"
            )
        ]
    return []


def _backend(report: dict[str, Any]) -> list[str]:
    lines = []
    if report["backend"] == "cpu" and report["blas"] == "the mlx wheel's own":
        lines.append(
            "MLX uses the slow BLAS of its wheel for float32. Install OpenBLAS and llm "
            "will use it: apt install libopenblas0-pthread (Debian, Ubuntu), dnf "
            "install openblas-threads (Fedora), pacman -S openblas (Arch)."
        )
    cuda = next((name for name in CUDA_BUILDS if _installed(name)), None)
    if report["backend"] == "cpu" and cuda is not None:
        lines.append(
            "MLX's CPU build has replaced its CUDA build. Restore the CUDA build with: "
            f"python -m pip install --force-reinstall --no-deps {cuda}=={version(cuda)}"
        )
    return lines


def _store(store: dict[str, Any]) -> list[str]:
    if not store["enabled"]:
        return []
    if not store["restorable"]:
        return [
            (
                f"The state on disk cannot be used now ({store['last_miss_reason']}), so "
                "prompts are processed from scratch. If this persists, move away the folder "
                "that 'llm mtplx status' shows."
            )
        ]
    if store["skips_writes"] == "low_disk":
        return ["The disk is nearly full, so nothing more is saved. Free some space."]
    if store["skips_writes"] == "write_budget":
        return [
            (
                "The hourly write budget is used up, so nothing more is saved for now. "
                "Raise it with LLM_MTPLX_WRITE_BUDGET_PER_HOUR."
            )
        ]
    return []


def _depth(model: dict[str, Any]) -> list[str]:
    if not model["head"] or model["tuned_depth"] is not None:
        return []
    return [
        f"'llm mtplx tune {model['id']}' measures the cost of each draft depth on this machine."
    ]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
